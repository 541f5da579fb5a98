/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * skiplist: an ordered store of 64-bit keys and values: find, insert or update, delete, lower bound, walk in order.
 *
 * When: an order is asked for (next key above, ranges, smallest) and keys come and go. If only equality is asked, a hash is faster. A
 * red-black tree (tree.h) has a guaranteed depth and larger updates; a skip list's depth is a matter of chance, not of the order in
 * which keys come. Source: Pugh, "Skip lists: a probabilistic alternative to balanced trees", 1990, with p = 1/4.
 *
 * All nodes lie in one map value. A reference is a node's distance in bytes from the first one, so a hop is two masks and two loads and
 * no map lookup, and a node has its key beside its links, so a hop touches one cache line (give the map BPF_F_MMAPABLE: then its
 * memory begins at a page; otherwise nodes lie across two lines). Of 256 nodes 255 are in four levels at most and take half a line; the
 * others, the tall ones, a whole one. Low nodes are taken from the front and tall ones from the back, so what is used lies close together, and
 * caches hold twice as much of it as of nodes of one size. Node 0 is the head and the end of every level; zeroed memory is an empty list.
 *
 * Every search ends: after SHUNT_SKIP_TURNS hops on a level it gives up, answers -ELOOP, and has changed nothing. The mean is 3, and
 * more than 96 have a chance of 10^-12 if levels are not known to who chooses keys: seed `random` if an enemy may.
 *
 * Sharing: one CPU at a time, that is per-CPU maps or a bpf_spin_lock around each call (no call is made inside, so the lock may be held
 * on every kernel). A reader beside a writer stays inside the memory and comes to an end, but may miss keys or read another's value.
 *
 * Cost: 11 instructions per hop. 64 bytes per key, of which 32 are used. The verifier walks about 21,000 instructions per use. Kernel 6.1.
 */
#ifndef SHUNT_LIB_SKIPLIST_H
#define SHUNT_LIB_SKIPLIST_H

#include "def.h"
#include "bits.h"
#include "rand.h"

#define SHUNT_SKIP_LEVELS 12
#define SHUNT_SKIP_LOW 4	/* a low node is in so many levels at most */
#define SHUNT_SKIP_TALL 1	/* in a reference: the node is a tall one */
#define SHUNT_SKIP_TURNS 96

#ifndef ENOENT
#define ENOENT 2
#endif
#ifndef ENOSPC
#define ENOSPC 28
#endif
#ifndef ELOOP
#define ELOOP 40
#endif

/* Of a low node the first half is there, with as many links as it has levels. */
struct shunt_skip_node {
	__u64 key, value;
	__u32 next[SHUNT_SKIP_LEVELS];
};

_Static_assert(sizeof(struct shunt_skip_node) == 64, "a tall node is one cache line");
_Static_assert(__builtin_offsetof(struct shunt_skip_node, next[SHUNT_SKIP_LOW]) == 32, "a low node is half of one");

struct shunt_skip {
	__u64 random;				/* of the levels; may be set before the first insertion */
	__u32 used;				/* how many keys there are */
	__u32 low, tall;			/* bytes of nodes that have been used before, from the front and from the back */
	__u32 free_low, free_tall;		/* nodes given back, chained by next[0] */
	__u32 unused[9];			/* the nodes begin at a cache line */
};

_Static_assert(sizeof(struct shunt_skip) == 64, "nodes begin at a cache line");

/* struct NAME, a skip list of SIZE - 1 keys; SIZE is a power of two from 2 to 2^20. The last node is there since a low one is read like a tall one. */
#define SHUNT_SKIPLIST(name, size)					\
	SHUNT_ASSERT_POW2(size);					\
	_Static_assert((size) >= 2 && (size) <= 1 << 20, "2 to 2^20 nodes");	\
	struct name {							\
		struct shunt_skip head;					\
		struct shunt_skip_node node[(size) + 1];		\
	}

/* The node of a reference; of 0, which is none, the head. */
SHUNT_FN struct shunt_skip_node *shunt_skip_at(struct shunt_skip *s, __u32 size, __u32 ref)
{
	SHUNT_CHECK(SHUNT_IS_POW2(size) && size >= 2 && size <= 1 << 20, "2 to 2^20 nodes, a power of two known when it is compiled");
	return (void *)(s + 1) + SHUNT_MASK(ref, size * 64 - 32);
}

/*
 * The first node whose key is not less than `key`, 0 if there is none; path[], if not NULL, gets for each level the last node before it.
 * *ended says whether the search came to its end. Levels are unrolled: a loop of its own for each is what verifiers follow in linear time
 * (with one loop over hops and levels both, they set too few marks to see that ways have met again).
 */
SHUNT_FN __u32 shunt_skip_seek(struct shunt_skip *s, __u32 size, __u64 key, __u32 *path, int *ended)
{
	__u32 at = 0, next = 0;

	*ended = 0;
#pragma unroll
	for (int level = SHUNT_SKIP_LEVELS - 1; level >= 0; level--) {
		int turn;

#pragma nounroll
		for (turn = 0; turn < SHUNT_SKIP_TURNS; turn++) {
			next = shunt_skip_at(s, size, at)->next[level];
			if (!next || shunt_skip_at(s, size, next)->key >= key)
				break;
			at = next;
		}
		if (turn == SHUNT_SKIP_TURNS)
			return 0;
		if (path) /* a value of its own: else newer verifiers walk every pattern of levels that have the same node */
			path[level] = SHUNT_MASK(at, size * 64 - 32);
	}
	*ended = 1;
	return next;
}

