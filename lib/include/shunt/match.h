/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * match: compare one fingerprint with many at once, eight bytes at a time (SWAR: SIMD within a register).
 *
 * The test for a lane that is zero is the exact one, (~((x & 0x7f..) + 0x7f..) & ~x) & 0x80.., which no carry from a lane below can
 * deceive; the shorter x - 0x01.. & ~x & 0x80.. finds the lowest zero right and others wrong.
 *
 * A test of fingerprints of 15 bits costs three instructions less per word than one of 16: who may choose takes 15.
 *
 * Cost: docs/bench-lib.md; no branch. Any kernel.
 */
#ifndef SHUNT_LIB_MATCH_H
#define SHUNT_LIB_MATCH_H

#include "def.h"

/* Sixteen fingerprints of 16 bits, to be matched as words and written one by one. */
union shunt_prints {
	__u64 word[4];
	__u16 one[16];
};

/* The same byte, or the same 16 bits, in each lane of a word. */
SHUNT_FN __u64 shunt_lanes8(__u8 v) { return v * 0x0101010101010101ULL; }
SHUNT_FN __u64 shunt_lanes16(__u16 v) { return v * 0x0001000100010001ULL; }

/* The top bit of each lane that is zero. */
SHUNT_FN __u64 shunt_zero8(__u64 x)
{
	return ~((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) & ~x & 0x8080808080808080ULL;
}

SHUNT_FN __u64 shunt_zero16(__u64 x)
{
	return ~((x & 0x7fff7fff7fff7fffULL) + 0x7fff7fff7fff7fffULL) & ~x & 0x8000800080008000ULL;
}

/* Top bits of lanes gathered into as many low bits, lane 0 first. */
SHUNT_FN __u32 shunt_gather8(__u64 tops) { return (tops >> 7) * 0x0102040810204080ULL >> 56; }
SHUNT_FN __u32 shunt_gather16(__u64 tops) { return (tops >> 15) * 0x0001000200040008ULL >> 48 & 15; }

/* Which of the 16 fingerprints of 8 bits in two words equal v: bit i for lane i. */
SHUNT_FN __u32 shunt_match8x16(const __u64 word[2], __u8 v)
{
	__u64 want = shunt_lanes8(v);

	return shunt_gather8(shunt_zero8(word[0] ^ want)) | shunt_gather8(shunt_zero8(word[1] ^ want)) << 8;
}

/* Which of the 16 fingerprints of 16 bits in four words equal v. A tested word leaves 15 bits of each lane free for the others. */
SHUNT_FN __u32 shunt_match16x16(const __u64 word[4], __u16 v)
{
	const __u64 low = 0x7fff7fff7fff7fffULL;
	__u64 want = shunt_lanes16(v), high = ~low, differ = 0;

	SHUNT_HIDE(high);	/* or the compiler would shift each word by another constant */
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 x = word[i] ^ want;

		x |= (x & low) + low;	/* the top bit of each lane that is not zero */
		differ = differ >> 4 | (x & high);
		SHUNT_HIDE(differ);
	}
	/* Word w of lane l is bit 16 l + 4 w + 3 by now, and goes to 48 + 4 w + l; nothing meets there. */
	return differ * 0x0000200040008001ULL >> 48 ^ 0xffff;
}

/*
 * The same of fingerprints of 15 bits, v and all others below 0x8000: the free bit takes the sum's carry, which saves a quarter of the
 * work. What it finds stays spread, which saves gathering it for who only wants the first: shunt_hit15() gives its place, and hits & (hits - 1)
 * are the others. Place p is lane p / 4 of word p % 4, and bit 4 p + 3.
 */
SHUNT_FN __u64 shunt_hits15x16(const __u64 word[4], __u16 v)
{
	const __u64 low = 0x7fff7fff7fff7fffULL;
	__u64 want = shunt_lanes16(v), high = ~low, differ = 0;

	SHUNT_HIDE(high);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		differ = differ >> 4 | (((word[i] ^ want) + low) & high);
		SHUNT_HIDE(differ);
	}
	return differ ^ 0x8888888888888888ULL;
}

/* The first place of these; hits is not 0. Of all bits up to the first hit every fourth is counted, by adding them up in the top four. */
SHUNT_FN __u32 shunt_hit15(__u64 hits)
{
	return ((hits ^ (hits - 1)) & 0x1111111111111110ULL) * 0x1111111111111111ULL >> 60;
}

/* Where place p is in union shunt_prints, and in any other array of fingerprints: lane p / 4 of word p % 4. */
SHUNT_FN __u32 shunt_lane15(__u32 p) { return (p & 3) << 2 | (p >> 2 & 3); }

/* As shunt_match16x16(): bit i for fingerprint i; of 15 bits, v and all others below 0x8000. */
SHUNT_FN __u32 shunt_match15x16(const __u64 word[4], __u16 v)
{
	return shunt_hits15x16(word, v) * 0x0000200040008001ULL >> 48;
}

#endif
