/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the hooks, for XDP. */
#ifndef SHUNT_CTX_XDP_H
#define SHUNT_CTX_XDP_H

#include "common.h"
#include "kernel.h"

#define HOOK_XDP 1
#define HOOK 0			/* in port_config */
typedef struct xdp_md ctx_t;

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
	return ctx->ingress_ifindex;
}

/* Frames carry none. */
always_inline __u32 ctx_mark(ctx_t *ctx)
{
	return 0;
}

always_inline __u64 ctx_len(ctx_t *ctx)
{
	return ctx->data_end - ctx->data;
}

/* Bytes of the whole frame. Asking the kernel is a call, needed only where it came in several buffers. */
always_inline __u32 frame_len(ctx_t *ctx)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct xdp_buff *xdp = bpf_rdonly_cast(ctx, 0);

		if (bpf_core_field_exists(xdp->flags) && !(xdp->flags & XDP_FLAGS_HAS_FRAGS))
			return ctx_len(ctx);
	}
	return bpf_xdp_get_buff_len(ctx);
}

/* `explain` runs the program with a marked metadata area; drivers without metadata set data_meta behind data. */
always_inline struct shunt_trace *traced(ctx_t *ctx)
{
	struct shunt_trace *t = (void *)(long)ctx->data_meta;

	if ((void *)(t + 1) > ctx_data(ctx) || t->magic != SHUNT_TRACE_MAGIC)
		return NULL;
	return t;
}

always_inline void trace(ctx_t *ctx, __u32 reason, __u32 egress)
{
	struct shunt_trace *t = traced(ctx);

	if (!t)
		return;
	t->reason = reason;
	t->egress = egress;
}

/*
 * The context is the kernel's struct xdp_buff. bpf_cast_to_kern_ctx() says so to the verifier, which then searches all types for it at
 * every load (1.5 ms on 6.18); where untrusted memory can be read, the same is had without. Before 6.2 a checked probe has to do.
 */
always_inline struct net *device_net(ctx_t *ctx)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct xdp_buff *xdp = bpf_rdonly_cast(ctx, 0);
		struct xdp_rxq_info *rxq = bpf_rdonly_cast(xdp->rxq, 0);
		struct net_device *dev = bpf_rdonly_cast(rxq->dev, 0);

		return dev->nd_net.net;
	} else if (frozen.kern_ctx == SHUNT_CTX_CAST) {
		struct xdp_buff *xdp = bpf_cast_to_kern_ctx(ctx);

		return xdp->rxq->dev->nd_net.net;
	} else {
		struct xdp_buff *xdp = (void *)ctx;

		return BPF_CORE_READ(xdp, rxq, dev, nd_net.net);
	}
}

/* Address of the struct net_device that the frame came by. */
always_inline __u64 device_at(ctx_t *ctx)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		struct xdp_buff *xdp = bpf_rdonly_cast(ctx, 0);
		struct xdp_rxq_info *rxq = bpf_rdonly_cast(xdp->rxq, 0);

		return (__u64)rxq->dev;
	} else {
		struct xdp_buff *xdp = (void *)ctx;

		return (__u64)BPF_CORE_READ(xdp, rxq, dev);
	}
}

#define CHECKSUM_PARTIAL 3

/*
 * On veth a frame may be a socket buffer of the peer. Then the checksum or segmentation may still be to be done and the VLAN
 * tag may be beside the frame, all of which XDP_REDIRECT would lose. Frames redirected into the veth as XDP frames, as from
 * a wire, have no socket buffer. (struct veth_xdp_buff, drivers/net/veth.c, Linux 6.3)
 */
always_inline int has_offload(ctx_t *ctx)
{
	struct skb_shared_info *shared;
	struct sk_buff *skb = NULL;
	struct veth_xdp_buff *v;
	unsigned short gso = 0;

	if (frozen.peek == SHUNT_PEEK_CAST) {
		v = bpf_rdonly_cast(ctx, 0);
		skb = v->skb;
	} else {
		v = bpf_cast_to_kern_ctx(ctx);
		bpf_core_read(&skb, sizeof(skb), &v->skb);
	}
	/* A test run is no veth_xdp_buff: what was read is whatever lies behind its buffer. */
	if (!skb || traced(ctx))
		return 0;
	if (BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) == CHECKSUM_PARTIAL || BPF_CORE_READ(skb, vlan_all))
		return 1;
	shared = (void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	bpf_core_read(&gso, sizeof(gso), &shared->gso_size);
	return gso != 0;
}

/* Frames from a wire may have been checked by the card, but nothing tells here. */
always_inline int must_sum(ctx_t *ctx)
{
	return 1;
}

always_inline long load_bytes(ctx_t *ctx, __u32 off, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, off, to, len);
}

always_inline struct nf_conn *ct_lookup(ctx_t *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts___shunt *opts, __u32 len)
{
	return bpf_xdp_ct_lookup(ctx, tuple, size, opts, len);
}

#endif
