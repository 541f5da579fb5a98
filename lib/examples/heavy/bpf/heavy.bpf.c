/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Keeps the 64 heaviest flows: HeavyKeeper estimates, a top-k table remembers. Passes every packet. */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/flow.h>
#include <shunt/hkeeper.h>
#include <shunt/topk.h>

#define ROWS 2
#define LOG2SLOTS 10

SHUNT_TOPK(top, struct shunt_flow, 64)

struct monitor {
	__u64 state;	/* of the random numbers; user space seeds it */
	__u64 packets;
	struct shunt_hk_slot slot[ROWS << LOG2SLOTS];
	struct top top;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct monitor);
} monitor SEC(".maps");

volatile const __u64 seed;

SEC("xdp") int heavy(struct xdp_md *ctx)
{
	struct monitor *m = bpf_map_lookup_elem(&monitor, &(__u32){ 0 });
	struct shunt_flow flow;
	__u64 hash;

	if (!m || shunt_flow_of((void *)(long)ctx->data, (void *)(long)ctx->data_end, &flow))
		return XDP_PASS;
	m->packets++;
	hash = shunt_hash64(&flow, sizeof(flow), seed);
	top_offer(&m->top, &flow, hash, shunt_hk_add(m->slot, ROWS, LOG2SLOTS, &m->state, hash));
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
