/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * cuckoofilter: was this key added and not deleted since? "No" is certain, "yes" is wrong with p = 8 * load / 2^16, one in 8600 for a
 * full filter: the cuckoo filter (Fan et al., CoNEXT 2014) with fingerprints of 16 bits, 4 in a bucket. A bucket is one word.
 *
 *	SHUNT_CUCKOOFILTER(known, 14)
 *
 * defines struct known, of 2^14 buckets (2^0 to 2^24) and so 65536 places, and known_insert(), known_lookup() and known_delete(). Zeroed
 * memory is an empty filter. Pass any good 64-bit hash of the key (hash.h), seeded if keys may be chosen by an enemy.
 *
 * When: bloom.h, but keys also leave; or at such a low error it takes less memory (17 bits per key at 95 % load; Bloom 19 bits and 13
 * accesses).
 *
 * Full: an insert moves up to SHUNT_CUCKOOFILTER_KICKS fingerprints out of its way. The one that is then left over is kept beside the
 * table, where lookups and deletions find it, and further inserts are refused until a deletion has made room: nothing that was taken in is
 * lost. This happens at about 95 %; at 85 % if many keys are there several times.
 *
 * Deleting a key that was never inserted may take another one's fingerprint out, as in every filter that can delete: delete what you
 * inserted. A key inserted twice has two fingerprints, and so on up to four; a fifth is refused, since buckets that are full of one key
 * cannot be used by others, who then find the filter full when it is not. Look a key up before inserting it if it may be there.
 *
 * Sharing: one CPU, or the holder of a lock (no calls are made). A lookup beside a writer does not see a key that is being moved.
 *
 * Cost: a lookup reads two words: 4 ns; inserting 15 ns while there is room, deleting 12. Any kernel that verifies loops (5.3).
 */
#ifndef SHUNT_LIB_CUCKOOFILTER_H
#define SHUNT_LIB_CUCKOOFILTER_H

#include "def.h"
#include "bits.h"
#include "match.h"

#ifndef SHUNT_CUCKOOFILTER_KICKS
#define SHUNT_CUCKOOFILTER_KICKS 128
#endif

struct shunt_cuckoofilter {
	__u32 homeless;		/* bucket of the fingerprint that found no place */
	__u16 print;		/* it, or 0: there is none */
	__u16 retry;		/* something was deleted since it found none */
	__u32 turn;		/* chooses who has to move */
	__u32 count;		/* fingerprints in the table, with the homeless one */
};

enum {
	SHUNT_CUCKOOFILTER_ADDED = 0,
	SHUNT_CUCKOOFILTER_FULL = -1,	/* nothing was changed, except that fingerprints may have moved */
	SHUNT_CUCKOOFILTER_OFTEN = -2,	/* the key, or one like it, is there four times; nothing was changed */
};

SHUNT_FN __u16 shunt_cuckoofilter_print(__u64 hash)
{
	__u16 print = hash >> 48;

	return print ? print : 1;
}

/* A fingerprint's other bucket: never the same one, if there are two. */
SHUNT_FN __u32 shunt_cuckoofilter_other(__u32 bucket, __u16 print)
{
	return bucket ^ (print * 0x5bd1e995U | 1);
}

SHUNT_FN __u64 *shunt_cuckoofilter_at(__u64 *table, __u32 log2buckets, __u32 bucket)
{
	return &table[SHUNT_MASK(bucket, (1 << log2buckets) - 1)];
}

/* Into a free place of the bucket, if it has one. */
SHUNT_FN int shunt_cuckoofilter_place(__u64 *bucket, __u16 print)
{
	__u64 word = *bucket, free = shunt_zero16(word);

	if (!free)
		return 0;
	*bucket = word | (__u64)print << (shunt_ctz64(free) & 48);
	return 1;
}

/* Find a place for a fingerprint, moving others; what is left over at the end becomes homeless. */
SHUNT_FN int shunt_cuckoofilter_settle(struct shunt_cuckoofilter *f, __u64 *table, __u32 log2buckets, __u32 bucket, __u16 print)
{
	__u32 turn = f->turn;
	int n;

	f->print = 0;
	if (shunt_cuckoofilter_place(shunt_cuckoofilter_at(table, log2buckets, bucket), print))
		return 1;
	bucket = shunt_cuckoofilter_other(bucket, print);
	if (shunt_cuckoofilter_place(shunt_cuckoofilter_at(table, log2buckets, bucket), print))
		return 1;
#pragma clang loop unroll(disable)
	for (n = 0; n < SHUNT_CUCKOOFILTER_KICKS; n++) {
		__u64 *word = shunt_cuckoofilter_at(table, log2buckets, bucket);
		__u32 shift = ++turn * 0x9e3779b9U >> 30 << 4;
		__u16 moved = *word >> shift;

		*word ^= (__u64)(print ^ moved) << shift;
		print = moved;
		bucket = shunt_cuckoofilter_other(bucket, print);
		if (shunt_cuckoofilter_place(shunt_cuckoofilter_at(table, log2buckets, bucket), print))
			break;
	}
	f->turn = turn;
	if (n < SHUNT_CUCKOOFILTER_KICKS)
		return 1;
	f->homeless = bucket & ((1U << log2buckets) - 1);
	f->print = print;
	f->retry = 0;
	return 0;
}

