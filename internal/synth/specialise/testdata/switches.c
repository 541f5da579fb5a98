// SPDX-License-Identifier: GPL-2.0
/*
 * A small router node with switches, for the tests of the specialiser. With
 * -DPLAIN the same source has no switches and only what is always on; the
 * specialiser must reach that from the other object.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/in.h>
#include <linux/udp.h>
#include "bpf_helpers.h"
#include "bpf_endian.h"
#include "bpf_core_read.h"

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

struct xdp_rxq_info {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct xdp_buff {
	struct xdp_rxq_info *rxq;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

#ifdef PLAIN
#define ON(feature) 0
#else
struct settings {
	__u8 filter;
	__u8 count;
	__u8 guard;
	__u8 mark_loop;
	__u16 port;
	__u16 rules;
	__u32 ifindex;
	__u64 cookie;
};

const volatile struct settings cfg = {};
#define ON(feature) (cfg.feature)

struct rule {
	__u32 saddr;
	__u32 mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, struct rule);
	__type(value, __u32);
} rules SEC(".maps");

static __noinline int filtered(__u32 saddr, __u32 mask)
{
	struct rule key = { .saddr = saddr & mask, .mask = mask };
	__u32 *verdict = bpf_map_lookup_elem(&rules, &key);

	return verdict && *verdict == cfg.port;
}

static long each(__u32 index, void *ctx)
{
	__u32 *sum = ctx;

	*sum += index;
	return 0;
}
#endif

static __always_inline int trace(void)
{
	bpf_printk("a packet without a route");
	return XDP_PASS;
}

SEC("xdp.frags")
int route(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct bpf_fib_lookup fib = {};
	__u32 sum;

	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
#ifndef PLAIN
	if (ON(guard)) {
		struct xdp_buff *xdp = bpf_cast_to_kern_ctx(ctx);

		if (BPF_CORE_READ(xdp, rxq, dev, ifindex) != cfg.ifindex)
			return XDP_DROP;
	}
	if (ON(filter) && filtered(ip->saddr, ~0U << (cfg.rules & 31)))
		return XDP_DROP;
	if (ON(mark_loop)) {
		__u32 total = 0;

		bpf_loop(cfg.rules, each, &total, 0);
		if (total == cfg.cookie)
			return XDP_ABORTED;
	}
	if (ON(count)) {
		__u32 slot = ip->protocol & 15;
		__u64 *n = bpf_map_lookup_elem(&packets, &slot);

		if (n)
			*n += 1;
	}
#endif
	if (ip->ttl <= 1)
		return XDP_PASS;
	fib.family = 2;
	fib.tos = ip->tos;
	fib.l4_protocol = ip->protocol;
	fib.tot_len = bpf_ntohs(ip->tot_len);
	fib.ipv4_src = ip->saddr;
	fib.ipv4_dst = ip->daddr;
	fib.ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return trace();
	sum = ip->check + bpf_htons(0x0100);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return bpf_redirect(fib.ifindex, 0);
}

char _license[] SEC("license") = "GPL";
