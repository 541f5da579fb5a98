/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flows: which flows are heaviest, for `shunt top --flows`.
 *
 * Problem: a table of all flows has no bound and costs a lookup per packet.
 * Mechanism: one packet of 64 on average is counted by HeavyKeeper, and the 64 heaviest keys are kept, on each CPU for itself. How many packets are left
 * out in between is drawn beforehand, so these cost a subtraction. User space fills the table of gaps and the seeds (internal/datapath/flows.go) and adds up.
 * Invariant: the packet is read only, and nothing is decided here.
 */
#ifndef SHUNT_FLOWS_H
#define SHUNT_FLOWS_H

#include "../include/packet.h"

#define SHUNT_NO_TABLES	/* .rodata holds the configuration and nothing else */
#include <shunt/flow.h>
#include <shunt/hkeeper.h>
#include <shunt/rand.h>
#include <shunt/topk.h>

#define FLOW_ROWS 2
#define LOG2_FLOW_SLOTS 10

SHUNT_TOPK(top_flows, struct shunt_flow, 64)

struct flows {
	struct shunt_sampler sampler;
	__u64 seed;	/* 0: user space has not been here yet */
	__u64 sampled;
	struct shunt_geo gaps;
	struct shunt_hk_slot slot[FLOW_ROWS << LOG2_FLOW_SLOTS];
	struct top_flows top;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flows);
} flows SEC(".maps");

always_inline void note_flow(struct packet *p)
{
	struct shunt_flow flow;
	struct flows *f;
	__u32 first = 0;
	__u64 hash;

	if (!cfg.flows)
		return;
	f = bpf_map_lookup_elem(&flows, &first);
	if (!f || !f->seed || !shunt_sample(&f->sampler, &f->gaps) || shunt_flow_of(p->data, packet_end(p), &flow))
		return;
	f->sampled++;
	hash = shunt_hash64(&flow, sizeof(flow), f->seed);
	top_flows_offer(&f->top, &flow, hash, shunt_hk_add(f->slot, FLOW_ROWS, LOG2_FLOW_SLOTS, &f->sampler.state, hash));
}

#endif
