/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * cms: count-min sketch (Cormode and Muthukrishnan 2005). How often was each of very many keys seen? An answer is never too low, and too
 * high by more than e * N / columns only with probability e^-rows, where N is the sum of everything counted.
 *
 * Memory is rows << log2cols counters of 32 bits, zeroed. Counters stop at 2^32 - 1 and do not wrap. `rows` (1 to 16) and `log2cols` (1 to
 * 24) have to be constant after inlining, or it does not compile, and the same in every call for one sketch.
 *
 * Row indexes are slices of one hash and of its products (hash.h): pass any good 64-bit hash of the key.
 *
 * Sharing: give each CPU its own (a per-CPU map) and add them up when reading, counter by counter; sketches of the same shape and
 * seed add. Those of shunt_cms_add_conservative() must not be added up: take the sum of what each CPU's sketch answers.
 *
 * Cost: beside the hash of the key 14 instructions per row to count, 7 to ask, 17 for conservative update: 7 ns with 4 rows and 13 with 8
 * to count, the hash included (docs/bench-lib.md). No loop and hardly a branch is left, so the verifier walks each but once or twice.
 * Any kernel.
 */
#ifndef SHUNT_LIB_CMS_H
#define SHUNT_LIB_CMS_H

#include "def.h"
#include "hash.h"

#define SHUNT_CMS_COUNTERS(rows, log2cols) ((rows) << (log2cols))

#define SHUNT_CHECK_CMS(rows, log2cols)								\
	SHUNT_CHECK((rows) >= 1 && (rows) <= 16 && (log2cols) >= 1 && (log2cols) <= 24,		\
		    "a count-min sketch has 1 to 16 rows of 2^1 to 2^24 columns, both known when it is compiled")

/* Where row i counts a key of this hash. */
SHUNT_FN __u32 *shunt_cms_at(__u32 *counters, __u32 i, __u32 log2cols, __u64 hash)
{
	/* The column times four at once: a shift less. */
	return (void *)counters + ((__u64)i << (log2cols + 2)) +
	       SHUNT_MASK(shunt_hash_word(hash, i, log2cols) >> (shunt_hash_shift(i, log2cols) - 2), ((1U << log2cols) - 1) << 2);
}

SHUNT_FN void shunt_cms_raise(__u32 *c, __u32 n)
{
	__u32 sum = *c + n;

	*c = sum < n ? ~0U : sum;
}

/* Count n more of the key. */
SHUNT_FN void shunt_cms_add(__u32 *counters, __u32 rows, __u32 log2cols, __u64 hash, __u32 n)
{
	SHUNT_CHECK_CMS(rows, log2cols);
#pragma unroll
	for (__u32 i = 0; i < rows; i++)
		shunt_cms_raise(shunt_cms_at(counters, i, log2cols, hash), n);
}

/* How many of the key were counted, at most. */
SHUNT_FN __u32 shunt_cms_get(__u32 *counters, __u32 rows, __u32 log2cols, __u64 hash)
{
	__u32 least = ~0U;

	SHUNT_CHECK_CMS(rows, log2cols);
#pragma unroll
	for (__u32 i = 0; i < rows; i++) {
		__u32 c = *shunt_cms_at(counters, i, log2cols, hash);

		if (c < least)
			least = c;
	}
	return least;
}

/*
 * Count n more and return the new answer, raising only counters that are lower than it (conservative update: Estan and Varghese 2002).
 * Errors become several times smaller, for a second pass over the rows.
 */
SHUNT_FN __u32 shunt_cms_add_conservative(__u32 *counters, __u32 rows, __u32 log2cols, __u64 hash, __u32 n)
{
	__u32 now = shunt_cms_get(counters, rows, log2cols, hash);

	shunt_cms_raise(&now, n);
#pragma unroll
	for (__u32 i = 0; i < rows; i++) {
		__u32 *c = shunt_cms_at(counters, i, log2cols, hash);

		if (*c < now)
			*c = now;
	}
	return now;
}

#endif
