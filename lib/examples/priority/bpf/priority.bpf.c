/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Notes packets for a reader who is slower than the wire, most important first: a record of each IP packet goes into a priority queue by its
 * DSCP, and user space takes out as many as it can use. Packets themselves pass.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/ffsqueue.h>
#include <shunt/flow.h>

#define SLOTS 1024
#define RANKS 64	/* 0 is DSCP 63 */

SHUNT_FFSQ(queue, 1, SLOTS)

struct record {
	struct shunt_flow flow;
	__u64 time;
	__u32 bytes, rank;
};

struct notes {
	struct queue queue;
	struct bpf_spin_lock lock;	/* of all of it */
	__u32 fresh;		/* slots from here on were never used */
	__u32 spare;		/* slots that were given back */
	__u32 given[SLOTS];	/* which ones */
	__u64 taken[RANKS], refused[RANKS];
	struct record record[SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct notes);
} notes SEC(".maps");

SEC("xdp") int priority(struct xdp_md *ctx)
{
	struct notes *n = bpf_map_lookup_elem(&notes, &(__u32){ 0 });
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct record new = {};
	__u32 class, slot;

	if (!n || data + 16 > end || shunt_flow_of(data, end, &new.flow))
		return XDP_PASS;
	/* With a VLAN tag in between, as if it were unmarked. */
	class = data[12] == 0x08 ? data[15] : data[12] == 0x86 ? data[14] << 4 | data[15] >> 4 : 0;
	new.rank = SHUNT_MASK(RANKS - 1 - ((class >> 2) & (RANKS - 1)), RANKS - 1);
	new.bytes = end - data;
	new.time = bpf_ktime_get_ns();

	bpf_spin_lock(&n->lock);
	/* The less important, the more slots it leaves for others: rank 63 half of all. */
	if (SLOTS - n->queue.q.count <= new.rank * (SLOTS / RANKS / 2)) {
		n->refused[new.rank]++;
	} else {
		if (n->spare) {
			n->spare--;
			slot = n->given[SHUNT_MASK(n->spare, SLOTS - 1)];
		} else {
			slot = n->fresh++;
		}
		slot = SHUNT_MASK(slot, SLOTS - 1);
		queue_push(&n->queue, slot, new.rank);
		n->taken[new.rank]++;
		n->record[slot] = new;
	}
	bpf_spin_unlock(&n->lock);
	return XDP_PASS;
}

/* User space runs this on a "frame" that the next record is written to. 0: it was; 1: there is none. */
SEC("xdp") int take(struct xdp_md *ctx)
{
	struct notes *n = bpf_map_lookup_elem(&notes, &(__u32){ 0 });
	struct record *out = (void *)(long)ctx->data, next = {};
	__u64 rank;
	int slot;

	if (!n || (void *)(out + 1) > (void *)(long)ctx->data_end)
		return 1;
	bpf_spin_lock(&n->lock);
	slot = queue_pop(&n->queue, &rank);
	if (slot >= 0) {
		next = n->record[SHUNT_MASK(slot, SLOTS - 1)];
		n->given[SHUNT_MASK(n->spare, SLOTS - 1)] = slot;
		n->spare++;
	}
	bpf_spin_unlock(&n->lock);
	if (slot < 0)
		return 1;
	*out = next;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
