/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the hooks, for TC (tcx from 6.6 on, clsact before). */
#ifndef SHUNT_CTX_SKB_H
#define SHUNT_CTX_SKB_H

#include "common.h"
#include "kernel.h"

#define HOOK_TC 1
#define HOOK 1			/* in port_config */
typedef struct __sk_buff ctx_t;
#define TCX_NEXT_ (-1)		/* TCX_NEXT, TC_ACT_UNSPEC: whoever comes after us, then Linux */
#define TCX_DROP_ 2		/* TCX_DROP, TC_ACT_SHOT */
#define PACKET_HOST 0

always_inline void *ctx_data(ctx_t *ctx)
{
	return (void *)(long)ctx->data;
}

always_inline void *ctx_end(ctx_t *ctx)
{
	return (void *)(long)ctx->data_end;
}

always_inline __u32 ctx_ifindex(ctx_t *ctx)
{
	return ctx->ifindex;
}

/* Set by tc, or before the packet came through a device of this namespace. */
always_inline __u32 ctx_mark(ctx_t *ctx)
{
	return ctx->mark;
}

always_inline __u64 ctx_len(ctx_t *ctx)
{
	return ctx->len;
}

/* The control block is scratch space at this hook; test runs hand it back to `explain`, which marks it. */
always_inline int traced(ctx_t *ctx)
{
	return ctx->cb[0] == (__u32)SHUNT_TRACE_MAGIC && ctx->cb[1] == (__u32)(SHUNT_TRACE_MAGIC >> 32);
}

always_inline void trace(ctx_t *ctx, __u32 reason, __u32 egress)
{
	ctx->cb[3] = reason;
	ctx->cb[4] = egress;
}

/* The context is the kernel's struct sk_buff; see ctx_xdp.h for the ways to read it. */
always_inline struct net *device_net(ctx_t *ctx)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct sk_buff *skb = bpf_rdonly_cast(ctx, 0);
		struct net_device *dev = bpf_rdonly_cast(skb->dev, 0);

		return dev->nd_net.net;
	} else if (frozen.kern_ctx == SHUNT_CTX_CAST) {
		struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

		return skb->dev->nd_net.net;
	} else {
		struct sk_buff *skb = (void *)ctx;

		return BPF_CORE_READ(skb, dev, nd_net.net);
	}
}

/* Address of the struct net_device that the packet came by. */
always_inline __u64 device_at(ctx_t *ctx)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct sk_buff *skb = bpf_rdonly_cast(ctx, 0);

		return (__u64)skb->dev;
	} else {
		struct sk_buff *skb = (void *)ctx;

		return (__u64)BPF_CORE_READ(skb, dev);
	}
}

#define CHECKSUM_NONE 0
#define CHECKSUM_COMPLETE 2

/* Will connection tracking add up the packet's checksum? Not where the device or GRO has done so, nor where it is still to be filled in. */
always_inline int must_sum(ctx_t *ctx)
{
	__u8 summed;

	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct sk_buff *skb = bpf_rdonly_cast(ctx, 0);

		summed = BPF_CORE_READ_BITFIELD(skb, ip_summed);
	} else {
		struct sk_buff *skb = (void *)ctx;

		summed = BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed);
	}
	return summed == CHECKSUM_NONE || summed == CHECKSUM_COMPLETE;
}

always_inline long load_bytes(ctx_t *ctx, __u32 off, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, off, to, len);
}

always_inline struct nf_conn *ct_lookup(ctx_t *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts___shunt *opts, __u32 len)
{
	return bpf_skb_ct_lookup(ctx, tuple, size, opts, len);
}

#endif
