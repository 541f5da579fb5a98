/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Each operation as an XDP program that does it 256 times over random words, eight to a turn; BPF_PROG_TEST_RUN repeats and times it. */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/def.h>
#include "words.h"

struct turn {
	__u64 x, sum;
	struct bench_memory *m;
};

#define OPERATION(name, ...)							\
	static long name##_turn(__u32 i, struct turn *t)			\
	{									\
		struct bench_memory *m = bpf_map_lookup_elem(&memory, &(__u32){ 0 });	\
		__u64 base = t->x, sum = 0, before = t->sum;			\
		if (!m)								\
			return 1;						\
		_Pragma("unroll")						\
		for (int k = 0; k < EACH_TURN; k++) {				\
			__u64 x = BENCH_WORD(base, k), r;			\
			(void)x; /* some need none */				\
			(void)before;						\
			__VA_ARGS__;						\
			sum += r;						\
		}								\
		t->sum += sum;							\
		t->x = BENCH_NEXT(base);					\
		return 0;							\
	}									\
	SEC("xdp") int name(struct xdp_md *ctx)					\
	{									\
		struct bench_memory *m = bpf_map_lookup_elem(&memory, &(__u32){ 0 });	\
		struct turn t = {};						\
		if (!m)								\
			return 0;						\
		t.x = m->x ? m->x : BENCH_FIRST;				\
		bpf_loop(TURNS, name##_turn, &t, 0);				\
		m->x = t.x;							\
		return t.sum & 0x7fffffff;					\
	}

struct bench_memory;
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, 8 + 16 + 8 + 2048 + 8192 + (4 * 8 << 12) + 16 + 2048);
} memory SEC(".maps");

#include "operations.h"

_Static_assert(sizeof(struct bench_memory) == 8 + 16 + 8 + 2048 + 8192 + (4 * 8 << 12) + 16 + 2048, "the map's value is the memory");

/* The helper has no native form. */
OPERATION(random_common, r = bpf_get_prandom_u32())
#define COMMON_2_PERCENT 85899345 /* of 2^32 */
OPERATION(sample_common, r = bpf_get_prandom_u32() < COMMON_2_PERCENT)
/* How many are passed over, one random number for each. Global, so that it is verified once. */
__noinline __u64 common_draw(void)
{
	for (int n = 0; n < 1024; n++)
		if (bpf_get_prandom_u32() < COMMON_2_PERCENT)
			return n;
	return 1024;
}
OPERATION(draw_common, r = common_draw())

char _license[] SEC("license") = "Dual BSD/GPL";
