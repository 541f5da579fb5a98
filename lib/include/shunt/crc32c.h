/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * crc32c: the CRC of Castagnoli (RFC 3720, SCTP of RFC 9260) in plain BPF, eight bytes at a time.
 *
 * For who needs this very checksum: what other software or a NIC has computed, or has to find. As a hash alone hash.h is better: it is
 * cheaper, and CRC32c is linear, so who can choose keys can choose collisions whatever the first value is.
 *
 * Processors have an instruction for it, BPF has not. Slicing (Kounavis and Berry, "Novel table lookup-based algorithms for
 * high-performance CRC generation", 2008) replaces eight dependent steps of a byte each by eight independent looks into eight tables. Bit by
 * bit without tables is no way: verifiers from 6.18 on fork their state at each mask made of a sign and give up after a million
 * instructions. accel.h has the same function by the instruction, where the module is loaded.
 *
 * Cost: see docs/lib/crc32c.md; 8 KiB of .rodata (crc32c_table.h, generated), which a first-level cache of 32 KiB has to share with all
 * else. The length has to be constant after inlining; each eight bytes are some 70 instructions. Any kernel from 5.2 on (.rodata).
 */
#ifndef SHUNT_LIB_CRC32C_H
#define SHUNT_LIB_CRC32C_H

#include "def.h"
#include "crc32c_table.h"

/* One byte, four, eight more; crc is the register, without the inversions. */
SHUNT_FN __u32 shunt_crc32c_1(__u32 crc, __u8 v)
{
	return shunt_crc32c_table[0][SHUNT_MASK(crc ^ v, 255)] ^ crc >> 8;
}

SHUNT_FN __u32 shunt_crc32c_4(__u32 crc, __u32 v)
{
	__u64 x = crc ^ v;

	return shunt_crc32c_table[3][SHUNT_MASK(x, 255)] ^ shunt_crc32c_table[2][SHUNT_MASK(x >> 8, 255)] ^
	       shunt_crc32c_table[1][SHUNT_MASK(x >> 16, 255)] ^ shunt_crc32c_table[0][SHUNT_MASK(x >> 24, 255)];
}

SHUNT_FN __u32 shunt_crc32c_8(__u32 crc, __u64 v)
{
	__u64 x = crc ^ v;

	return shunt_crc32c_table[7][SHUNT_MASK(x, 255)] ^ shunt_crc32c_table[6][SHUNT_MASK(x >> 8, 255)] ^
	       shunt_crc32c_table[5][SHUNT_MASK(x >> 16, 255)] ^ shunt_crc32c_table[4][SHUNT_MASK(x >> 24, 255)] ^
	       shunt_crc32c_table[3][SHUNT_MASK(x >> 32, 255)] ^ shunt_crc32c_table[2][SHUNT_MASK(x >> 40, 255)] ^
	       shunt_crc32c_table[1][SHUNT_MASK(x >> 48, 255)] ^ shunt_crc32c_table[0][SHUNT_MASK(x >> 56, 255)];
}

/*
 * CRC32c of len bytes at data, after those whose CRC is crc (0 if none: the CRC of nothing is 0), so a key in pieces gives what it gives
 * as a whole. data has to be aligned to 8 if len is 8 or more, to 4 if it is 4 or more.
 */
SHUNT_FN __u32 shunt_crc32c(const void *data, __u32 len, __u32 crc)
{
	const shunt_any64 *word = data;
	const __u8 *tail = data + (len & ~3U);

	crc = ~crc;
#pragma unroll
	for (__u32 i = 0; i < len / 8; i++)
		crc = shunt_crc32c_8(crc, word[i]);
	if (len & 4)
		crc = shunt_crc32c_4(crc, *(const shunt_any32 *)&word[len / 8]);
#pragma unroll
	for (__u32 i = 0; i < (len & 3); i++)
		crc = shunt_crc32c_1(crc, tail[i]);
	return ~crc;
}

#endif
