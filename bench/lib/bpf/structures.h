/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The structures that are compared, and one operation on each, for XDP programs (structures.bpf.c), for network functions
 * (functions.bpf.c) and for user space (native.c). With COMMON the same structures find bits by branches, compare fingerprints one by one and
 * hash by CRC32c byte by byte; what fills them stays the library's.
 */
#ifndef BENCH_LIB_STRUCTURES_H
#define BENCH_LIB_STRUCTURES_H

#include "common.h"
#ifdef COMMON
#include <shunt/bits.h>
#define shunt_ctz64 common_ctz64
#define shunt_ctz64_of common_ctz64
#endif
#include <shunt/ffsqueue.h>
#include <shunt/wheel.h>
#include "elements.h"
SHUNT_FFSQ(bench_queue, 2, HANDLES)
SHUNT_WHEEL(bench_wheel, 12, 14, HANDLES)
#include <shunt/bloom.h>
#include <shunt/bucket.h>
#include <shunt/crc32c.h>
#include <shunt/cuckoo.h>
#include <shunt/cuckoofilter.h>
#include <shunt/hkeeper.h>
#include <shunt/htss.h>
#include <shunt/list.h>
#include <shunt/maglev.h>
#include <shunt/skiplist.h>
#include <shunt/topk.h>
#include <shunt/tree.h>

#define SKIP_NODES (1 << 17) /* room for 2^16 keys */

SHUNT_SKIPLIST(bench_skip, SKIP_NODES);
SHUNT_CUCKOO(bench_table, struct bench_key, __u64, 8)
SHUNT_HTSS(bench_htss, 8)
SHUNT_BLOOM(bench_bloom, 16, 7)
SHUNT_BLOOM_BLOCKED(bench_blocked, 16, 7)
SHUNT_CUCKOOFILTER(bench_filter, 10)
SHUNT_TOPK(bench_top, struct bench_key, 64)
SHUNT_BUCKETS(bench_buckets, 256, HANDLES);

struct bench_heavy {
	__u64 state;
	struct shunt_hk_slot slot[2 << 10];
	struct bench_top top;
};

struct bench_item { SHUNT_LINK; __u64 value; };
struct bench_list { SHUNT_NODES(struct bench_item, HANDLES); SHUNT_LIST(line, bench_item); };
struct bench_leaf { SHUNT_LEAF; __u64 value; };
struct bench_tree { SHUNT_NODES(struct bench_leaf, HANDLES); SHUNT_TREE(root, bench_leaf); };
struct bench_maglev { __u16 entry[65537]; };

SHUNT_FN __u64 bench_hash(const struct bench_key *key)
{
#ifdef COMMON
	const __u8 *bytes = (const __u8 *)key;
	__u32 crc = ~0U;

	for (__u32 i = 0; i < 16; i++)
		crc = shunt_crc32c_1(crc, bytes[i]);
	return (__u64)crc << 32 | crc * 0x9e3779b1U;
#else
	return shunt_hash64(key, 16, 7);
#endif
}

/* A push and a pop of a queue that is half full: what is popped goes in again, some way up. */
SHUNT_FN __u64 bench_queue_turn(struct bench_queue *q, __u64 x)
{
	__u64 priority = 0;
	int handle = bench_queue_pop(q, &priority);

	if (handle < 0)
		return 0;
	bench_queue_push(q, handle, priority + (x & 4095));
	return handle + 1;
}

SHUNT_FN int bench_queue_fill(struct bench_queue *q, __u32 i, __u64 x) { return bench_queue_push(q, i, x & 4095) >= 0; }
SHUNT_FN int bench_wheel_fill(struct bench_wheel *w, __u32 i, __u64 x) { return bench_wheel_add(w, i, x & 0x3ffffff, 0) >= 0; }

