/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * hash8: eight independent 32-bit hashes of one key at once.
 *
 * For who needs independence: a proof that asks for it, or results that have to equal those of another program with xxHash32. All else takes
 * shunt_hash_nth() of hash.h, which is several times cheaper and in sketches and filters as exact. Not for secrets either.
 *
 * Hash i is xxHash32 (Collet; its specification, version 0.1.1) with seed ^ K[i], K being the first eight round constants of SHA-256. It
 * needs nothing but 32-bit sums, products and rotations, so a processor with 256-bit registers does all eight in the time of one: the
 * function that accel.h takes where the module is loaded. This is its twin with the same results. (The module has no faster form of
 * shunt_hash64() for that: eight products of 64 bits at once exist only from AVX-512 on.)
 *
 * Cost: see docs/lib/kmod.md; 150 to 600 instructions, so use it from one place. The length has to be constant after inlining. Any kernel.
 */
#ifndef SHUNT_LIB_HASH8_H
#define SHUNT_LIB_HASH8_H

#include "bits.h"

#define SHUNT_XXH_P1 0x9e3779b1U
#define SHUNT_XXH_P2 0x85ebca77U
#define SHUNT_XXH_P3 0xc2b2ae3dU
#define SHUNT_XXH_P4 0x27d4eb2fU
#define SHUNT_XXH_P5 0x165667b1U

/* What the seeds of the eight hashes differ by. */
#define SHUNT_HASH8_SEEDS {	\
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5 }

struct shunt_hash8 {
	__u32 h[8];
};

/* xxHash32 of len bytes at key, which has to be aligned to 4 if len is 4 or more. */
SHUNT_FN __u32 shunt_xxh32(const void *key, __u32 len, __u32 seed)
{
	const shunt_any32 *word = key;
	const __u8 *tail = key + (len & ~3U);
	__u32 at = 0, h = seed + SHUNT_XXH_P5;

	if (len >= 16) {
		__u32 a = seed + SHUNT_XXH_P1 + SHUNT_XXH_P2, b = seed + SHUNT_XXH_P2, c = seed, d = seed - SHUNT_XXH_P1;

#pragma unroll
		for (; at + 4 <= len / 4; at += 4) {
			a = shunt_rol32(a + word[at] * SHUNT_XXH_P2, 13) * SHUNT_XXH_P1;
			b = shunt_rol32(b + word[at + 1] * SHUNT_XXH_P2, 13) * SHUNT_XXH_P1;
			c = shunt_rol32(c + word[at + 2] * SHUNT_XXH_P2, 13) * SHUNT_XXH_P1;
			d = shunt_rol32(d + word[at + 3] * SHUNT_XXH_P2, 13) * SHUNT_XXH_P1;
		}
		h = shunt_rol32(a, 1) + shunt_rol32(b, 7) + shunt_rol32(c, 12) + shunt_rol32(d, 18);
	}
	h += len;
#pragma unroll
	for (; at < len / 4; at++)
		h = shunt_rol32(h + word[at] * SHUNT_XXH_P3, 17) * SHUNT_XXH_P4;
#pragma unroll
	for (__u32 i = 0; i < (len & 3); i++)
		h = shunt_rol32(h + tail[i] * SHUNT_XXH_P5, 11) * SHUNT_XXH_P1;
	h = (h ^ h >> 15) * SHUNT_XXH_P2;
	h = (h ^ h >> 13) * SHUNT_XXH_P3;
	return h ^ h >> 16;
}

/* out->h[i] = xxHash32 with seed ^ K[i]. */
SHUNT_FN void shunt_hash8(struct shunt_hash8 *out, const void *key, __u32 len, __u32 seed)
{
	const __u32 k[8] = SHUNT_HASH8_SEEDS;

#pragma unroll
	for (__u32 i = 0; i < 8; i++)
		out->h[i] = shunt_xxh32(key, len, seed ^ k[i]);
}

#endif
