/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * cuckoo: a hash table of fixed size in one piece of memory, with two buckets of 16 places per key (blocked cuckoo hashing: Dietzfelbinger
 * and Weidling 2007; tags that lead from one bucket to the other: Fan et al., MemC3, NSDI 2013). A lookup touches two lines of
 * fingerprints at most and compares the whole key where one fits; the table fills to over 95 %.
 *
 *	SHUNT_CUCKOO(fib, struct mac, struct port, 12)
 *
 * defines struct fib with 2^12 buckets and fib_lookup(), fib_insert(), fib_delete(). The key's size is a multiple of 8 without padding.
 * Zeroed memory is an empty table. Pass the same good 64-bit hash for a key to every call.
 *
 * Sharing: lookups may run on any CPU while one CPU (or the holder of one lock) inserts and deletes, if values fit into a word: an
 * entry that moves is in both places for a moment and in none at no time. A lookup may miss a key that moves against its order of
 * reading twice in that time; where this matters, look again. A value that was found and not yet read may be the next key's by then, if its
 * entry moves or is deleted and another takes the place: where this matters, take the lock.
 *
 * Full: an insert looks for a way to a free place over SHUNT_CUCKOO_KICKS entries before it moves any; without one it returns -1 and
 * has changed nothing that can be seen.
 *
 * Cost: a lookup 12 to 19 ns, the more the fuller (docs/bench-lib.md): two lines of fingerprints and an entry. Each entry is key and value,
 * and 2 bytes. The verifier walks 2,800 instructions for a lookup and 65,000 to 250,000 of its million for an insert, the more it knows of
 * the hash or may take for different: use that from one place of a program. Any kernel.
 */
#ifndef SHUNT_LIB_CUCKOO_H
#define SHUNT_LIB_CUCKOO_H

#include "def.h"
#include "bits.h"
#include "hash.h"
#include "match.h"
#include "topk.h" /* shunt_same_words */

#define SHUNT_CUCKOO_SLOTS 16
#ifndef SHUNT_CUCKOO_KICKS
#define SHUNT_CUCKOO_KICKS 24
#endif

enum {
	SHUNT_CUCKOO_FULL = -1,		/* no way to a free place was found; nothing was changed */
	SHUNT_CUCKOO_NEW = 0,		/* the key was not there before */
	SHUNT_CUCKOO_REPLACED = 1,	/* it was, and has the new value */
};

/* 16 bits of a hash, never 0: 0 marks a free place. */
SHUNT_FN __u16 shunt_cuckoo_tag(__u64 hash)
{
	__u16 tag = hash >> 48;

	return tag ? tag : 1;
}

/* The other bucket of an entry in this one: the tag alone decides how far away it is, so that an entry can be moved without its key. */
SHUNT_FN __u32 shunt_cuckoo_other(__u32 bucket, __u16 tag)
{
	return bucket ^ tag * 0x5bd1e995U;
}

