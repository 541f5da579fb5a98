// SPDX-License-Identifier: GPL-2.0
/*
 * The two functions in vector registers, written with the compilers' vector types: gcc and clang both take them, and neither needs the
 * headers of intrinsics, which want a C library.
 */
#include <linux/types.h>

#include "simd.h"

typedef __u32 v8 __attribute__((vector_size(32)));
typedef __u32 v8_anywhere __attribute__((vector_size(32), aligned(4), may_alias));
typedef short lanes16 __attribute__((vector_size(32)));
typedef short lanes16_anywhere __attribute__((vector_size(32), aligned(1), may_alias));
typedef char bytes32 __attribute__((vector_size(32)));
typedef char bytes16 __attribute__((vector_size(16)));
typedef short lanes8 __attribute__((vector_size(16)));
typedef __u32 word_anywhere __attribute__((aligned(1), may_alias));

__u32 shunt_simd_match16x16(const struct shunt_lanes16 *lanes, __u16 v)
{
	lanes16 want = { v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v };
	union { lanes16 all; lanes8 half[2]; } hits;

	/* All ones in each lane that is equal: narrowed to a byte each, of which the top bits are gathered. */
	hits.all = *(const lanes16_anywhere *)lanes == want;
	return __builtin_ia32_pmovmskb128((bytes16)__builtin_ia32_packsswb128(hits.half[0], hits.half[1])) & 0xffff;
}

#define ROL(x, n) ((x) << (n) | (x) >> (32 - (n)))

/* shunt_hash8() of hash8.h, whose lines these are, eight at a time. */
void shunt_simd_hash8(struct shunt_hash8 *out, const void *key, __u32 len, __u32 seed)
{
	v8 s = (v8)SHUNT_HASH8_SEEDS ^ seed, h = s + SHUNT_XXH_P5;
	const word_anywhere *word = key;
	const __u8 *tail = key + (len & ~3U);
	__u32 left = len;

	if (len >= 16) {
		v8 a = s + (SHUNT_XXH_P1 + SHUNT_XXH_P2), b = s + SHUNT_XXH_P2, c = s, d = s - SHUNT_XXH_P1;

		for (; left >= 16; left -= 16, word += 4) {
			a += word[0] * SHUNT_XXH_P2;
			b += word[1] * SHUNT_XXH_P2;
			c += word[2] * SHUNT_XXH_P2;
			d += word[3] * SHUNT_XXH_P2;
			a = ROL(a, 13) * SHUNT_XXH_P1;
			b = ROL(b, 13) * SHUNT_XXH_P1;
			c = ROL(c, 13) * SHUNT_XXH_P1;
			d = ROL(d, 13) * SHUNT_XXH_P1;
		}
		h = ROL(a, 1) + ROL(b, 7) + ROL(c, 12) + ROL(d, 18);
	}
	h += len;
	for (; left >= 4; left -= 4, word++) {
		h += *word * SHUNT_XXH_P3;
		h = ROL(h, 17) * SHUNT_XXH_P4;
	}
	for (; left; left--, tail++) {
		h += *tail * SHUNT_XXH_P5;
		h = ROL(h, 11) * SHUNT_XXH_P1;
	}
	h = (h ^ h >> 15) * SHUNT_XXH_P2;
	h = (h ^ h >> 13) * SHUNT_XXH_P3;
	*(v8_anywhere *)out = h ^ h >> 16;
}
