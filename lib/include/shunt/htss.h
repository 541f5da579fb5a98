/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * htss: which of up to 65535 sets is this key in? A hash table set summary, as the hash-table mode of DPDK's membership library: a
 * signature of 16 bits and the set's number for each key, 16 in a bucket of one cache line, two buckets per key.
 *
 *	SHUNT_HTSS(summary, 12)
 *
 * defines struct summary, of 2^12 buckets (2^0 to 2^20) and so 65536 entries, and summary_add(), summary_put(), summary_lookup() and
 * summary_delete(). Zeroed memory is an empty table. Sets are numbered from 1. Pass any good 64-bit hash of the key (hash.h).
 *
 * When: each key belongs to one set (a flow to its server, an address to its customer), keys are too long or too many to be stored, and a
 * wrong answer now and then is no harm. A key that was never put in is taken for another with p = 32 * load / 2^16, one in 2000 for a
 * full table; then it gets the other's set. A key that was put in is always found, but in competition with those that have the same
 * signature and buckets:
 *   - summary_add() keeps them side by side: a lookup answers with one of them, a deletion takes the named one. Adding a key twice takes two
 *     entries. When both buckets are full it changes nothing and says so: with good hashes not below a load of 85 %.
 *   - summary_put() gives the one entry that has the key's signature the new set, and when both buckets are full it takes the place of another
 *     key, which will not be found any more. A cache, in short. Use the one or the other for a table, not both.
 *
 * Sharing: one writer, which is one CPU or the holder of a lock. Lookups may run beside it; one that comes upon an entry which is being
 * overwritten may get the new key's set for the old key.
 *
 * Cost: one or two cache lines; 10 ns for a lookup that looks into both buckets, 10 ns for putting. 64 bytes per 16 keys. Any kernel.
 */
#ifndef SHUNT_LIB_HTSS_H
#define SHUNT_LIB_HTSS_H

#include "def.h"
#include "bits.h"
#include "match.h"

enum {
	SHUNT_HTSS_ADDED = 0,
	SHUNT_HTSS_CHANGED = 1,	/* put: the key, or one like it, was there; it is in the new set */
	SHUNT_HTSS_EVICTED = 2,	/* put: the key has the place of another one */
	SHUNT_HTSS_FULL = -1,	/* add: both buckets are full; nothing was changed */
	SHUNT_HTSS_SET = -2,	/* set 0 is none, and nothing can be put into it */
};

struct shunt_htss_bucket {
	union shunt_prints print;	/* 0: a free place */
	__u16 set[16];
} __attribute__((aligned(8)));

SHUNT_FN __u16 shunt_htss_print(__u64 hash)
{
	__u16 print = hash >> 48;

	return print ? print : 1;
}

/* A key's other bucket: never the same one, if there are two. */
SHUNT_FN __u32 shunt_htss_other(__u32 bucket, __u16 print)
{
	return bucket ^ (print * 0x5bd1e995U | 1);
}

SHUNT_FN struct shunt_htss_bucket *shunt_htss_at(struct shunt_htss_bucket *table, __u32 log2buckets, __u32 bucket)
{
	return &table[SHUNT_MASK(bucket, (1 << log2buckets) - 1)];
}

/* The lowest of some places; a bucket's bounds for the verifier. */
SHUNT_FN __u32 shunt_htss_place(__u32 places)
{
	return SHUNT_MASK(shunt_ctz32(places), 15);
}

/* Readers find the signature only when the set is there. */
SHUNT_FN void shunt_htss_write(struct shunt_htss_bucket *b, __u32 at, __u16 print, __u16 set)
{
	*(volatile __u16 *)&b->set[at] = set;
	*(volatile __u16 *)&b->print.one[at] = print;
}

SHUNT_FN int shunt_htss_add(struct shunt_htss_bucket *table, __u32 log2buckets, __u64 hash, __u16 set)
{
	__u16 print = shunt_htss_print(hash);
	struct shunt_htss_bucket *b = shunt_htss_at(table, log2buckets, hash);
	struct shunt_htss_bucket *c = shunt_htss_at(table, log2buckets, shunt_htss_other(hash, print));
	__u32 free = shunt_match16x16(b->print.word, 0), more = shunt_match16x16(c->print.word, 0);

	if (!set)
		return SHUNT_HTSS_SET;
	if (shunt_popcount32(more) > shunt_popcount32(free)) {	/* the emptier one: both stay short of full longer */
		b = c;
		free = more;
	}
	if (!free)
		return SHUNT_HTSS_FULL;
	shunt_htss_write(b, shunt_htss_place(free), print, set);
	return SHUNT_HTSS_ADDED;
}

