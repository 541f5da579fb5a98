/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Structures, filled with as many elements as the frame's first word says, and operations on them, 256 per run.
 * structures_common.bpf.c compiles this once more, the common way, and structures_best.bpf.c the best plain way: no header of the library's structures then.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#if defined(BEST)
#include "best_turns.h"
#elif defined(COMMON)
#include "common_structures.h"
#else
#include "structures.h"
#endif
#include "words.h"

#define MAP(TYPE, NAME)						\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(max_entries, 1);				\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__type(key, __u32);				\
		__type(value, TYPE);				\
	} NAME SEC(".maps")
#define FIRST(map) bpf_map_lookup_elem(&map, &(__u32){ 0 })

/*
 * What changes from turn to turn lies in a map. On the stack it would be a number that the verifier knows, another one in each turn, and it
 * would follow all of them.
 */
struct clock { __u64 now, sum, x; };
MAP(struct bench_skip, skip);
MAP(struct bench_queue, queue);
MAP(struct bench_wheel, wheel);
MAP(struct bench_table, table);
MAP(struct bench_htss, htss);
MAP(struct bench_heavy, heavy);
#ifndef BEST
MAP(struct bench_bloom, bloom);
MAP(struct bench_filter, filter);
#endif
#if !defined(BEST) && !defined(COMMON)
MAP(struct bench_blocked, blocked);
MAP(struct bench_buckets, buckets);
MAP(struct bench_list, list);
MAP(struct bench_tree, tree);
MAP(struct bench_maglev, maglev);
#endif
MAP(struct clock, clock);

struct turn {
	__u32 n;
};

/*
 * A program that does `work` on m, an element i of n in hand, `times` times; returns the sum of what it found, or -1. Runs of TIMES go on
 * with other elements where the last one ended, or caches and predictors would know them by heart; fillings and checks are outside of that.
 */
