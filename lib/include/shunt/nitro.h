/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * nitro: NitroSketch (Liu et al., SIGCOMM 2019) over a count sketch (Charikar et al. 2002). Each row is updated with probability p only,
 * and then by 1/p: most packets cost one subtraction, and the key is not even hashed. Answers are right on average, neither too low
 * nor too high; their error shrinks as counts grow.
 *
 * Memory is rows << log2cols counters of 32 bits with a sign, zeroed, and one shunt_nitro per CPU with a seeded `state`. The
 * probability lies in a table (rand.h) that user space fills, and its inverse in `step`, in units of 1/256: 12800 for 2 %. `rows` (1 to 8)
 * and `log2cols` (to 24) have to be constant after inlining, or it does not compile.
 *
 * Range: counters hold 2^31 units, eight million packets of one row and column, and wrap beyond that. Read and clear in turns, once a second.
 *
 * Sharing: one per CPU; sketches of the same shape and seed add, counter by counter.
 *
 * Cost: docs/bench-lib.md. The verifier walks some 19,000 instructions to update five rows (loops in a loop): do it in one place. Any kernel.
 */
#ifndef SHUNT_LIB_NITRO_H
#define SHUNT_LIB_NITRO_H

#include "def.h"
#include "hash.h"
#include "rand.h"

struct shunt_nitro {
	__u64 state;	/* of the random numbers, not 0 */
	__u32 skip;	/* updates of a row that are left out before the next one */
	__u32 step;	/* 256 / p */
};

#define SHUNT_CHECK_NITRO(rows, log2cols)							\
	SHUNT_CHECK((rows) >= 1 && (rows) <= 8 && (log2cols) <= 24,				\
		    "a NitroSketch has 1 to 8 rows of up to 2^24 columns, both known when it is compiled")

/*
 * Whether any row takes this packet: if not, that was all there is to do. If so, hash the key and call shunt_nitro_update().
 */
SHUNT_FN int shunt_nitro_takes(struct shunt_nitro *n, __u32 rows)
{
	SHUNT_CHECK_NITRO(rows, 0);
	if (n->skip >= rows) {
		n->skip -= rows;
		return 0;
	}
	return 1;
}

/* The sign that row i gives a key: its hash's bit i from above, which no column index uses. */
SHUNT_FN __s32 shunt_nitro_signed(__u64 hash, __u32 i, __s32 v)
{
	return hash >> (63 - i) & 1 ? -v : v;
}

/* Count the packet in those rows that take it. */
SHUNT_FN void shunt_nitro_update(struct shunt_nitro *n, const struct shunt_geo *geo, __s32 *counters, __u32 rows, __u32 log2cols, __u64 hash)
{
	__u32 skip = n->skip;

	SHUNT_CHECK_NITRO(rows, log2cols);
	for (__u32 turn = 0; turn < rows; turn++) {
		__u32 i = SHUNT_MASK(skip, 7);

		if (i >= rows)
			break;
		counters[((__u64)i << log2cols) + SHUNT_MASK(shunt_hash_nth(hash, i), (1U << log2cols) - 1)] +=
			shunt_nitro_signed(hash, i, n->step);
		skip += 1 + shunt_geo_draw(geo, &n->state);
		if (skip >= rows)
			break;
	}
	n->skip = skip - rows;
}

/* What row i answers for a key, in units of 1/256. The answer of the sketch is the median of its rows. */
SHUNT_FN __s32 shunt_nitro_row(const __s32 *counters, __u32 i, __u32 log2cols, __u64 hash)
{
	return shunt_nitro_signed(hash, i, counters[((__u64)i << log2cols) + SHUNT_MASK(shunt_hash_nth(hash, i), (1U << log2cols) - 1)]);
}

/*
 * The median of the rows, in units of 1/256; of an even number of rows the mean of the two in the middle. A row is in the middle if as
 * many are below it as above, ties broken by their order; rows * rows comparisons, so this is for reading, not for each packet.
 */
SHUNT_FN __s32 shunt_nitro_get(const __s32 *counters, __u32 rows, __u32 log2cols, __u64 hash)
{
	__s64 low = 0, high = 0;

	SHUNT_CHECK_NITRO(rows, log2cols);
	for (__u32 i = 0; i < rows; i++) {
		__s32 mine = shunt_nitro_row(counters, i, log2cols, hash);
		__u32 below = 0;

		for (__u32 j = 0; j < rows; j++) {
			__s32 other = shunt_nitro_row(counters, j, log2cols, hash);

			if (other < mine || (other == mine && j < i))
				below++;
		}
		if (below == (rows - 1) / 2)
			low = mine;
		if (below == rows / 2)
			high = mine;
	}
	return (low + high) >> 1;
}

#endif
