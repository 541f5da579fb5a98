/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The best plain way: what someone who knows eBPF well, and the processor below it, writes for one program, without any library. It
 * keeps the library honest: that beats the common way easily, and here has to show what it is worth against its equals.
 *
 * What eBPF lacks (rotation, the high half of a product, find first set, conditional moves) is avoided, not imitated; what depends on
 * data is a multiplication or a load, not a branch, where the branch would be a coin's throw. Loads on Linux 6.1 and later.
 */
#ifndef BENCH_LIB_BEST_H
#define BENCH_LIB_BEST_H

#include <linux/types.h>

#define BEST_FN static inline __attribute__((always_inline, unused))

/* x, of which the compiler knows no more: keeps what is multiplied, masked or compared as it is written, and in its order. */
#define BEST_HIDE(x) asm volatile("" : "+r"(x))

/*
 * Lowest bit set of x, which is not 0. Clang makes of it a multiplication by a de Bruijn sequence and a load from a table, ten instructions
 * in all; the same by hand and a count of the ones below the bit were no faster.
 */
BEST_FN __u32 best_ctz64(__u64 x)
{
	return __builtin_ctzll(x);
}

/*
 * Which of 16 fingerprints equal v, as a mask. In four words of four: the highest bit of each 16 says that they differ (exactly: sums do
 * not carry out of their 16). That of lane l in word w goes to bit 16l + 4w + 3, and one multiplication gathers them: times 2^15(3-l) it
 * lands at 48 + 4w + l, and nothing lands on or below it twice, so nothing carries.
 */
BEST_FN __u32 best_match16(const __u64 print[4], __u16 v)
{
	const __u64 low = 0x7fff7fff7fff7fffULL;
	__u64 all = v * 0x0001000100010001ULL, differ = 0, high = ~low;

	BEST_HIDE(high); /* or it would be shifted instead: four constants for one */
#pragma unroll
	for (int w = 0; w < 4; w++) {
		__u64 x = print[w] ^ all;

		x |= (x & low) + low;
		differ = differ >> 4 | (x & high);
		BEST_HIDE(differ);
	}
	return (differ * (1ULL << 45 | 1ULL << 30 | 1ULL << 15 | 1)) >> 48 ^ 0xffff;
}

/*
 * 16 bytes in 64 bits: pairs of 32-bit sums are multiplied and added (the family NH: two keys share a value with a chance of 2^-32 at
 * most over the choice of its four constants). Two multiplications that do not wait for each other, nothing joined from halves. High
 * bits depend on all of the key, low ones on low ones only; so the high half is folded in before anything is taken from a product.
 */
BEST_FN __u64 best_fold16(const __u32 key[4])
{
	__u64 a = (__u32)(key[0] + 0x9e3779b1U), b = (__u32)(key[1] + 0x85ebca77U), c = (__u32)(key[2] + 0xc2b2ae3dU), d = (__u32)(key[3] + 0x27d4eb2fU);
	__u64 x = a * b + c * d;

	return x ^ x >> 32;
}

#define BEST_ODD1 0x9fb21c651e98df25ULL
#define BEST_ODD2 0xd6e8feb86659fd93ULL

/* A good hash of 16 bytes: all 64 bits may be used. */
BEST_FN __u64 best_hash16(const __u32 key[4])
{
	__u64 x = best_fold16(key) * BEST_ODD1;

	return x ^ x >> 32;
}

/*
 * A count-min update of 2 to 8 rows. A row's column is a slice of its own from one of two products of the key's 64 bits, as many as have
 * at least 16 bits below them: as good as independent, and per row a shift and a mask. Counters stop at their end, as the library's do.
 * rows and log2cols are constants; so are the fold's four numbers, which are its seed, as the library's seed is constant here.
 */
BEST_FN void best_cms_add(__u32 *counters, __u32 rows, __u32 log2cols, const __u32 key[4])
{
	const __u32 slices = 48 / log2cols;
	__u64 key64 = best_fold16(key), x = key64 * BEST_ODD1;
	char *middle = (char *)counters;

#pragma unroll
	for (__u32 i = 0; i < rows; i++) {
		__u64 at, sum;
		__u32 *counter;

		if (i == slices)
			x = key64 * BEST_ODD2;
		/* An instruction reaches 32 KiB to both sides: from the middle of four rows of 4,096 to all of them. */
		if (rows > 2 && i % 4 == 0) {
			middle = (char *)counters + ((i + 2ULL) << (log2cols + 2));
			BEST_HIDE(middle);
		}
		/* The column times 4 at once; hidden, or the compiler would shift twice. */
		at = x >> (62 - log2cols * (i % slices + 1)) & (((1ULL << log2cols) - 1) << 2);
		BEST_HIDE(at);
		counter = (__u32 *)(middle + at + (rows > 2 ? (__s64)(i % 4) - 2 : i) * (4LL << log2cols));
		sum = *counter + 1ULL;
		BEST_HIDE(sum); /* or it would be a branch */
		*counter = sum - (sum >> 32);
	}
}