/* The same of a wheel: time is as far as the earliest is due. */
SHUNT_FN __u64 bench_wheel_turn(struct bench_wheel *w, __u64 x, __u64 *now)
{
	__u64 when = 0;
	int handle = bench_wheel_next(w, *now, &when);

	if (handle < 0) {
		*now = when;
		handle = bench_wheel_next(w, *now, &when);
	}
	if (handle < 0)
		return 0;
	bench_wheel_add(w, handle, *now + (x & 0x3ffffff), *now);
	return handle + 1;
}

#ifdef COMMON
/*
 * Fingerprint after fingerprint, in both buckets. The table is the library's, so that both look the same keys up in the same places; which place a fingerprint stands for,
 * the one thing of its layout that this would not have in a table of its own, is asked only where it matches.
 */
SHUNT_FN __u64 *common_table_lookup(struct bench_table *t, const struct bench_key *key, __u64 hash)
{
	__u16 tag = shunt_cuckoo_tag(hash);
	__u32 bucket = hash;

	for (int side = 0; side < 2; side++) {
		union shunt_cuckoo_tags *tags = bench_table_tags(t, bucket);

		for (int lane = 0; lane < SHUNT_CUCKOO_SLOTS; lane++) {
			struct bench_table_entry *e;

			if (tags->one[lane] != tag)
				continue;
			e = bench_table_entry_at(t, bucket << 3 | (lane & 3) << 1 | lane >> 2);	/* the inverse of shunt_cuckoo_lane() */
			if (!__builtin_memcmp(&e->key, key, sizeof(*key)))
				return &e->value;
		}
		bucket = shunt_cuckoo_other(bucket, tag);
	}
	return 0;
}
#define bench_table_find common_table_lookup
#else
#define bench_table_find bench_table_lookup
#endif

SHUNT_FN __u64 bench_table_get(struct bench_table *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 *value = bench_table_find(t, &key, bench_hash(&key));

	return value ? *value : 0;
}

SHUNT_FN int bench_table_fill(struct bench_table *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 value = i + 1;

	return bench_table_insert(t, &key, bench_hash(&key), &value) == SHUNT_CUCKOO_NEW;
}

/* The rest has no common form of the same structure here, or one of its own in common_structures.h. */
#ifndef COMMON
SHUNT_FN int bench_skip_fill(struct bench_skip *s, __u32 i) { return shunt_skip_set(&s->head, SKIP_NODES, bench_key_of(i), i + 1) >= 0; }

/* One lookup of a key that is there: its value. */
SHUNT_FN __u64 bench_skip_get(struct bench_skip *s, __u32 i)
{
	__u64 value = 0;

	return shunt_skip_get(&s->head, SKIP_NODES, bench_key_of(i), &value) ? 0 : value;
}

/* One key that is there gets its value again. */
SHUNT_FN __u64 bench_skip_update(struct bench_skip *s, __u32 i)
{
	return shunt_skip_set(&s->head, SKIP_NODES, bench_key_of(i), i + 1) >= 0 ? i + 1 : 0;
}

/* A flow's set; filters are asked for keys that are there. */
SHUNT_FN __u64 bench_htss_get(struct bench_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_htss_lookup(t, bench_hash(&key));
}

SHUNT_FN int bench_htss_fill(struct bench_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_htss_add(t, bench_hash(&key), BENCH_SET(i)) == SHUNT_HTSS_ADDED;
}

SHUNT_FN __u64 bench_bloom_get(struct bench_bloom *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_bloom_test(f, bench_hash(&key));
}

SHUNT_FN int bench_bloom_fill(struct bench_bloom *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	bench_bloom_add(f, bench_hash(&key));
	return 1;
}

SHUNT_FN __u64 bench_blocked_get(struct bench_blocked *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_blocked_test(f, bench_hash(&key));
}

SHUNT_FN int bench_blocked_fill(struct bench_blocked *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	bench_blocked_add(f, bench_hash(&key));
	return 1;
}

SHUNT_FN __u64 bench_filter_get(struct bench_filter *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_filter_lookup(f, bench_hash(&key));
}

