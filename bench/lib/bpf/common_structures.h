/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Structures the common way, where that is more than another search for a bit or a fingerprint within the library's: nodes in the entries of a
 * map, a hash with a seed of its own for each bit or row, CRC32c byte by byte, comparisons one by one, a random number from the helper.
 */
#ifndef BENCH_LIB_COMMON_STRUCTURES_H
#define BENCH_LIB_COMMON_STRUCTURES_H

#include "structures.h"

/* A skip list from a textbook: half of the nodes of each level are in the next one, a node is an entry of an array map. */
#define COMMON_LEVELS 16
struct common_node {
	__u64 key, value;
	__u32 next[COMMON_LEVELS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKIP_NODES);
	__type(key, __u32);
	__type(value, struct common_node);
} common_nodes SEC(".maps");

struct common_search {
	__u64 key;
	__u32 at, level, last[COMMON_LEVELS];
};

static long common_skip_step(__u32 turn, struct common_search *s)
{
	struct common_node *n = bpf_map_lookup_elem(&common_nodes, &s->at), *next;
	__u32 to, level = s->level;

	if (!n || level >= COMMON_LEVELS)
		return 1;
	to = n->next[level];
	if (to) {
		next = bpf_map_lookup_elem(&common_nodes, &to);
		if (!next)
			return 1;
		if (next->key < s->key) {
			s->at = to;
			return 0;
		}
	}
	s->last[level] = s->at;
	if (!level)
		return 1;
	s->level = level - 1;
	return 0;
}

/* The node of the key, or NULL; s has the last node before it on each level. */
SHUNT_FN struct common_node *common_skip_find(struct common_search *s, __u64 key)
{
	struct common_node *n;
	__u32 to;

	s->key = key;
	s->at = 0;
	s->level = COMMON_LEVELS - 1;
	bpf_loop(1024, common_skip_step, s, 0);
	n = bpf_map_lookup_elem(&common_nodes, &s->last[0]);
	if (!n || !n->next[0])
		return 0;
	to = n->next[0];
	n = bpf_map_lookup_elem(&common_nodes, &to);
	return n && n->key == key ? n : 0;
}

SHUNT_FN __u64 bench_skip_get(struct bench_skip *unused, __u32 i)
{
	struct common_search s = {};
	struct common_node *n = common_skip_find(&s, bench_key_of(i));

	return n ? n->value : 0;
}

SHUNT_FN __u64 bench_skip_update(struct bench_skip *unused, __u32 i)
{
	struct common_search s = {};
	struct common_node *n = common_skip_find(&s, bench_key_of(i));

	if (!n)
		return 0;
	n->value = i + 1;
	return i + 1;
}

/* Keys are put in once, the i-th as node i + 1. */
SHUNT_FN int bench_skip_fill(struct bench_skip *unused, __u32 i)
{
	__u64 key = bench_key_of(i);
	struct common_search s = {};
	struct common_node *n = common_skip_find(&s, key), *before;
	__u32 random = bpf_get_prandom_u32(), new = i + 1;

	if (n)
		return 0;
	n = bpf_map_lookup_elem(&common_nodes, &new);
	if (!n)
		return 0;
	n->key = key;
	n->value = i + 1;
	for (__u32 level = 0; level < COMMON_LEVELS; level++) {
		before = bpf_map_lookup_elem(&common_nodes, &s.last[level]);
		if (!before)
			return 0;
		n->next[level] = before->next[level];
		before->next[level] = new;
		if (random & 1)
			break;
		random >>= 1;
	}
	return 1;
}

/* The set of a key: two buckets of 16, looked through. */
struct common_htss {
	struct { __u16 tag[16], set[16]; } bucket[256];
};

SHUNT_FN __u64 bench_htss_get(struct common_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 hash = bench_hash(&key);
	__u32 bucket[2] = { hash & 255, hash >> 8 & 255 };
	__u16 tag = hash >> 48 | 1;

	for (int side = 0; side < 2; side++)
		for (int k = 0; k < 16; k++)
			if (t->bucket[SHUNT_MASK(bucket[side], 255)].tag[k] == tag)
				return t->bucket[SHUNT_MASK(bucket[side], 255)].set[k];
	return 0;
}

SHUNT_FN int bench_htss_fill(struct common_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 hash = bench_hash(&key);
	__u32 bucket[2] = { hash & 255, hash >> 8 & 255 };
	__u16 tag = hash >> 48 | 1;

	for (int k = 0; k < 16; k++) /* the k-th of either: the emptier bucket, as they fill from below */
		for (int side = 0; side < 2; side++)
			if (!t->bucket[SHUNT_MASK(bucket[side], 255)].tag[k]) {
				t->bucket[SHUNT_MASK(bucket[side], 255)].tag[k] = tag;
				t->bucket[SHUNT_MASK(bucket[side], 255)].set[k] = BENCH_SET(i);
				return 1;
			}
	return 0;
}