SHUNT_FN int shunt_cuckoofilter_insert(struct shunt_cuckoofilter *f, __u64 *table, __u32 log2buckets, __u64 hash)
{
	__u16 print = shunt_cuckoofilter_print(hash);
	__u64 want = shunt_lanes16(print), near, far;

	if (f->print && (!f->retry || !shunt_cuckoofilter_settle(f, table, log2buckets, f->homeless, f->print)))
		return SHUNT_CUCKOOFILTER_FULL;
	near = shunt_zero16(*shunt_cuckoofilter_at(table, log2buckets, hash) ^ want);
	far = shunt_zero16(*shunt_cuckoofilter_at(table, log2buckets, shunt_cuckoofilter_other(hash, print)) ^ want);
	if (shunt_popcount64(near | (log2buckets ? far >> 1 : 0)) >= 4)
		return SHUNT_CUCKOOFILTER_OFTEN;
	f->count++;
	shunt_cuckoofilter_settle(f, table, log2buckets, hash, print);
	return SHUNT_CUCKOOFILTER_ADDED;
}

/* Whether the homeless fingerprint is the one with this number, from one of these buckets. */
SHUNT_FN int shunt_cuckoofilter_is_homeless(struct shunt_cuckoofilter *f, __u32 log2buckets, __u32 bucket, __u16 print)
{
	__u32 mask = (1U << log2buckets) - 1, far = f->homeless ^ bucket;

	return f->print == print && (!(far & mask) || !(shunt_cuckoofilter_other(far, print) & mask));
}

SHUNT_FN int shunt_cuckoofilter_lookup(struct shunt_cuckoofilter *f, __u64 *table, __u32 log2buckets, __u64 hash)
{
	__u16 print = shunt_cuckoofilter_print(hash);
	__u64 want = shunt_lanes16(print);
	__u64 near = *shunt_cuckoofilter_at(table, log2buckets, hash);
	__u64 far = *shunt_cuckoofilter_at(table, log2buckets, shunt_cuckoofilter_other(hash, print));

	return (shunt_zero16(near ^ want) | shunt_zero16(far ^ want)) != 0 || shunt_cuckoofilter_is_homeless(f, log2buckets, hash, print);
}

SHUNT_FN int shunt_cuckoofilter_delete(struct shunt_cuckoofilter *f, __u64 *table, __u32 log2buckets, __u64 hash)
{
	__u16 print = shunt_cuckoofilter_print(hash);
	__u64 want = shunt_lanes16(print);
	__u32 bucket = hash;

	/* The homeless one first: then inserts go on at once. */
	if (shunt_cuckoofilter_is_homeless(f, log2buckets, bucket, print)) {
		f->print = 0;
		f->count--;
		return 1;
	}
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__u64 *word = shunt_cuckoofilter_at(table, log2buckets, bucket), hits = shunt_zero16(*word ^ want);

		if (hits) {
			*word &= ~(0xffffULL << (shunt_ctz64(hits) & 48));
			f->count--;
			f->retry = 1;
			return 1;
		}
		bucket = shunt_cuckoofilter_other(bucket, print);
	}
	return 0;
}

#define SHUNT_CUCKOOFILTER(NAME, LOG2BUCKETS)							\
	_Static_assert((LOG2BUCKETS) >= 0 && (LOG2BUCKETS) <= 24, "2^0 to 2^24 buckets");	\
	struct NAME {										\
		struct shunt_cuckoofilter f;							\
		__u64 bucket[1 << (LOG2BUCKETS)];						\
	};											\
	/* SHUNT_CUCKOOFILTER_ADDED, _FULL or _OFTEN. */					\
	SHUNT_FN int NAME##_insert(struct NAME *n, __u64 hash)					\
	{											\
		return shunt_cuckoofilter_insert(&n->f, n->bucket, LOG2BUCKETS, hash);		\
	}											\
	/* 1: the key is there, probably; 0: it is not. */					\
	SHUNT_FN int NAME##_lookup(struct NAME *n, __u64 hash)					\
	{											\
		return shunt_cuckoofilter_lookup(&n->f, n->bucket, LOG2BUCKETS, hash);		\
	}											\
	/* Whether there was one to delete. */							\
	SHUNT_FN int NAME##_delete(struct NAME *n, __u64 hash)					\
	{											\
		return shunt_cuckoofilter_delete(&n->f, n->bucket, LOG2BUCKETS, hash);		\
	}

#endif