SHUNT_FN int shunt_htss_put(struct shunt_htss_bucket *table, __u32 log2buckets, __u64 hash, __u16 set)
{
	__u16 print = shunt_htss_print(hash);
	__u32 bucket = hash, hits, at;
	struct shunt_htss_bucket *b;
	int out;

	if (!set)
		return SHUNT_HTSS_SET;
#pragma unroll
	for (int side = 0; side < 2; side++) {
		b = shunt_htss_at(table, log2buckets, bucket);
		hits = shunt_match16x16(b->print.word, print);
		if (hits) {
			*(volatile __u16 *)&b->set[shunt_htss_place(hits)] = set;
			return SHUNT_HTSS_CHANGED;
		}
		bucket = shunt_htss_other(bucket, print);
	}
	out = shunt_htss_add(table, log2buckets, hash, set);
	if (out != SHUNT_HTSS_FULL)
		return out;
	b = shunt_htss_at(table, log2buckets, hash);
	at = SHUNT_MASK(hash >> 40, 15);
	*(volatile __u16 *)&b->print.one[at] = 0;
	shunt_htss_write(b, at, print, set);
	return SHUNT_HTSS_EVICTED;
}

SHUNT_FN __u16 shunt_htss_lookup(struct shunt_htss_bucket *table, __u32 log2buckets, __u64 hash)
{
	__u16 print = shunt_htss_print(hash);
	struct shunt_htss_bucket *b = shunt_htss_at(table, log2buckets, hash);
	__u32 hits = shunt_match16x16(b->print.word, print);

	if (!hits) {
		b = shunt_htss_at(table, log2buckets, shunt_htss_other(hash, print));
		hits = shunt_match16x16(b->print.word, print);
		if (!hits)
			return 0;
	}
	return b->set[shunt_htss_place(hits)];
}

SHUNT_FN int shunt_htss_delete(struct shunt_htss_bucket *table, __u32 log2buckets, __u64 hash, __u16 set)
{
	__u16 print = shunt_htss_print(hash);
	__u32 bucket = hash;

#pragma unroll
	for (int side = 0; side < 2; side++) {
		struct shunt_htss_bucket *b = shunt_htss_at(table, log2buckets, bucket);
		__u32 hits = shunt_match16x16(b->print.word, print) & shunt_match16x16((__u64 *)b->set, set);

		if (hits) {
			*(volatile __u16 *)&b->print.one[shunt_htss_place(hits)] = 0;
			return 1;
		}
		bucket = shunt_htss_other(bucket, print);
	}
	return 0;
}

#define SHUNT_HTSS(NAME, LOG2BUCKETS)								\
	_Static_assert((LOG2BUCKETS) >= 0 && (LOG2BUCKETS) <= 20, "2^0 to 2^20 buckets");	\
	struct NAME {										\
		struct shunt_htss_bucket bucket[1 << (LOG2BUCKETS)];				\
	};											\
	/* Put a key into a set: SHUNT_HTSS_ADDED, _FULL or _SET. */				\
	SHUNT_FN int NAME##_add(struct NAME *t, __u64 hash, __u16 set)				\
	{											\
		return shunt_htss_add(t->bucket, LOG2BUCKETS, hash, set);			\
	}											\
	/* Put a key into a set, in any case: SHUNT_HTSS_ADDED, _CHANGED, _EVICTED or _SET. */	\
	SHUNT_FN int NAME##_put(struct NAME *t, __u64 hash, __u16 set)				\
	{											\
		return shunt_htss_put(t->bucket, LOG2BUCKETS, hash, set);			\
	}											\
	/* The key's set, 0 if it is in none. */						\
	SHUNT_FN __u16 NAME##_lookup(struct NAME *t, __u64 hash)				\
	{											\
		return shunt_htss_lookup(t->bucket, LOG2BUCKETS, hash);				\
	}											\
	/* Take a key out of a set: 1, or 0 if it was not in it. */				\
	SHUNT_FN int NAME##_delete(struct NAME *t, __u64 hash, __u16 set)			\
	{											\
		return shunt_htss_delete(t->bucket, LOG2BUCKETS, hash, set);			\
	}

#endif