SHUNT_FN int bench_filter_fill(struct bench_filter *f, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return bench_filter_insert(f, bench_hash(&key)) == SHUNT_CUCKOOFILTER_ADDED;
}

/* One more packet of a flow. */
SHUNT_FN __u64 bench_heavy_add(struct bench_heavy *h, __u32 i)
{
	struct bench_key key = bench_flow_of(bench_skewed(i));
	__u64 hash = bench_hash(&key);

	h->state |= 1;
	bench_top_offer(&h->top, &key, hash, shunt_hk_add(h->slot, 2, 10, &h->state, hash));
	return 1;
}

/* What is known of a flow, for who reads the structure, in step of 64. */
SHUNT_FN __u32 bench_heavy_count(struct bench_heavy *h, __u32 i, __u32 step)
{
	struct bench_key key = bench_flow_of(i);

	step &= 63;
	return __builtin_memcmp(&h->top.key[step], &key, sizeof(key)) ? 0 : h->top.count[step];
}
#define BENCH_HEAVY_STEPS 64

/* A value is appended to one list, and the oldest taken from it; lists are half as many as values. */
SHUNT_FN __u64 bench_bucket_turn(struct bench_buckets *b, __u64 x)
{
	__u64 value = 0;

	if (shunt_bucket_push(&b->head, 256, HANDLES, x & 255, x >> 40))
		return 0;
	shunt_bucket_pop(&b->head, 256, HANDLES, x & 255, &value);
	return value;
}

SHUNT_FN int bench_bucket_fill(struct bench_buckets *b, __u32 i) { return !shunt_bucket_push(&b->head, 256, HANDLES, i, i + 1); }

/* The first node of a list goes to its end. */
SHUNT_FN __u64 bench_list_turn(struct bench_list *l)
{
	SHUNT_REF(struct bench_item) ref = shunt_list_pop_front(l, &l->line);

	return ref && !shunt_list_push_back(l, &l->line, ref) ? shunt_at(l, ref)->value : 0;
}

SHUNT_FN int bench_list_fill(struct bench_list *l, __u32 i)
{
	SHUNT_REF(struct bench_item) ref = shunt_alloc(l);

	if (!ref)
		return 0;
	shunt_at(l, ref)->value = i + 1;
	return !shunt_list_push_back(l, &l->line, ref);
}

/* A tree's first node gets a key some way up. */
SHUNT_FN __u64 bench_tree_turn(struct bench_tree *t, __u64 x)
{
	SHUNT_REF(struct bench_leaf) ref = shunt_tree_pop_first(t, &t->root);

	if (!ref)
		return 0;
	shunt_key(shunt_at(t, ref)) += x & 4095;
	return shunt_tree_add(t, &t->root, ref) ? 0 : shunt_at(t, ref)->value;
}

SHUNT_FN __u64 bench_tree_get(struct bench_tree *t, __u32 i)
{
	SHUNT_REF(struct bench_leaf) ref = shunt_tree_find(t, &t->root, bench_key_of(i));

	return ref ? shunt_at(t, ref)->value : 0;
}

SHUNT_FN int bench_tree_fill(struct bench_tree *t, __u32 i, __u64 key)
{
	SHUNT_REF(struct bench_leaf) ref = shunt_alloc(t);

	if (!ref)
		return 0;
	shunt_at(t, ref)->value = i + 1;
	shunt_key(shunt_at(t, ref)) = key;
	return !shunt_tree_add(t, &t->root, ref);
}

/* A table that says of each entry what it is for; what fills a true one is user space's. */
SHUNT_FN __u64 bench_maglev_get(struct bench_maglev *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return shunt_maglev(t->entry, 65537, bench_hash(&key));
}

SHUNT_FN int bench_maglev_fill(struct bench_maglev *t, __u32 i)
{
	if (i > 65536)
		return 0;
	t->entry[i] = i % 100;
	return 1;
}
#endif

#endif
