/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tunnel: out of one tunnel and into another.
 *
 * Problem: a tunnel's device hangs what the outer header said to a packet that it takes out of it (skb_tunnel_info()) as soon as anybody on the machine wants such metadata.
 * A packet that is routed loses that with its new route, and so does a bridged one that br_netfilter gives a route (br_nf_pre_routing_finish()). One that a program redirects keeps it, and the next tunnel's device takes it for orders: don't fragment and short ways are then not as that device is set to.
 * Mechanism: ask the kernel for it, where a packet out of a tunnel is to go into another.
 * Invariant: such a packet is Linux's.
 */
#ifndef SHUNT_NODE_TUNNEL_H
#define SHUNT_NODE_TUNNEL_H

#define EPROTO 71

/* Does the packet carry what a tunnel's outer header said? A function of its own, for its stack. */
__attribute__((noinline)) int from_tunnel(struct __sk_buff *ctx)
{
	struct bpf_tunnel_key key;
	long r = bpf_skb_get_tunnel_key(ctx, &key, sizeof(key), 0);

	return r == 0 || r == -EPROTO;	/* the other family's; EINVAL: nothing */
}

#endif
