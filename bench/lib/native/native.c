// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * The operations in user space, compiled for the very processor: what they cost without eBPF. bench-lib compiles this with clang-19 where
 * there is one and runs it in turns with the programs: native TURNS prints, for each operation, its name, nanoseconds and the sum of
 * 256 of its results.
 */
#include <immintrin.h>
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <shunt/def.h>
#include "../bpf/words.h"

struct bench_memory;
struct operation {
	const char *name;
	__u64 (*run)(struct bench_memory *m);
};

#define OPERATION(name, ...)							\
	static __attribute__((noinline)) __u64 name##_turn(struct bench_memory *m, __u64 base, __u64 before)	\
	{									\
		__u64 sum = 0;							\
		_Pragma("unroll")						\
		for (int k = 0; k < EACH_TURN; k++) {				\
			__u64 x = BENCH_WORD(base, k), r;			\
			(void)x;						\
			(void)before;						\
			__VA_ARGS__;						\
			sum += r;						\
		}								\
		return sum;							\
	}									\
	static __attribute__((noinline)) __u64 name##_run(struct bench_memory *m)	\
	{									\
		__u64 base = m->x ? m->x : BENCH_FIRST, sum = 0;		\
		for (int i = 0; i < TURNS; i++) {				\
			sum += name##_turn(m, base, sum);				\
			base = BENCH_NEXT(base);				\
		}								\
		m->x = base;							\
		return sum & 0x7fffffff;					\
	}

#include "../bpf/operations.h"

/* What the processor has an instruction for. */
OPERATION(match_native, __m256i all = _mm256_loadu_si256((void *)m->bucket[x & 255].one);
	  all = _mm256_cmpeq_epi16(all, _mm256_set1_epi16(x >> 56));
	  r = _pext_u32(_mm256_movemask_epi8(all), 0x55555555))
/* The same behind a call, which is the only way that a program could have them: a kfunc is never inlined. */
static __attribute__((noinline)) __u32 called_ctz(__u64 x) { return __builtin_ctzll(x); }
static __attribute__((noinline)) __u32 called_match(const __u16 *print, __u16 v)
{
	__m256i all = _mm256_cmpeq_epi16(_mm256_loadu_si256((const void *)print), _mm256_set1_epi16(v));

	return _pext_u32(_mm256_movemask_epi8(all), 0x55555555);
}
OPERATION(ctz_called, r = called_ctz(ONE_BIT(x)))
OPERATION(chain_ctz_called, r = called_ctz(ONE_BIT(CHAINED)))
OPERATION(match_called, r = called_match(m->bucket[x & 255].one, x >> 56))
OPERATION(hash_crc32, __u32 key[4] = KEY(x); r = _mm_crc32_u64(_mm_crc32_u64(7, *(__u64 *)key), *(__u64 *)(key + 2)) != 0)

OPERATION(crc32c_native, __u32 key[4] = KEY(x); r = (__u32)~_mm_crc32_u64(_mm_crc32_u64(~0U, *(__u64 *)key), *(__u64 *)(key + 2)))

#define ENTRY(name) { #name, name##_run }
static const struct operation all[] = {
	ENTRY(empty), ENTRY(ctz_common), ENTRY(ctz_builtin), ENTRY(ctz_shunt), ENTRY(chain_ctz_builtin), ENTRY(chain_ctz_shunt),
	ENTRY(ctz_called), ENTRY(chain_ctz_called),
	ENTRY(clz_common), ENTRY(clz_builtin), ENTRY(clz_shunt), ENTRY(popcount_common), ENTRY(popcount_builtin), ENTRY(popcount_shunt),
	ENTRY(rotate_common), ENTRY(rotate_shunt), ENTRY(random_shunt), ENTRY(sample_shunt), ENTRY(draw_shunt), ENTRY(match_common),
	ENTRY(match_shunt), ENTRY(match15_shunt), ENTRY(match_native), ENTRY(match_called), ENTRY(hash_common), ENTRY(hash_shunt), ENTRY(hash_crc32), ENTRY(hash8_common),
	ENTRY(hash8_shunt), ENTRY(crc32c_common), ENTRY(crc32c_shunt), ENTRY(crc32c_native), ENTRY(cms4_common), ENTRY(cms4_shunt),
	ENTRY(cms8_common), ENTRY(cms8_shunt),
};

#define BATCHES 20

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* How much was counted in all, if it is the same in every row, or 0. */
static __u64 rows_of(const struct bench_memory *m, int rows)
{
	__u64 first = 0;

	for (int row = 0; row < rows; row++) {
		__u64 sum = 0;

		for (int col = 0; col < 1 << LOG2COLS; col++)
			sum += m->counter[(row << LOG2COLS) + col];
		if (row && sum != first)
			return 0;
		first = sum;
	}
	return first * rows;
}

int main(int argc, char **argv)
{
	static struct bench_memory m;
	int turns = argc == 2 ? atoi(argv[1]) : 0;

	if (turns <= 0) {
		fprintf(stderr, "usage: native TURNS\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		__u64 sum, found;
		double start, least = 0;

		memset(&m, 0, sizeof(m));
		m.state = m.sampler.state = 88172645463325252ULL;
		shunt_geo_fill(&m.geo, 0.02);
		for (__u32 b = 0; b < 256; b++)
			for (__u32 p = 0; p < 16; p++)
				m.bucket[b].one[p] = ((b * 16 + p) * 0x9e3779b1U) >> 24;
		sum = all[i].run(&m);
		if (!strncmp(all[i].name, "cms", 3)) /* what these did is in their counters */
			sum = rows_of(&m, all[i].name[3] - '0');
		/* The fastest of many batches: what else the machine does can only add. */
		for (int batch = 0; batch < BATCHES; batch++) {
			int turn;
			double took;

			start = now();
			for (turn = 0; turn == 0 || turn < turns / BATCHES; turn++) {
				found = all[i].run(&m);
				asm volatile("" :: "r"(found) : "memory"); /* or it would not be computed, or once for all turns */
			}
			took = (now() - start) / turn;
			if (!batch || took < least)
				least = took;
		}
		printf("%s %.4f %llu\n", all[i].name, least / (TURNS * EACH_TURN), (unsigned long long)sum);
	}
	return 0;
}