#define PROGRAM(name, map, times, ...)						\
	static long name##_turn(__u32 turn, struct turn *t)			\
	{									\
		typeof(*(map.value)) *m = FIRST(map);				\
		struct clock *c = FIRST(clock);					\
		__u64 x;							\
		__u32 i;							\
		if (!m || !c)							\
			return 1;						\
		x = c->x;							\
		c->x = BENCH_NEXT(x);						\
		x ^= x >> 29;							\
		i = (x >> 32) * t->n >> 32;					\
		(void)i;							\
		(void)turn;							\
		c->sum += ({ __VA_ARGS__; });					\
		return 0;							\
	}									\
	SEC("xdp") int name(struct xdp_md *ctx)					\
	{									\
		__u32 *data = (void *)(long)ctx->data;				\
		struct turn t;							\
		struct clock *c = FIRST(clock);					\
		if ((void *)(data + 1) > (void *)(long)ctx->data_end || !c)	\
			return -1;						\
		c->sum = 0;							\
		if (!__builtin_constant_p(times) || !c->x)			\
			c->x = BENCH_FIRST;					\
		t.n = *data;							\
		bpf_loop(times, name##_turn, &t, 0);				\
		if (!__builtin_constant_p(times))				\
			c->x = BENCH_FIRST;					\
		return c->sum & 0x7fffffff;					\
	}

#define TIMES 256
PROGRAM(loop_empty, clock, TIMES, i)

PROGRAM(skip_fill, skip, t.n, bench_skip_fill(m, turn))
PROGRAM(skip_get, skip, TIMES, bench_skip_get(m, i))
PROGRAM(skip_update, skip, TIMES, bench_skip_update(m, i))

PROGRAM(queue_fill, queue, t.n, bench_queue_fill(m, turn, x))
PROGRAM(queue_turn, queue, TIMES, bench_queue_turn(m, x))

PROGRAM(wheel_fill, wheel, t.n, bench_wheel_fill(m, turn, x))
PROGRAM(wheel_turn, wheel, TIMES, bench_wheel_turn(m, x, &c->now))

PROGRAM(table_fill, table, t.n, bench_table_fill(m, turn))
PROGRAM(table_get, table, TIMES, bench_table_get(m, i))
/* How many of all keys have their own value: as many as were taken in. */
PROGRAM(table_check, table, t.n, bench_table_get(m, turn) == turn + 1)

PROGRAM(htss_fill, htss, t.n, bench_htss_fill(m, turn))
PROGRAM(htss_get, htss, TIMES, bench_htss_get(m, i))

/* Other packets in each run: it is their shares that matter. */
PROGRAM(heavy_add, heavy, TIMES, bench_heavy_add(m, BENCH_WORD(c->now++, 0) >> 52))
/* How many of the 32 heaviest flows are known to a tenth, after t.n packets in all. */
PROGRAM(heavy_check, heavy, 32 * BENCH_HEAVY_STEPS, ({
	__u32 count = bench_heavy_count(m, turn / BENCH_HEAVY_STEPS * 2 + 1, turn % BENCH_HEAVY_STEPS), want = t->n / 64;
	count > want - want / 10 && count < want + want / 10; }))

#ifndef BEST
PROGRAM(bloom_fill, bloom, t.n, bench_bloom_fill(m, turn))
PROGRAM(bloom_get, bloom, TIMES, bench_bloom_get(m, i))
PROGRAM(filter_fill, filter, t.n, bench_filter_fill(m, turn))
PROGRAM(filter_get, filter, TIMES, bench_filter_get(m, i))
#endif
#if !defined(BEST) && !defined(COMMON)
PROGRAM(blocked_fill, blocked, t.n, bench_blocked_fill(m, turn))
PROGRAM(blocked_get, blocked, TIMES, bench_blocked_get(m, i))
PROGRAM(bucket_fill, buckets, t.n, bench_bucket_fill(m, turn))
PROGRAM(bucket_turn, buckets, TIMES, bench_bucket_turn(m, x))
PROGRAM(list_fill, list, t.n, bench_list_fill(m, turn))
PROGRAM(list_turn, list, TIMES, bench_list_turn(m))
PROGRAM(rank_fill, tree, t.n, bench_tree_fill(m, turn, x & 4095))
PROGRAM(rank_turn, tree, TIMES, bench_tree_turn(m, x))
PROGRAM(tree_fill, tree, t.n, bench_tree_fill(m, turn, bench_key_of(turn)))
PROGRAM(tree_get, tree, TIMES, bench_tree_get(m, i))
PROGRAM(maglev_fill, maglev, t.n, bench_maglev_fill(m, turn))
PROGRAM(maglev_get, maglev, TIMES, bench_maglev_get(m, i))
#endif

/*
 * Whole functions: PACKET(name, map, work) reads a packet, takes its flow's number for i, does its work on m and drops the packet. What the
 * work gives says whether it was done.
 */
struct counts { __u64 packets, done; };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

#define PACKET(name, map, ...)							\
	SEC("xdp") int name(struct xdp_md *ctx)					\
	{									\
		__u8 *data = (void *)(long)ctx->data;				\
		typeof(*(map.value)) *m = FIRST(map);				\
		struct counts *k = FIRST(counts);				\
		struct clock *c = FIRST(clock);					\
		__u32 i;							\
		if (!m || !c || !k || (void *)(data + 42) > (void *)(long)ctx->data_end ||	\
		    data[12] != 8 || data[13] || data[14] != 0x45 || data[23] != 17)	\
			return XDP_PASS;					\
		i = ((data[30] << 24 | data[31] << 16 | data[32] << 8 | data[33]) - 0x10000001) >> 8;	\
		k->packets++;							\
		k->done += ({ __VA_ARGS__; }) != 0;				\
		return XDP_DROP;						\
	}

PACKET(packet_bare, clock, i + 1)
PACKET(packet_table, table, bench_table_get(m, i))
PACKET(packet_skip_get, skip, bench_skip_get(m, i))
PACKET(packet_skip_update, skip, bench_skip_update(m, i))
PACKET(packet_queue, queue, bench_queue_turn(m, bench_key_of(i) >> 20))
PACKET(packet_htss, htss, bench_htss_get(m, i) == BENCH_SET(i))
PACKET(packet_heavy, heavy, bench_heavy_add(m, i))
PACKET(packet_wheel, wheel, bench_wheel_turn(m, bench_key_of(i) >> 20, &c->now))

char _license[] SEC("license") = "Dual BSD/GPL";
