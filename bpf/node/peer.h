/* SPDX-License-Identifier: GPL-2.0 */
/*
 * peer: a bridged frame straight into the other end of a veth, a container's interface.
 *
 * Problem: a frame that is sent by a veth waits for another soft interrupt before the other end receives it.
 * Mechanism: bpf_redirect_peer() goes on with the other end as if it had received the frame. What the way through the veth would have done is done or asked
 * here, in the order of veth_xmit() and __dev_forward_skb(); what the host has on its end (queueing, filters, listeners) is known to be nothing (internal/graph).
 * Invariant: where anything in the other namespace would see a difference, an XDP program, an address that is not the frame's, a smaller MTU, the frame is sent as ever.
 */
#ifndef SHUNT_NODE_PEER_H
#define SHUNT_NODE_PEER_H

#include "layout.h"
#include "vlan.h"

#define IFF_UP	(1 << 0)

/* Would the other end of the veth at `dev` receive a frame of that length (0: still to be segmented), which bears the address `mac`, just so? */
always_inline int peer_would(struct memory m, __u64 dev, __u64 mac, __u32 len)
{
	__u64 peer;

	peer = BRIDGE8(m, dev, veth_peer);
	if (!peer || !(BRIDGE4(m, peer, dev_flags) & IFF_UP) || BRIDGE8(m, peer, dev_xdp))
		return 0;
	if (BRIDGE8(m, peer, dev_net) == BRIDGE8(m, dev, dev_net))	/* the kernel would drop it */
		return 0;
	if (len > BRIDGE4(m, peer, dev_mtu) + (__u32)(sizeof(struct eth) + sizeof(struct vlan_tag)))
		return 0;
	return memory8(m, BRIDGE8(m, peer, dev_addr), 0) << 16 == mac << 16;	/* of MAX_ADDR_LEN */
}

/*
 * Has some device looked at it? What a virtual machine or a tap hands over to be segmented is taken at its word until the first device sends it: a veth has its headers checked, its segments
 * counted and its checksum prepared then (validate_xmit_skb(), SKB_GSO_DODGY), or drops it. The other end of the veth would receive it as it came.
 */
always_inline int seen_by_device(struct packet *p)
{
	return !is_gso(p) || p->ctx->gso_segs;
}

/* The same of the frame as it is. */
always_inline int peer_takes(struct packet *p, struct memory m, __u64 dev)
{
	struct eth *eth = p->data;

	if ((void *)(eth + 1) > packet_end(p))
		return 0;
	return peer_would(m, dev, *(__u64 *)p->data << 16 >> 16, is_gso(p) ? 0 : p->len);
}

/* What bpf_redirect() sends by the veth at `dev` passes by a generic XDP program at the other end, which Linux would run (skb->redirected, netif_receive_generic_xdp()). Is there one? */
always_inline int passes_by(struct memory m, __u64 dev)
{
	__u64 peer = frozen.bridges.veth_end ? BRIDGE8(m, dev, veth_end) : 0;

	return peer && BRIDGE8(m, peer, dev_xdp_skb);
}

/* Older kernels leave to the program what veth_xmit() clears where a frame changes its namespace. */
always_inline int redirect_peer(struct packet *p, __u32 out)
{
	ctx_t *ctx = p->ctx;

	ctx->mark = 0;
	ctx->priority = 0;
	if (ctx->pkt_type != PACKET_HOST)
		bpf_skb_change_type(ctx, PACKET_HOST);
	return bpf_redirect_peer(out, 0);
}

#endif