/*
 * The next state of a linear congruential generator (multiplier: Steele and Vigna), of which the upper half is good: two instructions. The
 * state may start as anything.
 */
BEST_FN __u64 best_next(__u64 *state)
{
	return *state = *state * 0xd1342543de82ef95ULL + 1;
}

/* A random 32-bit number, as of bpf_get_prandom_u32(). */
BEST_FN __u32 best_random(__u64 *state)
{
	return best_next(state) >> 32;
}

/*
 * How many to pass over until the next one is taken with probability p: the geometric distribution, exact to 2^-32, as Walker's alias
 * table. Place i of 256 stands for i with a chance of keep / 2^32 and else for other; 255 stands for "255 or more". The second number is
 * chosen by a load, not by a branch. User space fills it.
 */
#define BEST_GAP_MORE 255
struct best_gap {
	__u32 keep;
	__u8 other, self, unused[2];
};

struct best_sampler {
	__u64 random;
	__u32 gap;	/* how many are still passed over; 0 in fresh memory takes the first */
	__u32 step;	/* what a NitroSketch adds: 1/p, in whatever unit */
	struct best_gap gaps[256];
};

BEST_FN __u32 best_gap_draw(struct best_sampler *s)
{
	__u32 gap = 0;

	/* Four times 255 in a row have a chance of 10^-9 at 2 %; it ends there. */
#pragma nounroll
	for (int i = 0; i < 4; i++) {
		__u64 x = best_next(&s->random), at = x >> 53 & 255 << 3, less;
		__u8 *place, more;

		BEST_HIDE(at);
		place = (__u8 *)s->gaps + at;
		less = (__u32)(x >> 21) - (__u64)*(__u32 *)place;
		BEST_HIDE(less); /* or it would be a branch */
		more = place[(less >> 63) + 4];
		gap += more;
		if (__builtin_expect(more != BEST_GAP_MORE, 1))
			break;
	}
	return gap;
}

/* Is this one taken, with probability p? */
BEST_FN __u32 best_sample(struct best_sampler *s)
{
	__u32 gap = s->gap;

	if (__builtin_expect(gap != 0, 1)) {
		s->gap = gap - 1;
		return 0;
	}
	s->gap = best_gap_draw(s);
	return 1;
}

/*
 * NitroSketch in 8 rows: all rows of all packets stand in one line, of which each is taken with probability p; so the sampler says how
 * many to pass over, and a packet that passes over 8 costs a subtraction. Each row has its own multiplication for the column and for
 * the sign, as a count sketch has it. Did it do anything?
 */
BEST_FN __u32 best_nitro(struct best_sampler *s, __u32 *counters, __u32 log2cols, const __u32 key[4])
{
	static const __u64 odd[8] = {
		BEST_ODD1, BEST_ODD2, 0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL,
		0xff51afd7ed558ccdULL, 0xc4ceb9fe1a85ec53ULL, 0xa0761d6478bd642fULL, 0xe7037ed1a0b428dbULL };
	__u32 row = s->gap;
	__u64 key64;

	if (row >= 8) {
		s->gap = row - 8;
		return 0;
	}
	key64 = best_fold16(key);
	for (int i = 0; i < 8; i++) { /* rows only grow: 8 turns at most, which the verifier need not prove from them */
		__u64 r = row & 7, at, negative;

		BEST_HIDE(r);
		at = key64 * odd[r];
		negative = 0 - (at >> 40 & 1);
		BEST_HIDE(negative);
		at = at >> (62 - log2cols) & (((1ULL << log2cols) - 1) << 2);
		BEST_HIDE(at);
		*(__u32 *)((char *)counters + (r << (log2cols + 2)) + at) += (s->step ^ (__u32)negative) - (__u32)negative;
		row += 1 + best_gap_draw(s);
		if (row >= 8)
			break;
	}
	s->gap = row - 8;
	return 1;
}

#endif
