/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The elements that structures hold, the same for all ways to hold them. */
#ifndef BENCH_LIB_ELEMENTS_H
#define BENCH_LIB_ELEMENTS_H

#include <shunt/def.h>

#define HANDLES 4096

struct bench_key { __u32 word[4]; } __attribute__((aligned(8)));

/* The i-th of any number of different keys, in no order. */
SHUNT_FN __u64 bench_key_of(__u32 i) { return i * 0x9e3779b97f4a7c15ULL; }

/* The key of the flow to the i-th address of the traffic: 16.0.0.0 plus 256 i plus 1, as a little-endian machine reads it. */
SHUNT_FN struct bench_key bench_flow_of(__u32 i)
{
	__u32 to = 0x10000001 + 256 * i;

	return (struct bench_key){ { 0, to >> 24 | (to >> 8 & 0xff00) | (to & 0xff00) << 8 | to << 24, 0, 17 } };
}

/* The set of seven that a flow is in. */
#define BENCH_SET(i) ((i) % 7 + 1)

/* The traffic has as many packets of each flow; of these flows 32 have a 64th of all packets each, and 2,048 the other half. */
SHUNT_FN __u32 bench_skewed(__u32 i)
{
	__u32 heavy = i & 63, mine = 0 - (i & 1);

	SHUNT_HIDE(mine); /* no branch: it is not what is measured */
	return i ^ ((i ^ heavy) & mine);
}

#endif
