/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * cuckoo: a hash table of fixed size in one piece of memory, with two buckets of 8 places per key (blocked cuckoo hashing: Dietzfelbinger
 * and Weidling 2007; tags that lead from one bucket to the other: Fan et al., MemC3, NSDI 2013). A lookup compares the fingerprints of both
 * buckets at once, so that which of them has the key is no branch, and the whole key where one fits; the table fills to over 95 %.
 * Fingerprints lie together, 2 bytes for each place: a table's stay in the first cache when its entries do not.
 *
 *	SHUNT_CUCKOO(fib, struct mac, struct port, 12)
 *
 * defines struct fib with 16 * 2^12 places and fib_lookup(), fib_insert(), fib_delete(). The key's size is a multiple of 8 without padding.
 * Zeroed memory is an empty table. Pass the same good 64-bit hash for a key to every call.
 *
 * Sharing: lookups may run on any CPU while one CPU (or the holder of one lock) inserts and deletes, if values fit into a word: an
 * entry that moves is in both places for a moment and in none at no time. A lookup may miss a key that moves against its order of
 * reading in that time; where this matters, look again. A value that was found and not yet read may be the next key's by then, if its
 * entry moves or is deleted and another takes the place: where this matters, take the lock.
 *
 * Full: an insert looks for a way to a free place over SHUNT_CUCKOO_KICKS entries before it moves any; without one it returns -1 and
 * has changed nothing that can be seen.
 *
 * Cost: docs/bench-lib.md: a lookup costs about the same at every load: two lines of fingerprints and an entry.
 * Each entry is key and value, and 2 bytes. The verifier walks some hundred instructions for a lookup and up to 40,000 of its million for
 * an insert, with loops of SHUNT_CUCKOO_KICKS turns: use that from one place of a program. Any kernel.
 */
#ifndef SHUNT_LIB_CUCKOO_H
#define SHUNT_LIB_CUCKOO_H

#include "def.h"
#include "bits.h"
#include "hash.h"
#include "match.h"
#include "topk.h" /* shunt_same_words */

#define SHUNT_CUCKOO_SLOTS 8
#ifndef SHUNT_CUCKOO_KICKS
#define SHUNT_CUCKOO_KICKS 12
#endif

enum {
	SHUNT_CUCKOO_FULL = -1,		/* no way to a free place was found; nothing was changed */
	SHUNT_CUCKOO_NEW = 0,		/* the key was not there before */
	SHUNT_CUCKOO_REPLACED = 1,	/* it was, and has the new value */
};

/* 15 bits of a hash, never 0: 0 marks a free place. */
SHUNT_FN __u16 shunt_cuckoo_tag(__u64 hash)
{
	__u16 tag = hash >> 49;

	return tag ? tag : 1;
}

/* The other bucket of an entry in this one: the tag alone decides how far away it is, so that an entry can be moved without its key. */
SHUNT_FN __u32 shunt_cuckoo_other(__u32 bucket, __u16 tag)
{
	return bucket ^ tag * 0x5bd1e995U;
}

/* The fingerprints of a bucket. That of place i is one[shunt_cuckoo_lane(i)]: so a hit's number tells side and place by a shift. */
union shunt_cuckoo_tags {
	__u64 word[2];
	__u16 one[SHUNT_CUCKOO_SLOTS];
};

SHUNT_FN __u32 shunt_cuckoo_lane(__u32 place) { return (place & 1) << 2 | (place >> 1 & 3); }

/* Where the tag is among two buckets: shunt_hit15() of these is twice the place, plus one if it is the second bucket's. */
SHUNT_FN __u64 shunt_cuckoo_hits(const union shunt_cuckoo_tags *one, const union shunt_cuckoo_tags *two, __u16 tag)
{
	__u64 word[4] = { one->word[0], two->word[0], one->word[1], two->word[1] };

	return shunt_hits15x16(word, tag);
}

