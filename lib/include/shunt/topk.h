/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * topk: the K heaviest keys, with whole keys, beside a sketch that estimates counts (cms.h, hkeeper.h).
 *
 *	SHUNT_TOPK(flows, struct flow_key, 64)
 *
 * defines struct flows and flows_offer(). Offer a key with its estimate after each update of the sketch: a key that is kept gets the
 * new count, another replaces the lightest if it is heavier. K is a multiple of 16, up to 64; the key's size a multiple of 8 without
 * padding, since all its bytes are compared. Zeroed memory is an empty table. User space reads the struct and sorts.
 *
 * Kept keys are found by fingerprints, 16 at a time (match.h), and compared whole; the lightest is looked for only when it changed, which
 * with heavy-tailed traffic is rare.
 *
 * Sharing: one per CPU; merge by key when reading.
 *
 * Cost: a match of 16 fingerprints per 16 keys for a key that is kept or too light. Any kernel.
 */
#ifndef SHUNT_LIB_TOPK_H
#define SHUNT_LIB_TOPK_H

#include "def.h"
#include "bits.h"
#include "match.h"

enum {
	SHUNT_TOPK_LIGHT,	/* not among the heaviest; nothing was changed */
	SHUNT_TOPK_KEPT,	/* was there already; its count is the new one */
	SHUNT_TOPK_TAKEN,	/* is new, in a free place or in that of the lightest */
};

/* Whether two keys of a constant size are equal: all their words. */
SHUNT_FN int shunt_same_words(const void *a, const void *b, __u32 size)
{
	const shunt_any64 *x = a, *y = b;
	__u64 differ = 0;

#pragma unroll
	for (__u32 i = 0; i < size / 8; i++)
		differ |= x[i] ^ y[i];
	return !differ;
}

/* A fingerprint that is never 0, which marks a free place. */
SHUNT_FN __u16 shunt_topk_print(__u64 hash)
{
	__u16 print = hash >> 48;

	return print ? print : 1;
}

#define SHUNT_TOPK(NAME, KEY, K)								\
	_Static_assert((K) % 16 == 0 && (K) > 0 && (K) <= 64, "K is 16, 32, 48 or 64");		\
	_Static_assert(sizeof(KEY) % 8 == 0 && sizeof(KEY) > 0, "the key's size has to be a multiple of 8");	\
	struct NAME {										\
		union shunt_prints print[(K) / 16];						\
		__u32 count[K];									\
		__u32 least;	/* of all counts; 0 while a place is free */			\
		__u32 least_at;									\
		KEY key[K];									\
	};											\
	/* Without a branch: verifiers from Linux 7 on follow both ways of each of the K comparisons, and never meet again. */	\
	SHUNT_FN void NAME##_find_least(struct NAME *t)						\
	{											\
		__u64 least = ~0U, at = 0;							\
		for (__u64 i = 0; i < (K); i++) {						\
			__u64 more = t->count[i] - least, is = more >> 63;			\
			SHUNT_HIDE(is);								\
			least += more * is;							\
			at += (i - at) * is;							\
		}										\
		t->least = least;								\
		t->least_at = at;								\
	}											\
	SHUNT_FN int NAME##_offer(struct NAME *t, const KEY *key, __u64 hash, __u32 count)	\
	{											\
		__u16 print = shunt_topk_print(hash);						\
		__u32 at;									\
		for (__u32 part = 0; part < (K) / 16; part++) {					\
			__u32 hits = shunt_match16x16(t->print[part].word, print);		\
			for (int turn = 0; hits && turn < 16; turn++) {				\
				at = part * 16 + SHUNT_MASK(shunt_ctz32(hits), 15);		\
				if (shunt_same_words(&t->key[at], key, sizeof(KEY))) {		\
					t->count[at] = count;					\
					if (at == t->least_at || count <= t->least)	\
						NAME##_find_least(t);				\
					return SHUNT_TOPK_KEPT;					\
				}								\
				hits &= hits - 1;						\
			}									\
		}										\
		if (count <= t->least)								\
			return SHUNT_TOPK_LIGHT;						\
		at = t->least_at;								\
		if (at >= (K))									\
			return SHUNT_TOPK_LIGHT;						\
		t->print[at / 16].one[at % 16] = print;						\
		t->key[at] = *key;								\
		t->count[at] = count;								\
		NAME##_find_least(t);								\
		return SHUNT_TOPK_TAKEN;							\
	}

#endif
