/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Counts packets by flow in a count-min sketch and passes them all. */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/cms.h>
#include <shunt/flow.h>

#define ROWS 4
#define LOG2COLS 10 /* 16 KiB: a per-CPU value may have 32 */

struct sketch {
	__u64 packets;
	__u32 counter[SHUNT_CMS_COUNTERS(ROWS, LOG2COLS)];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sketch);
} sketch SEC(".maps");

/* So that nobody can choose flows that collide. */
volatile const __u64 seed;

SEC("xdp") int countmin(struct xdp_md *ctx)
{
	struct sketch *s = bpf_map_lookup_elem(&sketch, &(__u32){ 0 });
	struct shunt_flow flow;

	if (!s || shunt_flow_of((void *)(long)ctx->data, (void *)(long)ctx->data_end, &flow))
		return XDP_PASS;
	s->packets++;
	shunt_cms_add(s->counter, ROWS, LOG2COLS, shunt_hash64(&flow, sizeof(flow), seed), 1);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