/* The place in the whole table that a hit stands for. */
SHUNT_FN __u64 shunt_cuckoo_place(__u64 one, __u64 two, __u64 hit)
{
	__u64 second = 0 - (hit & 1);

	SHUNT_HIDE(second);	/* or it would be a branch, and a coin's throw */
	return (one ^ ((one ^ two) & second)) << 3 | hit >> 1;
}

/* Whether a bucket has a free place, 1 or 0: each lane that is not has its top bit set by the sum. */
SHUNT_FN __u64 shunt_cuckoo_room(const union shunt_cuckoo_tags *tags)
{
	const __u64 low = 0x7fff7fff7fff7fffULL;
	__u64 free = ~((tags->word[0] + low) & (tags->word[1] + low)) & ~low;

	free = -free >> 63 | free >> 63;
	SHUNT_HIDE(free);	/* or it would be a branch */
	return free;
}

#define SHUNT_CUCKOO(NAME, KEY, VALUE, LOG2)						\
	_Static_assert(sizeof(KEY) % 8 == 0 && sizeof(KEY) > 0, "the key's size has to be a multiple of 8");	\
	_Static_assert(SHUNT_CUCKOO_KICKS >= 1 && SHUNT_CUCKOO_KICKS <= 64, "a way has 1 to 64 entries");	\
	_Static_assert((LOG2) >= 0 && (LOG2) <= 20, "16 times 2^0 to 2^20 places");		\
	enum { NAME##_buckets = 2 << (LOG2), NAME##_places = 16 << (LOG2) };			\
	struct NAME##_entry { KEY key; VALUE value; };						\
	struct NAME {										\
		union shunt_cuckoo_tags tag[2 << (LOG2)];					\
		struct NAME##_entry entry[16 << (LOG2)];					\
	};											\
	SHUNT_FN union shunt_cuckoo_tags *NAME##_tags(struct NAME *t, __u64 bucket)		\
	{											\
		return &t->tag[SHUNT_MASK(bucket, NAME##_buckets - 1)];				\
	}											\
	SHUNT_FN struct NAME##_entry *NAME##_entry_at(struct NAME *t, __u64 place)		\
	{											\
		return &t->entry[SHUNT_MASK(place, NAME##_places - 1)];				\
	}											\
	/* The tag of a place of the whole table. */						\
	SHUNT_FN __u16 *NAME##_tag_at(struct NAME *t, __u64 place)				\
	{											\
		return &NAME##_tags(t, place >> 3)->one[SHUNT_MASK(shunt_cuckoo_lane(place), SHUNT_CUCKOO_SLOTS - 1)];	\
	}											\
	/* A key's entry and its place in the whole table; NULL if it is not there. */		\
	SHUNT_FN struct NAME##_entry *NAME##_find(struct NAME *t, const KEY *key, __u64 hash, __u64 *place)	\
	{											\
		__u16 tag = shunt_cuckoo_tag(hash);						\
		__u64 one = SHUNT_MASK(hash, NAME##_buckets - 1);				\
		__u64 two = SHUNT_MASK(shunt_cuckoo_other(hash, tag), NAME##_buckets - 1);	\
		__u64 hits = shunt_cuckoo_hits(&t->tag[one], &t->tag[two], tag);		\
		for (int turn = 0; hits && turn < 2 * SHUNT_CUCKOO_SLOTS; turn++) {		\
			struct NAME##_entry *e;							\
			*place = shunt_cuckoo_place(one, two, shunt_hit15(hits));		\
			e = NAME##_entry_at(t, *place);						\
			if (__builtin_expect(shunt_same_words(&e->key, key, sizeof(KEY)), 1))	\
				return e;							\
			hits &= hits - 1;							\
		}										\
		return 0;									\
	}											\
	/* The key's value, to read or to change; NULL if it is not there. */			\
	SHUNT_FN VALUE *NAME##_lookup(struct NAME *t, const KEY *key, __u64 hash)		\
	{											\
		__u64 place;									\
		struct NAME##_entry *e = NAME##_find(t, key, hash, &place);			\
		return e ? &e->value : 0;							\
	}											\
	SHUNT_FN void NAME##_put(struct NAME *t, __u64 place, const KEY *key, const VALUE *value, __u16 tag)	\
	{											\
		struct NAME##_entry *e = NAME##_entry_at(t, place);				\
		e->key = *key;									\
		e->value = *value;								\
		asm volatile("" ::: "memory");							\
		*(volatile __u16 *)NAME##_tag_at(t, place) = tag;				\
	}											\
	/* Insert or replace: SHUNT_CUCKOO_NEW, _REPLACED or _FULL. */				\
	SHUNT_FN int NAME##_insert(struct NAME *t, const KEY *key, __u64 hash, const VALUE *value)	\
	{											\
		__u32 way[SHUNT_CUCKOO_KICKS]; /* places in the whole table of the entries to move, first to last */	\
		__u16 tag = shunt_cuckoo_tag(hash);						\
		VALUE *old = NAME##_lookup(t, key, hash);					\
		__u32 bucket = hash, two = shunt_cuckoo_other(hash, tag), n;			\
		__u64 free;									\
		if (old) {									\
			*old = *value;								\
			return SHUNT_CUCKOO_REPLACED;						\
		}										\
		free = shunt_cuckoo_hits(NAME##_tags(t, bucket), NAME##_tags(t, two), 0);		\
		if (free) {									\
			NAME##_put(t, shunt_cuckoo_place(bucket, two, shunt_hit15(free)), key, value, tag);	\
			return SHUNT_CUCKOO_NEW;						\
		}										\
		/* The verifier is to take every length of the way for the same: it knows no value here, then or later. */	\
		for (n = 0; n < SHUNT_CUCKOO_KICKS; n++) {					\
			way[n] = 0;								\
			SHUNT_HIDE(way[n]);							\
		}										\
		for (n = 0; n < SHUNT_CUCKOO_KICKS; n++) {					\
			/* Any place is as good as another, the hash and the turn choose; unless one's entry has room in its other bucket. */	\
			__u32 at = shunt_hash_mix(hash + n) >> 20 & (SHUNT_CUCKOO_SLOTS - 1);	\
			__u64 room = 0;								\
			for (__u32 i = 0; i < SHUNT_CUCKOO_SLOTS; i++) {			\
				__u32 other = shunt_cuckoo_other(bucket, *NAME##_tag_at(t, bucket << 3 | i));	\
				__u64 has = shunt_cuckoo_room(NAME##_tags(t, other));		\
				at ^= (at ^ i) & -(__u32)has;					\
				room |= has;							\
			}									\
			SHUNT_HIDE(at);								\
			way[n] = SHUNT_MASK(bucket << 3 | at, NAME##_places - 1);		\
			bucket = shunt_cuckoo_other(bucket, *NAME##_tag_at(t, way[n]));		\
			if (room)								\
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
			struct NAME##_entry *from;						\
			union shunt_cuckoo_tags *to;						\
			__u16 *leaves, moved;							\
			__u32 other;								\
			if (i > (int)n)								\
				continue;							\
			leaves = NAME##_tag_at(t, way[i]);					\
			moved = *leaves;							\
			if (!moved)								\
				continue;							\
			from = NAME##_entry_at(t, way[i]);					\
			other = shunt_cuckoo_other(way[i] >> 3, moved);				\
			to = NAME##_tags(t, other);						\
			free = shunt_cuckoo_hits(to, to, 0);					\
			if (!free)								\
				return SHUNT_CUCKOO_FULL;					\
			NAME##_put(t, other << 3 | shunt_hit15(free) >> 1, &from->key, &from->value, moved);	\
			*(volatile __u16 *)leaves = 0;						\
		}										\
		NAME##_put(t, way[0], key, value, tag);						\
		return SHUNT_CUCKOO_NEW;							\
	}											\
	/* Whether the key was there; it no longer is. */					\
	SHUNT_FN int NAME##_delete(struct NAME *t, const KEY *key, __u64 hash)			\
	{											\
		__u64 place;									\
		if (!NAME##_find(t, key, hash, &place))						\
			return 0;								\
		*(volatile __u16 *)NAME##_tag_at(t, place) = 0;					\
		return 1;									\
	}

#endif
