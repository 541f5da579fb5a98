/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * bloom: was this key added before? "No" is certain, "yes" is wrong with a probability that is known beforehand. Nothing can be taken
 * out (cuckoofilter.h can).
 *
 *	SHUNT_BLOOM(seen, 20, 7)		the classic one (Bloom 1970): 2^20 bits (2^6 to 2^31), 7 bits per key (1 to 16)
 *	SHUNT_BLOOM_BLOCKED(seen, 20, 7)	all bits of a key in one line of 64 bytes: 2^20 bits (2^9 to 2^31), 1 to 7 per key
 *
 * define struct seen, and seen_add(), seen_add_shared() and seen_test(). Zeroed memory is an empty filter; zero it to start anew. Pass
 * any good 64-bit hash of the key (hash.h), seeded if keys may be chosen by an enemy.
 *
 * With n keys in m bits and k per key, the classic filter is wrong with p = (1 - e^(-kn/m))^k: 0.8 % at 10 bits per key and k = 7. Its bits
 * are chosen by double hashing, which does not change that (Kirsch and Mitzenmacher 2006). The blocked one (Putze, Sanders and Singler
 * 2007) touches one cache line instead of k and is wrong a little more often, since keys are not spread evenly over lines: 1.0 % for the
 * same. Take the classic one if the filter is in the cache anyhow, or if each bit of memory counts.
 *
 * Sharing: seen_add_shared() may run on all CPUs at once, beside seen_test(), and loses nothing (atomic or). seen_add() is for one CPU,
 * or the holder of a lock.
 *
 * Cost, with 7 bits per key and the filter in the cache: testing 9 to 10 ns, adding 7 to 10, also the shared way.
 * Any kernel; seen_add_shared() from 5.12 on, compiled with -mcpu=v3.
 */
#ifndef SHUNT_LIB_BLOOM_H
#define SHUNT_LIB_BLOOM_H

#include "def.h"
#include "hash.h"

/* The i-th bit of a key, counted from *word's beginning: classic. */
SHUNT_FN __u64 shunt_bloom_bit(__u64 hash, __u32 i, __u32 log2bits)
{
	return SHUNT_MASK(shunt_hash_nth(hash, i), (1ULL << log2bits) - 1);
}

/* What a key's bits within its line are made of: other bits of the hash than the line's number. */
SHUNT_FN __u64 shunt_bloom_remix(__u64 hash)
{
	return shunt_hash_mix(hash * SHUNT_HASH_M);
}

/* The i-th bit of a key: blocked. Double hashing would have only 2^17 patterns for a line; these are 2^63. */
SHUNT_FN __u64 shunt_bloom_bit_blocked(__u64 hash, __u64 remix, __u32 i, __u32 log2bits)
{
	/* Masked as a whole: to Linux 6.1's verifier an or of two numbers with bounds has none. */
	return SHUNT_MASK(hash << 9 | (remix >> 9 * i & 511), (1ULL << log2bits) - 1);
}

#define SHUNT_BLOOM_FUNCTIONS(NAME, LOG2BITS, K, BIT)					\
	struct NAME {									\
		__u64 word[1ULL << ((LOG2BITS) - 6)];					\
	} __attribute__((aligned(8)));							\
	SHUNT_FN void NAME##_add(struct NAME *f, __u64 hash)				\
	{										\
		__u64 remix = shunt_bloom_remix(hash);					\
		(void)remix;								\
		_Pragma("unroll")							\
		for (__u32 i = 0; i < (K); i++) {					\
			__u64 bit = BIT;						\
			f->word[bit >> 6] |= 1ULL << (bit & 63);			\
		}									\
	}										\
	SHUNT_FN void NAME##_add_shared(struct NAME *f, __u64 hash)			\
	{										\
		__u64 remix = shunt_bloom_remix(hash);					\
		(void)remix;								\
		_Pragma("unroll")							\
		for (__u32 i = 0; i < (K); i++) {					\
			__u64 bit = BIT;						\
			__sync_fetch_and_or(&f->word[bit >> 6], 1ULL << (bit & 63));	\
		}									\
	}										\
	/* 1: the key was added, probably; 0: it was not. */				\
	SHUNT_FN int NAME##_test(const struct NAME *f, __u64 hash)			\
	{										\
		__u64 remix = shunt_bloom_remix(hash), all = 1;				\
		(void)remix;								\
		_Pragma("unroll")							\
		for (__u32 i = 0; i < (K); i++) {					\
			__u64 bit = BIT;						\
			all &= f->word[bit >> 6] >> (bit & 63);				\
		}									\
		return all;								\
	}

#define SHUNT_BLOOM(NAME, LOG2BITS, K)							\
	_Static_assert((LOG2BITS) >= 6 && (LOG2BITS) <= 31, "2^6 to 2^31 bits");	\
	_Static_assert((K) >= 1 && (K) <= 16, "1 to 16 bits per key");			\
	SHUNT_BLOOM_FUNCTIONS(NAME, LOG2BITS, K, shunt_bloom_bit(hash, i, LOG2BITS))

#define SHUNT_BLOOM_BLOCKED(NAME, LOG2BITS, K)						\
	_Static_assert((LOG2BITS) >= 9 && (LOG2BITS) <= 31, "2^9 to 2^31 bits");	\
	_Static_assert((K) >= 1 && (K) <= 7, "1 to 7 bits per key");			\
	SHUNT_BLOOM_FUNCTIONS(NAME, LOG2BITS, K, shunt_bloom_bit_blocked(hash, remix, i, LOG2BITS))

#endif
