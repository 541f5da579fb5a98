/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * bits: find, count and rotate bits, with a result for every input (but one, which says so). The instruction set has none of it; what the
 * kernel's generic C does with a tree of branches is done here without one, so that it costs the same wherever the bit is.
 *
 * clang makes them of its builtins: the lowest bit by a multiplication and a table of 64 bytes in .rodata (De Bruijn), a count by adding in
 * parallel. What the builtins leave undefined is defined here: no bit at all. Before clang 19 the builtins of the lowest and the highest bit
 * end the compiler, which has no code for them: there both are counts of other bits, hidden, since it would recognise what they amount to.
 *
 * Cost: below 2 ns where they do not wait for one another. Find-last (clz) costs several times find-first: number things so that the
 * lowest comes first. No map, no call. Any kernel.
 */
#ifndef SHUNT_LIB_BITS_H
#define SHUNT_LIB_BITS_H

#include "def.h"

/* How many bits of x are set, 0 to 64. */
SHUNT_FN __u32 shunt_popcount64(__u64 x) { return __builtin_popcountll(x); }
SHUNT_FN __u32 shunt_popcount32(__u32 x) { return __builtin_popcount(x); }

/* SHUNT_NO_TABLES before including this: nothing in .rodata, for loaders that have plans of their own for it. */
#if defined(SHUNT_NO_TABLES) || (defined(__bpf__) && defined(__clang__) && __clang_major__ < 19)
#define SHUNT_BUILTIN(builtin, by_hand) (by_hand)
#else
#define SHUNT_BUILTIN(builtin, by_hand) (builtin)
#endif

/* As many bits as there are below the lowest one, and above the highest. */
SHUNT_FN __u32 shunt_below64(__u64 x)
{
	x = ~x & (x - 1);
	SHUNT_HIDE(x);
	return shunt_popcount64(x);
}

SHUNT_FN __u32 shunt_above64(__u64 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	SHUNT_HIDE(x);
	return shunt_popcount64(~x);
}

/* The index of the lowest set bit, 64 if there is none. */
SHUNT_FN __u32 shunt_ctz64(__u64 x) { return x ? SHUNT_BUILTIN(__builtin_ctzll(x), shunt_below64(x)) : 64; }

/*
 * The same for who knows that there is one, as of a mask that was just tested: undefined for 0, and an instruction and a branch cheaper.
 */
SHUNT_FN __u32 shunt_ctz64_of(__u64 x) { return SHUNT_BUILTIN(__builtin_ctzll(x), shunt_below64(x)); }

/* The same for 32 bits; 32 if there is none. */
SHUNT_FN __u32 shunt_ctz32(__u32 x) { return x ? SHUNT_BUILTIN(__builtin_ctz(x), shunt_below64(x)) : 32; }

/* Find first set as C's ffs() counts: from 1; 0 if none is set. */
SHUNT_FN __u32 shunt_ffs64(__u64 x)
{
	return x ? shunt_ctz64(x) + 1 : 0;
}

/* How many bits above the highest set one, 64 if there is none. */
SHUNT_FN __u32 shunt_clz64(__u64 x) { return x ? SHUNT_BUILTIN(__builtin_clzll(x), shunt_above64(x)) : 64; }

/* The index of the highest set bit; -1 (all ones) if there is none. */
SHUNT_FN __u32 shunt_log2_64(__u64 x)
{
	return 63 - shunt_clz64(x);
}

/* Rotations; n is taken modulo the width. */
SHUNT_FN __u32 shunt_rol32(__u32 x, __u32 n)
{
	return x << (n & 31) | x >> (-n & 31);
}

SHUNT_FN __u64 shunt_rol64(__u64 x, __u32 n)
{
	return x << (n & 63) | x >> (-n & 63);
}

/* The smallest power of two that is not less than x; 1 for 0, and 0 where 64 bits do not hold it. */
SHUNT_FN __u64 shunt_pow2_ceil(__u64 x)
{
	return x <= 1 ? 1 : x > 1ULL << 63 ? 0 : 1ULL << (64 - shunt_clz64(x - 1));
}

#endif
