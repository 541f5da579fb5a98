/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The common way: what authors of eBPF network functions write when they carry over what they know from C and the kernel. A tree of
 * branches to find a bit, one hash with a seed of its own and one random number per row, a checksum byte by byte, a comparison per
 * fingerprint. Correct, and compared with the library like for like: the same work, the results read back.
 *
 * It also compiles for user space, for the native figures.
 */
#ifndef BENCH_LIB_COMMON_H
#define BENCH_LIB_COMMON_H

#include <shunt/crc32c.h>
#include <shunt/def.h>

/* Find first set, as the kernel's generic C does (include/asm-generic/bitops/__ffs.h describes the algorithm). */
SHUNT_FN __u32 common_ctz64(__u64 x)
{
	__u32 n = 0;

	if (!(x & 0xffffffff)) { n += 32; x >>= 32; }
	if (!(x & 0xffff)) { n += 16; x >>= 16; }
	if (!(x & 0xff)) { n += 8; x >>= 8; }
	if (!(x & 0xf)) { n += 4; x >>= 4; }
	if (!(x & 3)) { n += 2; x >>= 2; }
	if (!(x & 1)) n += 1;
	return n;
}

/* Find last set in the same way. */
SHUNT_FN __u32 common_clz64(__u64 x)
{
	__u32 n = 0;

	if (!(x >> 32)) { n += 32; x <<= 32; }
	if (!(x >> 48)) { n += 16; x <<= 16; }
	if (!(x >> 56)) { n += 8; x <<= 8; }
	if (!(x >> 60)) { n += 4; x <<= 4; }
	if (!(x >> 62)) { n += 2; x <<= 2; }
	if (!(x >> 63)) n += 1;
	return n;
}

/* One bit after the other is taken away (Kernighan); the table of a byte's bits would be the other textbook way. */
SHUNT_FN __u32 common_popcount64(__u64 x)
{
	__u32 n;

	for (n = 0; n < 64 && x; n++) {
		x &= x - 1;
		SHUNT_HIDE(x); /* or clang would recognise it */
	}
	return n;
}

#define ROL32(x, n) ((x) << (n) | (x) >> (32 - (n)))

/* xxHash32 of 16 bytes, from its specification (one stripe, no rest). */
SHUNT_FN __u32 common_xxh32(const __u32 key[4], __u32 seed)
{
	const __u32 p1 = 2654435761U, p2 = 2246822519U, p3 = 3266489917U;
	__u32 v[4] = { seed + p1 + p2, seed + p2, seed, seed - p1 }, h;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		v[i] += key[i] * p2;
		v[i] = ROL32(v[i], 13) * p1;
	}
	h = ROL32(v[0], 1) + ROL32(v[1], 7) + ROL32(v[2], 12) + ROL32(v[3], 18);
	h += 16;
	h = (h ^ h >> 15) * p2;
	h = (h ^ h >> 13) * p3;
	return h ^ h >> 16;
}

/* Eight hashes, one after the other: the sum of them. */
SHUNT_FN __u64 common_hash8(const __u32 key[4])
{
	static const __u32 seed[8] = { 0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5 };
	__u64 sum = 0;

	for (int i = 0; i < 8; i++)
		sum += common_xxh32(key, seed[i] ^ 7);
	return sum;
}

/* CRC32c of 16 bytes, one by one. */
SHUNT_FN __u32 common_crc32c(const __u32 key[4])
{
	const __u8 *bytes = (const __u8 *)key;
	__u32 crc = ~0U;

	for (__u32 i = 0; i < 16; i++)
		crc = shunt_crc32c_1(crc, bytes[i]);
	return ~crc;
}

/* Which of 16 fingerprints equal v, one after the other. */
SHUNT_FN __u32 common_match16(const __u16 *print, __u16 v)
{
	__u32 mask = 0;

	for (__u32 i = 0; i < 16; i++)
		if (print[i] == v)
			mask |= 1U << i;
	return mask;
}

/* A count-min update with a hash per row. */
SHUNT_FN void common_cms_add(__u32 *counters, __u32 rows, __u32 log2cols, const __u32 key[4])
{
	for (__u32 i = 0; i < rows; i++)
		counters[((__u64)i << log2cols) + SHUNT_MASK(common_xxh32(key, i), (1U << log2cols) - 1)]++;
}

#endif
