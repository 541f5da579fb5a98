/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Runs a script of operations on a structure: user space fills the steps, runs the program once, and reads what each step gave. A test
 * is one function that does one step; STEPS(name, function) makes an XDP program of it.
 */
#ifndef LIB_TEST_HARNESS_H
#define LIB_TEST_HARNESS_H

#include <linux/bpf.h>
#include <bpf_helpers.h>

#define MAX_STEPS 4096

struct step {
	__u32 op, arg;
	__u64 a, b;
	__u64 out;
};

struct script {
	struct step step[MAX_STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct script);
} script SEC(".maps");

/* How many steps to run: the first two words of the frame that the program is run on say first and count. */
struct span {
	__u32 first, count;
};

/* step_fn: static __u64 (struct step *s), what goes to s->out. bpf_loop() verifies it once, on every kernel from 5.17 on. */
#define STEPS(name, step_fn)						\
	static long name##_turn(__u32 i, void *ctx)			\
	{								\
		struct span *span = ctx;				\
		struct script *all = bpf_map_lookup_elem(&script, &(__u32){ 0 });	\
		__u32 at = (span->first + i) & (MAX_STEPS - 1);		\
		if (!all)						\
			return 1;					\
		all->step[at].out = step_fn(&all->step[at]);		\
		return 0;						\
	}								\
	SEC("xdp") int name(struct xdp_md *ctx)				\
	{								\
		void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;	\
		struct span span;					\
		if (data + sizeof(span) > end)				\
			return XDP_ABORTED;				\
		span = *(struct span *)data;				\
		return bpf_loop(span.count & (2 * MAX_STEPS - 1), name##_turn, &span, 0) == span.count ? XDP_PASS : XDP_ABORTED;	\
	}

/* One structure of a type, zeroed, in a map of its own that user space may read and write. */
#define ONE(TYPE, NAME)						\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(max_entries, 1);				\
		__type(key, __u32);				\
		__type(value, TYPE);				\
	} NAME SEC(".maps")

#define THE(name) bpf_map_lookup_elem(&name, &(__u32){ 0 })

char _license[] SEC("license") = "Dual BSD/GPL";

#endif