/* The value of a key into *value: 0, -ENOENT if there is no such key, or -ELOOP; then *value is as it was. */
SHUNT_FN int shunt_skip_get(struct shunt_skip *s, __u32 size, __u64 key, __u64 *value)
{
	int ended;
	__u32 ref = shunt_skip_seek(s, size, key, (void *)0, &ended);
	struct shunt_skip_node *node = shunt_skip_at(s, size, ref);

	if (!ended)
		return -ELOOP;
	if (!ref || node->key != key)
		return -ENOENT;
	*value = node->value;
	return 0;
}

/* The reference of the first key that is not less than `key`, 0 if there is none (or the search did not end). */
SHUNT_FN __u32 shunt_skip_lower(struct shunt_skip *s, __u32 size, __u64 key)
{
	int ended;

	return shunt_skip_seek(s, size, key, (void *)0, &ended);
}

/* The reference of the key after that of a reference, or of the smallest one after 0; 0 after the last. */
SHUNT_FN __u32 shunt_skip_next(struct shunt_skip *s, __u32 size, __u32 ref)
{
	return shunt_skip_at(s, size, ref)->next[0];
}

/* The height of a new node, 1 to SHUNT_SKIP_LEVELS: each level above the first has a quarter of the nodes of the one below. */
SHUNT_FN __u32 shunt_skip_height(struct shunt_skip *s)
{
	__u64 r;

	if (!s->random)
		s->random = 0x9e3779b97f4a7c15ULL;
	/* The multiplication leaves the lowest bits the worst. A bit above ends the count. */
	r = shunt_rand64(&s->random) >> 32 | 1ULL << (2 * SHUNT_SKIP_LEVELS - 2);
	return shunt_ctz64(r) / 2 + 1;
}

/*
 * A node that nobody has, for a key that is one of size - 1 at most: tall if it is asked for and to be had, else low. Low ones are always to be
 * had: a new one is taken only if all that there were are in use. They have half of the room, and tall ones the rest, many times what
 * they need, unless there are very few nodes.
 */
SHUNT_FN __u32 shunt_skip_take(struct shunt_skip *s, __u32 size, int tall)
{
	__u32 ref;

	if (tall) {
		ref = s->free_tall;
		if (ref) {
			s->free_tall = shunt_skip_at(s, size, ref)->next[0];
			return ref;
		}
		if (s->tall + 64 <= size * 32 - 32) {
			s->tall += 64;
			return (size * 64 - s->tall) | SHUNT_SKIP_TALL;
		}
	}
	ref = s->free_low;
	if (ref) {
		s->free_low = shunt_skip_at(s, size, ref)->next[0];
		return ref;
	}
	s->low += 32;
	return s->low + 32; /* behind the head, which is a tall one */
}

/* Gives a key this value: 1 if the key is new, 0 if it was there, -ENOSPC if it is new and there are size - 1 keys, or -ELOOP. */
SHUNT_FN int shunt_skip_set(struct shunt_skip *s, __u32 size, __u64 key, __u64 value)
{
	int ended;
	__u32 path[SHUNT_SKIP_LEVELS];
	__u32 ref = shunt_skip_seek(s, size, key, path, &ended), height;
	struct shunt_skip_node *node = shunt_skip_at(s, size, ref);

	if (!ended)
		return -ELOOP;
	if (ref && node->key == key) {
		node->value = value;
		return 0;
	}
	if (s->used >= size - 1)
		return -ENOSPC;
	height = shunt_skip_height(s);
	ref = shunt_skip_take(s, size, height > SHUNT_SKIP_LOW);
	if (!(ref & SHUNT_SKIP_TALL) && height > SHUNT_SKIP_LOW)
		height = SHUNT_SKIP_LOW;
	node = shunt_skip_at(s, size, ref);
	node->key = key;
	node->value = value;
#pragma unroll
	for (__u32 level = 0; level < SHUNT_SKIP_LEVELS; level++) {
		if (level < height) {
			__u32 *before = &shunt_skip_at(s, size, path[level])->next[level];

			node->next[level] = *before;
			*before = ref;
		}
	}
	s->used++;
	return 1;
}

/* Deletes a key: 0, -ENOENT if it is not there, or -ELOOP. */
SHUNT_FN int shunt_skip_delete(struct shunt_skip *s, __u32 size, __u64 key)
{
	int ended;
	__u32 path[SHUNT_SKIP_LEVELS];
	__u32 ref = shunt_skip_seek(s, size, key, path, &ended);
	struct shunt_skip_node *node = shunt_skip_at(s, size, ref);

	if (!ended)
		return -ELOOP;
	if (!ref || node->key != key)
		return -ENOENT;
#pragma unroll
	for (int level = 0; level < SHUNT_SKIP_LEVELS; level++) {
		__u32 *before = &shunt_skip_at(s, size, path[level])->next[level];

		if (*before == ref)
			*before = node->next[level];
	}
	if (ref & SHUNT_SKIP_TALL) {
		node->next[0] = s->free_tall;
		s->free_tall = ref;
	} else {
		node->next[0] = s->free_low;
		s->free_low = ref;
	}
	s->used--;
	return 0;
}

#endif
