/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Finds the set that a packet's source address is in, counts for it, and does what was chosen for it: pass or drop. Addresses themselves are
 * not stored, only 4 bytes for each.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/flow.h>
#include <shunt/hash.h>
#include <shunt/htss.h>

#define SETS 256

SHUNT_HTSS(summary, 14) /* 2^18 addresses in 1 MiB */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct summary);
} summary SEC(".maps");

struct tally {
	__u64 packets, bytes;
};

struct {	/* by set; 0 for those in none */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SETS);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* What is done with packets of a set. */
volatile const __u8 drop[SETS];
/* So that nobody can choose addresses that are taken for others. */
volatile const __u64 seed;

SEC("xdp") int membership(struct xdp_md *ctx)
{
	struct summary *s = bpf_map_lookup_elem(&summary, &(__u32){ 0 });
	struct shunt_flow flow;
	struct tally *t;
	__u32 set;

	if (!s || shunt_flow_of((void *)(long)ctx->data, (void *)(long)ctx->data_end, &flow))
		return XDP_PASS;
	set = summary_lookup(s, shunt_hash64(flow.from, sizeof(flow.from), seed));
	set = SHUNT_MASK(set, SETS - 1);
	t = bpf_map_lookup_elem(&tallies, &set);
	if (!t)
		return XDP_PASS;
	t->packets++;
	t->bytes += ctx->data_end - ctx->data;
	/* Masked again: Linux 6.1 does not know what it reads back from where a map's key lay. */
	return drop[SHUNT_MASK(set, SETS - 1)] ? XDP_DROP : XDP_PASS;
}

struct change {
	__u8 address[16];
	__u16 set;
	__u8 remove;
} __attribute__((packed));

/* User space runs this on "frames" that are changes, one at a time. 0: done; 1: the table is full, or what is to go is not there. */
SEC("xdp") int change(struct xdp_md *ctx)
{
	struct summary *s = bpf_map_lookup_elem(&summary, &(__u32){ 0 });
	struct change *c = (void *)(long)ctx->data;
	__u8 address[16] __attribute__((aligned(8)));
	__u64 hash;

	if (!s || (void *)(c + 1) > (void *)(long)ctx->data_end)
		return 1;
	__builtin_memcpy(address, c->address, sizeof(address));
	hash = shunt_hash64(address, sizeof(address), seed);
	if (c->remove)
		return !summary_delete(s, hash, c->set);
	return summary_add(s, hash, c->set) != SHUNT_HTSS_ADDED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
