// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * The structures in user space, from the same headers: structures TURNS prints, for each operation and number of elements, its name,
 * nanoseconds and the sum of 256 of its results, as bpf/structures.bpf.c computes it.
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../bpf/structures.h"
#include "../bpf/words.h"

#define TIMES 256

static struct {
	struct bench_skip skip;
	struct bench_queue queue;
	struct bench_wheel wheel;
	struct bench_table table;
	struct bench_htss htss;
	struct bench_bloom bloom;
	struct bench_blocked blocked;
	struct bench_filter filter;
	struct bench_heavy heavy;
	struct bench_buckets buckets;
	struct bench_list list;
	struct bench_tree tree;
	struct bench_maglev maglev;
	__u64 now, x;
} memory __attribute__((aligned(4096)));

#define PROGRAM(name, times, ...)						\
	static __attribute__((noinline)) __u64 name(__u32 n)			\
	{									\
		int goes_on = __builtin_constant_p(times);			\
		__u64 state = goes_on && memory.x ? memory.x : BENCH_FIRST, sum = 0;	\
		for (__u32 turn = 0; turn < (times); turn++) {			\
			__u64 x = state;					\
			__u32 i;						\
			state = BENCH_NEXT(x);					\
			x ^= x >> 29;						\
			i = (x >> 32) * n >> 32;				\
			(void)i;						\
			sum += ({ __VA_ARGS__; });				\
		}								\
		memory.x = goes_on ? state : BENCH_FIRST;			\
		return sum & 0x7fffffff;					\
	}

PROGRAM(loop_empty, TIMES, SHUNT_HIDE(i); i)
#define M(part) (&memory.part)
PROGRAM(skip_fill, n, bench_skip_fill(M(skip), turn))
PROGRAM(skip_get, TIMES, bench_skip_get(M(skip), i))
PROGRAM(skip_update, TIMES, bench_skip_update(M(skip), i))
PROGRAM(queue_fill, n, bench_queue_fill(M(queue), turn, x))
PROGRAM(queue_turn, TIMES, bench_queue_turn(M(queue), x))
PROGRAM(wheel_fill, n, bench_wheel_fill(M(wheel), turn, x))
PROGRAM(wheel_turn, TIMES, bench_wheel_turn(M(wheel), x, &memory.now))
PROGRAM(table_fill, n, bench_table_fill(M(table), turn))
PROGRAM(table_get, TIMES, bench_table_get(M(table), i))
PROGRAM(htss_fill, n, bench_htss_fill(M(htss), turn))
PROGRAM(htss_get, TIMES, bench_htss_get(M(htss), i))
PROGRAM(heavy_add, TIMES, bench_heavy_add(M(heavy), BENCH_WORD(memory.now++, 0) >> 52))
PROGRAM(bloom_fill, n, bench_bloom_fill(M(bloom), turn))
PROGRAM(bloom_get, TIMES, bench_bloom_get(M(bloom), i))
PROGRAM(blocked_fill, n, bench_blocked_fill(M(blocked), turn))
PROGRAM(blocked_get, TIMES, bench_blocked_get(M(blocked), i))
PROGRAM(filter_fill, n, bench_filter_fill(M(filter), turn))
PROGRAM(filter_get, TIMES, bench_filter_get(M(filter), i))
PROGRAM(bucket_fill, n, bench_bucket_fill(M(buckets), turn))
PROGRAM(bucket_turn, TIMES, bench_bucket_turn(M(buckets), x))
PROGRAM(list_fill, n, bench_list_fill(M(list), turn))
PROGRAM(list_turn, TIMES, bench_list_turn(M(list)))
PROGRAM(rank_fill, n, bench_tree_fill(M(tree), turn, x & 4095))
PROGRAM(rank_turn, TIMES, bench_tree_turn(M(tree), x))
PROGRAM(tree_fill, n, bench_tree_fill(M(tree), turn, bench_key_of(turn)))
PROGRAM(tree_get, TIMES, bench_tree_get(M(tree), i))
PROGRAM(maglev_fill, n, bench_maglev_fill(M(maglev), turn))
PROGRAM(maglev_get, TIMES, bench_maglev_get(M(maglev), i))

#define BATCHES 20

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void measure(const char *name, __u64 (*fill)(__u32), __u64 (*run)(__u32), __u32 n, int turns)
{
	double start, least = 0;
	__u64 sum, found;

	memset(&memory, 0, sizeof(memory));
	if (fill)
		fill(n);
	sum = run(n);
	/* The fastest of many batches: what else the machine does can only add. */
	for (int batch = 0; batch < BATCHES; batch++) {
		int turn;
		double took;

		start = now();
		for (turn = 0; turn == 0 || turn < turns / BATCHES; turn++) {
			found = run(n);
			asm volatile("" :: "r"(found) : "memory"); /* or it would not be computed, or once for all turns */
		}
		took = (now() - start) / turn;
		if (!batch || took < least)
			least = took;
	}
	printf("%s/%u %.4f %llu\n", name, n, least / TIMES, (unsigned long long)sum);
}

int main(int argc, char **argv)
{
	int turns = argc == 2 ? atoi(argv[1]) : 0;

	if (turns <= 0) {
		fprintf(stderr, "usage: structures TURNS\n");
		return 2;
	}
	measure("loop_empty", NULL, loop_empty, 1, turns);
	for (__u32 n = 1 << 12; n <= 1 << 16; n *= 2) {
		measure("skip_get", skip_fill, skip_get, n, turns);
		measure("skip_update", skip_fill, skip_update, n, turns);
	}
	measure("queue_turn", queue_fill, queue_turn, 2048, turns);
	measure("wheel_turn", wheel_fill, wheel_turn, 2048, turns);
	for (__u32 percent = 10; percent <= 100; percent += percent < 25 ? 15 : 25)
		measure("table_get", table_fill, table_get, 4096 * percent / 100, turns);
	for (__u32 percent = 25; percent <= 75; percent += 25)
		measure("htss_get", htss_fill, htss_get, 4096 * percent / 100, turns);
	measure("heavy_add", NULL, heavy_add, 4096, turns);
	measure("bloom_get", bloom_fill, bloom_get, 4096, turns);
	measure("blocked_get", blocked_fill, blocked_get, 4096, turns);
	measure("filter_get", filter_fill, filter_get, 2048, turns);
	measure("bucket_turn", bucket_fill, bucket_turn, 2048, turns);
	measure("list_turn", list_fill, list_turn, 4095, turns);
	measure("rank_turn", rank_fill, rank_turn, 2048, turns);
	measure("tree_get", tree_fill, tree_get, 4095, turns);
	measure("maglev_get", maglev_fill, maglev_get, 65537, turns);
	return 0;
}
