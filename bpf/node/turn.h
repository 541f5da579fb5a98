/* SPDX-License-Identifier: GPL-2.0 */
/*
 * turn: a packet that a bridge has received for itself and that translation sends back into the bridge, where br_netfilter shows it to IP.
 *
 * Problem: a container that reaches itself or its neighbour by a published port or the address of a service sends to the bridge. With br_netfilter on its
 * destination changes while it is being bridged, and Linux goes on bridging it: no hop less, no redirect, rules see it as a bridged packet.
 * Mechanism: br_nf_pre_routing_finish(), its twin for IPv6, and br_nf_pre_routing_finish_bridge(). The route, asked as ever, leads to the bridge; the neighbour's address takes the place of the
 * frame's destination, the sender's stays, and the bridge's table says which port leads there. From then on the packet is a bridged one (shown.h).
 * Invariant: only established connections that are translated to another address, only where br_netfilter shows all frames of the family and the data path asks the rules for them,
 * and nothing stands at the bridge's own way out. What the port would not plainly send is Linux's. tc alone: where XDP takes frames of a bridge, it is left to Linux.
 */
#ifndef SHUNT_NODE_TURN_H
#define SHUNT_NODE_TURN_H

#include "bridge.h"
#include "neighbour.h"

#if defined(HOOK_TC) && !defined(SHUNT_GENERIC)

#define RULE_RECEIVER (1 << SHUNT_V_TO_HIGH | 1 << SHUNT_V_TO_LOW)

/*
 * The device of the port by which the bridge that the packet came by sends it to a station, as br_handle_frame_finish() and br_forward() do; else 0. What comes in there and
 * the bridge itself have been judged (node_bridge()). A function of its own, so that it is verified once.
 */
__attribute__((noinline)) __u64 port_back(ctx_t *ctx, __u64 mac, __u32 len)
{
	const struct memory m = {};
	__u64 port, br, flags, to = 0;

	if (!frozen.bridges.known || (mac & 1))
		return 0;
	port = BRIDGE8(m, device_at(ctx), dev_handler);
	br = BRIDGE8(m, port, port_bridge);
	if (fdb_destination(m, fdb_find(BRIDGE8(m, br, br_table), mac), BRIDGE8(m, br, br_ageing), &to) != NEXT || BRIDGE8(m, to, port_bridge) != br)
		return 0;
	flags = BRIDGE8(m, to, port_flags);
	if (!port_plain(m, to, flags) || (BRIDGE8(m, port, port_flags) & flags & BR_ISOLATED) || BRIDGE8(m, to, port_backup))
		return 0;
	if (to == port && !(flags & BR_HAIRPIN_MODE))
		return 0;
	to = BRIDGE8(m, to, port_dev);
	return len > BRIDGE4(m, to, dev_mtu) ? 0 : to;	/* br_nf_dev_queue_xmit() */
}

/*
 * Does translation give it another receiver? Nothing is written yet, so the header has the one that it came with: where that stays (another sender, another port) Linux
 * routes it, br_nf_ipv4_daddr_was_changed(), br_nf_ipv6_daddr_was_changed().
 */
always_inline int other_receiver(struct packet *p)
{
	struct translation *t = translation();

	if (!t)
		return 0;
	if (p->is6) {
		struct ip6 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return 0;
		return ((ip->dst[0] ^ t->dst[0]) | (ip->dst[1] ^ t->dst[1]) | (ip->dst[2] ^ t->dst[2]) | (ip->dst[3] ^ t->dst[3])) != 0;
	} else {
		struct ip4 *ip = network(p);

		return (void *)(ip + 1) <= packet_end(p) && ip->dst != t->dst[0];
	}
}

/* Behind the route. NEXT: it is an ordinary one, or the packet is a bridged one now, whose port is p->onto. */
always_inline int node_turn(struct packet *p)
{
	struct rule_walk *w = p->rules;
	const struct memory m = {};
	__u64 mac = p->macs[0] | (__u64)(__u16)p->macs[1] << 32, dev;
	__u32 port = p->out, *way;

	if (!turns(p) || p->out != p->in->ifindex)
		return NEXT;
	if (!other_receiver(p))
		return SHUNT_R_SAME_INTERFACE;
	/* While the neighbour is not confirmed, Linux sends by the bridge's own way out, whatever stands there. */
	way = bpf_map_lookup_elem(&tx_tc, &port);
	if (!way || !(*way & SHUNT_ONTO))
		return SHUNT_R_SAME_INTERFACE;
	if (frozen.rule_asks & RULE_RECEIVER)	/* which changes on the way */
		return SHUNT_R_SAME_INTERFACE;
	dev = port_back(p->ctx, mac, is_gso(p) ? 0 : p->l3_len);
	if (!dev)
		return SHUNT_R_SAME_INTERFACE;
	port = BRIDGE4(m, dev, dev_ifindex) | SHUNT_BRIDGED;
	way = bpf_map_lookup_elem(&tx_tc, &port);
	if (!way)
		return SHUNT_R_EGRESS_SLOW;
	port &= ~SHUNT_BRIDGED;
	p->by_peer = frozen.bridges.veth_peer && (*way & SHUNT_BY_PEER) && seen_by_device(p) && peer_would(m, dev, mac, is_gso(p) ? 0 : sizeof(struct eth) + p->l3_len);
	if (!p->by_peer && (*way & SHUNT_VETH) && passes_by(m, dev))
		return SHUNT_R_EGRESS_SLOW;
	p->onto = port;
	p->shown = SHUNT_SHOWN_IP;
	if ((frozen.rule_dims & RULE_PHYS) && w)
		w->phys_out = port;
	return rules_bridged(p);
}

#else

always_inline int node_turn(struct packet *p)
{
	return NEXT;
}

#endif
#endif
