/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * hash: one good 64-bit hash of a key, and any number of row indexes from it.
 *
 * The hash is fasthash64 (two multiplications per eight bytes and no rotation, which here would be three instructions), with its
 * published constants, so a user-space program can compute the same. Structures that want k independent functions take the two halves
 * of one hash, h1 + i * h2 (double hashing: Kirsch and Mitzenmacher 2006), or slices of its bits, which for filters and sketches loses nothing
 * that can be measured and costs one hash instead of k. Who needs true independence seeds k hashes.
 *
 * Not for secrets: someone who can choose keys and knows the seed can choose collisions. Take the seed from bpf_get_prandom_u32() or
 * user space, once.
 *
 * Cost: two multiplications per eight bytes (docs/bench-lib.md), no branch. The length has to be constant after inlining. Any kernel.
 */
#ifndef SHUNT_LIB_HASH_H
#define SHUNT_LIB_HASH_H

#include "def.h"

#define SHUNT_HASH_M 0x880355f21e6d1965ULL

SHUNT_FN __u64 shunt_hash_mix(__u64 h)
{
	h ^= h >> 23;
	h *= 0x2127599bf4325c37ULL;
	return h ^ h >> 47;
}

/* fasthash64 of len bytes at key. Keys of whole aligned words are read as such: key has to be aligned to 8 if len is 8 or more. */
SHUNT_FN __u64 shunt_hash64(const void *key, __u32 len, __u64 seed)
{
	const __u8 *tail = key + (len & ~7U);
	const shunt_any64 *word = key;
	__u64 h = seed ^ len * SHUNT_HASH_M, v = 0;

#pragma unroll
	for (__u32 i = 0; i < len / 8; i++)
		h = (h ^ shunt_hash_mix(word[i])) * SHUNT_HASH_M;
#pragma unroll
	for (__u32 i = 0; i < (len & 7); i++)
		v |= (__u64)tail[i] << 8 * i;
	if (len & 7)
		h = (h ^ shunt_hash_mix(v)) * SHUNT_HASH_M;
	return shunt_hash_mix(h);
}

/* The same for a key of eight bytes that is at hand as a number. */
SHUNT_FN __u64 shunt_hash_u64(__u64 key, __u64 seed)
{
	__u64 h = seed ^ 8 * SHUNT_HASH_M;

	return shunt_hash_mix((h ^ shunt_hash_mix(key)) * SHUNT_HASH_M);
}

/*
 * The i-th of any number of 32-bit hashes out of one. The step is odd, so that the indexes of one key in a table whose size is a
 * power of two do not repeat before they have been everywhere.
 */
SHUNT_FN __u32 shunt_hash_nth(__u64 h, __u32 i)
{
	return (__u32)h + i * ((__u32)(h >> 32) | 1);
}

/*
 * Where slice i of `bits` bits (1 to 24) of a hash is, for structures of several rows: the word to take it from, and how far to shift that. Slices of one word
 * are independent as far as the hash is good; further words are products of it, of which the lowest 16 bits depend on too little and are left
 * out. Constant but for the word, so that a row costs a shift and a mask, and four or five rows a multiplication.
 */
#define SHUNT_HASH_SLICES(bits) (48 / (bits))

SHUNT_FN __u64 shunt_hash_word(__u64 h, __u32 i, __u32 bits)
{
	__u32 word = i / SHUNT_HASH_SLICES(bits);

	SHUNT_CHECK(bits >= 1 && bits <= 24, "a slice of a hash has 1 to 24 bits, known when it is compiled");
	return word ? h * (0x9fb21c651e98df25ULL + word * 0x9e3779b97f4a7c16ULL) : h;
}

SHUNT_FN __u32 shunt_hash_shift(__u32 i, __u32 bits)
{
	return 64 - bits * (i % SHUNT_HASH_SLICES(bits) + 1);
}

#endif