#define SHUNT_CUCKOO(NAME, KEY, VALUE, LOG2BUCKETS)						\
	_Static_assert(sizeof(KEY) % 8 == 0 && sizeof(KEY) > 0, "the key's size has to be a multiple of 8");	\
	_Static_assert(SHUNT_CUCKOO_KICKS >= 1 && SHUNT_CUCKOO_KICKS <= 64, "a way has 1 to 64 entries");	\
	_Static_assert((LOG2BUCKETS) >= 0 && (LOG2BUCKETS) <= 20, "2^0 to 2^20 buckets");	\
	struct NAME##_bucket {									\
		union shunt_prints tag;								\
		struct { KEY key; VALUE value; } entry[SHUNT_CUCKOO_SLOTS];			\
	};											\
	struct NAME {										\
		struct NAME##_bucket bucket[1 << (LOG2BUCKETS)];				\
	};											\
	/* The place of a key in a bucket, -1 if it is not there. */				\
	SHUNT_FN int NAME##_place(struct NAME##_bucket *b, const KEY *key, __u16 tag)		\
	{											\
		__u32 hits = shunt_match16x16(b->tag.word, tag);					\
		for (int turn = 0; hits && turn < SHUNT_CUCKOO_SLOTS; turn++) {			\
			__u32 at = SHUNT_MASK(shunt_ctz32(hits), SHUNT_CUCKOO_SLOTS - 1);	\
			if (shunt_same_words(&b->entry[at].key, key, sizeof(KEY)))		\
				return at;							\
			hits &= hits - 1;							\
		}										\
		return -1;									\
	}											\
	SHUNT_FN struct NAME##_bucket *NAME##_bucket_at(struct NAME *t, __u32 bucket)		\
	{											\
		return &t->bucket[SHUNT_MASK(bucket, (1 << (LOG2BUCKETS)) - 1)];		\
	}											\
	/* The key's value, to read or to change; NULL if it is not there. */			\
	SHUNT_FN VALUE *NAME##_lookup(struct NAME *t, const KEY *key, __u64 hash)		\
	{											\
		__u16 tag = shunt_cuckoo_tag(hash);						\
		struct NAME##_bucket *b = NAME##_bucket_at(t, hash);				\
		int at = NAME##_place(b, key, tag);						\
		if (at < 0) {									\
			b = NAME##_bucket_at(t, shunt_cuckoo_other(hash, tag));			\
			at = NAME##_place(b, key, tag);						\
			if (at < 0)								\
				return 0;							\
		}										\
		return &b->entry[SHUNT_MASK(at, SHUNT_CUCKOO_SLOTS - 1)].value;			\
	}											\
	SHUNT_FN void NAME##_put(struct NAME##_bucket *b, __u32 at, const KEY *key, const VALUE *value, __u16 tag)	\
	{											\
		at = SHUNT_MASK(at, SHUNT_CUCKOO_SLOTS - 1);					\
		b->entry[at].key = *key;							\
		b->entry[at].value = *value;							\
		asm volatile("" ::: "memory");							\
		*(volatile __u16 *)&b->tag.one[at] = tag;						\
	}											\
	/* Insert or replace: SHUNT_CUCKOO_NEW, _REPLACED or _FULL. */				\
	SHUNT_FN int NAME##_insert(struct NAME *t, const KEY *key, __u64 hash, const VALUE *value)	\
	{											\
		__u32 way[SHUNT_CUCKOO_KICKS]; /* bucket and place of the entries to move, first to last */	\
		__u16 tag = shunt_cuckoo_tag(hash);						\
		VALUE *old = NAME##_lookup(t, key, hash);					\
		__u32 bucket = hash, n, at;							\
		if (old) {									\
			*old = *value;								\
			return SHUNT_CUCKOO_REPLACED;						\
		}										\
		for (int side = 0; side < 2; side++) {						\
			struct NAME##_bucket *b = NAME##_bucket_at(t, bucket);			\
			__u32 free = shunt_match16x16(b->tag.word, 0);				\
			if (free) {								\
				NAME##_put(b, shunt_ctz32(free), key, value, tag);		\
				return SHUNT_CUCKOO_NEW;					\
			}									\
			bucket = shunt_cuckoo_other(bucket, tag);				\
		}										\
		/* The verifier is to take every length of the way for the same: it knows no value here, then or later. */	\
		for (n = 0; n < SHUNT_CUCKOO_KICKS; n++) {					\
			way[n] = 0;								\
			SHUNT_HIDE(way[n]);							\
		}										\
		for (n = 0; n < SHUNT_CUCKOO_KICKS; n++) {					\
			struct NAME##_bucket *b = NAME##_bucket_at(t, bucket);			\
			/* Any place is as good as another: the hash and the turn choose. */	\
			at = SHUNT_MASK(shunt_hash_mix(hash + n) >> 20, SHUNT_CUCKOO_SLOTS - 1);	\
			way[n] = SHUNT_MASK(bucket, (1 << (LOG2BUCKETS)) - 1) << 4 | at;	\
			bucket = shunt_cuckoo_other(bucket, b->tag.one[at]);		\
			if (shunt_match16x16(NAME##_bucket_at(t, bucket)->tag.word, 0))		\
				break;								\
		}										\
		SHUNT_HIDE(n);									\
		if (n >= SHUNT_CUCKOO_KICKS)							\
			return SHUNT_CUCKOO_FULL;						\
		/*										\
		 * From the last to the first, each entry moves into its other bucket, where a place is free by now. A way that meets	\
		 * itself may find none there: the moves made so far were good ones, only the new key has no place yet.	\
		 */										\
		for (int i = SHUNT_CUCKOO_KICKS - 1; i >= 0; i--) {				\
			struct NAME##_bucket *from, *to;					\
			__u32 free;								\
			__u16 moved;								\
			if (i > (int)n)								\
				continue;							\
			from = NAME##_bucket_at(t, way[i] >> 4);				\
			at = SHUNT_MASK(way[i], SHUNT_CUCKOO_SLOTS - 1);			\
			moved = from->tag.one[at];					\
			if (!moved)								\
				continue;							\
			to = NAME##_bucket_at(t, shunt_cuckoo_other(way[i] >> 4, moved));	\
			free = shunt_match16x16(to->tag.word, 0);					\
			if (!free)								\
				return SHUNT_CUCKOO_FULL;					\
			NAME##_put(to, shunt_ctz32(free), &from->entry[at].key, &from->entry[at].value, moved);	\
			*(volatile __u16 *)&from->tag.one[at] = 0;					\
		}										\
		{										\
			struct NAME##_bucket *b = NAME##_bucket_at(t, way[0] >> 4);		\
			NAME##_put(b, way[0], key, value, tag);					\
		}										\
		return SHUNT_CUCKOO_NEW;							\
	}											\
	/* Whether the key was there; it no longer is. */					\
	SHUNT_FN int NAME##_delete(struct NAME *t, const KEY *key, __u64 hash)			\
	{											\
		__u16 tag = shunt_cuckoo_tag(hash);						\
		__u32 bucket = hash;								\
		for (int side = 0; side < 2; side++) {						\
			struct NAME##_bucket *b = NAME##_bucket_at(t, bucket);			\
			int at = NAME##_place(b, key, tag);					\
			if (at >= 0) {								\
				*(volatile __u16 *)&b->tag.one[SHUNT_MASK(at, SHUNT_CUCKOO_SLOTS - 1)] = 0;	\
				return 1;							\
			}									\
			bucket = shunt_cuckoo_other(bucket, tag);				\
		}										\
		return 0;									\
	}

#endif