/* A Bloom filter with a hash for each of its 7 bits. */
struct common_bloom { __u32 word[1 << 11]; };

SHUNT_FN __u64 bench_bloom_get(struct common_bloom *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	for (__u32 k = 0; k < 7; k++) {
		__u32 h = common_xxh32(key.word, k);

		if (!(f->word[SHUNT_MASK(h >> 5, 2047)] & 1U << (h & 31)))
			return 0;
	}
	return 1;
}

SHUNT_FN int bench_bloom_fill(struct common_bloom *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	for (__u32 k = 0; k < 7; k++) {
		__u32 h = common_xxh32(key.word, k);

		f->word[SHUNT_MASK(h >> 5, 2047)] |= 1U << (h & 31);
	}
	return 1;
}

/* A cuckoo filter's buckets of four, looked through one by one; half full, nothing has to move. */
struct common_filter { __u16 print[1024][4]; };

SHUNT_FN __u64 bench_filter_get(struct common_filter *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 hash = bench_hash(&key);
	__u32 bucket[2] = { hash & 1023, hash >> 10 & 1023 };
	__u16 print = hash >> 48 | 1;

	for (int side = 0; side < 2; side++)
		for (int k = 0; k < 4; k++)
			if (f->print[SHUNT_MASK(bucket[side], 1023)][k] == print)
				return 1;
	return 0;
}

SHUNT_FN int bench_filter_fill(struct common_filter *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 hash = bench_hash(&key);
	__u32 bucket[2] = { hash & 1023, hash >> 10 & 1023 };

	for (int k = 0; k < 4; k++)
		for (int side = 0; side < 2; side++)
			if (!f->print[SHUNT_MASK(bucket[side], 1023)][k]) {
				f->print[SHUNT_MASK(bucket[side], 1023)][k] = hash >> 48 | 1;
				return 1;
			}
	return 0;
}

/*
 * HeavyKeeper as its paper has it: a hash per row, and a random number for each stranger, who wears a count down with a chance of 1.08^-count
 * (the nearest power of two: a half for each 9). Candidates lie in a list of 64, which is searched from the front.
 */
struct common_heavy {
	struct { __u32 print, count; } slot[2][1024];
	struct bench_key key[64];
	__u32 count[64];
};

struct common_candidate {
	struct common_heavy *h;
	const struct bench_key *key;
	__u32 count, least, at, found;
};

static long common_heavy_look(__u32 k, struct common_candidate *c)
{
	struct common_heavy *h = c->h;

	k = SHUNT_MASK(k, 63);
	if (!__builtin_memcmp(&h->key[k], c->key, sizeof(*c->key))) {
		if (c->count > h->count[k])
			h->count[k] = c->count;
		c->found = 1;
		return 1;
	}
	if (h->count[k] < c->least) {
		c->least = h->count[k];
		c->at = k;
	}
	return 0;
}

SHUNT_FN __u64 bench_heavy_add(struct common_heavy *h, __u32 i)
{
	struct bench_key key = bench_flow_of(bench_skewed(i));
	struct common_candidate c = { .h = h, .key = &key, .least = ~0U };
	__u32 most = 0, at;

	for (__u32 row = 0; row < 2; row++) {
		__u32 hash = common_xxh32(key.word, row), slot = SHUNT_MASK(hash, 1023), print = hash | 1, wear;

		if (h->slot[row][slot].print == print) {
			h->slot[row][slot].count++;
		} else {
			wear = h->slot[row][slot].count / 9;
			if (wear < 32 && !(bpf_get_prandom_u32() & ((1ULL << wear) - 1)) && h->slot[row][slot].count)
				h->slot[row][slot].count--;
			if (h->slot[row][slot].count)
				continue;
			h->slot[row][slot].print = print;
			h->slot[row][slot].count = 1;
		}
		if (h->slot[row][slot].count > most)
			most = h->slot[row][slot].count;
	}
	if (!most)
		return 1;
	c.count = most;
	bpf_loop(64, common_heavy_look, &c, 0);
	if (!c.found && most > c.least) {
		at = SHUNT_MASK(c.at, 63);
		h->key[at] = key;
		h->count[at] = most;
	}
	return 1;
}

SHUNT_FN __u32 bench_heavy_count(struct common_heavy *h, __u32 i, __u32 step)
{
	struct bench_key key = bench_flow_of(i);

	step &= 63;
	return __builtin_memcmp(&h->key[step], &key, sizeof(key)) ? 0 : h->count[step];
}
#define BENCH_HEAVY_STEPS 64

#define bench_htss common_htss
#define bench_bloom common_bloom
#define bench_filter common_filter
#define bench_heavy common_heavy

#endif
