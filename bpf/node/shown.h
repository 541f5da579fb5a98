/* SPDX-License-Identifier: GPL-2.0 */
/*
 * shown: a bridged packet that br_netfilter shows to the rules of IP and to connection tracking.
 *
 * Problem: with br_netfilter on, as wherever containers are, what is bridged meets prerouting, forward and postrouting as if it were routed.
 * Mechanism: node/bridge.h has found the port that it leaves by and has checked its header; here is filled in what the nodes of rules and connections ask, and they
 * are the same as for routed packets. To them the packet comes by the bridge and leaves by it.
 * Invariant: what rules see differently of bridged packets than of routed ones is either made up for here, or such rules leave them to Linux (internal/graph,
 * bridge_netfilter.go). A bridge takes nothing off the TTL, has no route, and knows no input device behind the bridge.
 *
 * Not in the generic programs, which have no room for it on the stack.
 */
#ifndef SHUNT_NODE_SHOWN_H
#define SHUNT_NODE_SHOWN_H

#include "ip6.h"
#include "rules.h"
#include "layout.h"

#ifndef SHUNT_GENERIC

/* Does the frame, of which it is known which port it leaves by, go on into the pipeline? */
always_inline int is_shown(const struct packet *p)
{
	return (cfg.shown4 || cfg.shown6) && p->shown;
}

/* In the pipeline: is the packet a bridged one? Without a bridge's host nothing else gets there. */
always_inline int bridged(const struct packet *p)
{
	return (cfg.shown4 || cfg.shown6) && (cfg.bridge == SHUNT_BRIDGE_FRAMES || p->shown);
}

#else

always_inline int is_shown(const struct packet *p)
{
	return 0;
}

always_inline int bridged(const struct packet *p)
{
	return 0;
}

#endif

/* Fragments are put together before rules see them, and extension headers are in front of what those ask for: both are Linux's. */
always_inline int node_shown(struct packet *p)
{
	p->in = &cfg.in;
	p->l3 = sizeof(struct eth);
	if (p->is6) {
		struct ip6 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		if (!ip6_plain(ip->nexthdr))
			return SHUNT_R_IP6_EXTENSION;
		p->l4_proto = ip->nexthdr;
		p->tos = bpf_ntohl(ip->flow) >> 20;
		__builtin_memcpy(p->fib->ipv6_src, ip->src, sizeof(ip->src));
		__builtin_memcpy(p->fib->ipv6_dst, ip->dst, sizeof(ip->dst));
	} else {
		struct ip4 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		if (ip->frag & IP4_FRAG_MASK)
			return SHUNT_R_FRAGMENT;
		p->l4_proto = ip->proto;
		p->tos = ip->tos;
		__builtin_memcpy(&p->pair, &ip->src, sizeof(p->pair));
	}
	return NEXT;
}

#define RULE_PHYS (1 << SHUNT_D_PHYS_IN | 1 << SHUNT_D_PHYS_OUT)
#define RULE_NO_ROW 0xffffffff	/* no device's index, and in no image */

/*
 * The port by which br_netfilter has shown to prerouting what is routed from a bridge; 0 where it has not. `option`: while this option of the bridge says so.
 * A function of its own, since its variables need no room in the frame of its caller.
 */
__attribute__((noinline)) __u32 shown_by(ctx_t *ctx, __u64 option)
{
	const struct memory m = {};
	__u64 dev = device_at(ctx);

	if (option && !(BRIDGE8(m, BRIDGE8(m, BRIDGE8(m, dev, dev_handler), port_bridge), br_options) & option))
		return 0;
	return BRIDGE4(m, dev, dev_ifindex);
}

/* The ports that rules ask for (physdev). br_netfilter gives them to what it shows; of what is routed it knows none that it leaves by. */
always_inline void rules_ports(struct packet *p)
{
	struct rule_walk *w = p->rules;
	__u32 how = of_family(p, cfg.called4, cfg.called6), in = 0;

	if (!(frozen.rule_dims & RULE_PHYS) || !w)
		return;
	w->phys_out = 0;
	if (frozen.bridges.known && cfg.bridge) {
		if (how == SHUNT_CALLED_SLOW)	/* whether it is shown is not known here */
			in = RULE_NO_ROW;
		else
			in = shown_by(p->ctx, how == SHUNT_CALLED_ALL ? 0 : of_family(p, frozen.bridges.call4, frozen.bridges.call6));
		if (in)
			w->phys_out = bridged(p) ? p->out : SHUNT_NO_PORT;
	}
	w->phys_in = in;
}

/* is_skb_forwardable(): the MTU, the header and one tag; longer ones only where they are cut later. `more`: bytes that are added. */
always_inline int forwardable(struct packet *p, __u32 mtu, __u32 more)
{
	return !is_gso(p) && p->len + more > mtu + (__u32)(sizeof(struct eth) + sizeof(struct vlan_tag)) ? SHUNT_R_MTU : NEXT;
}

/*
 * Chains of family bridge say something: to them the frame's devices are the ports. They are asked at once, before those of IP, though each hook has them in the order of
 * their priorities: where all let the frame pass that is the same, and all else is Linux's. So is what they drop, since that may still be learned from.
 */
always_inline int rules_of_frame(struct packet *p)
{
	struct rule_walk *w = p->rules;
	__u64 image;

	if (!w)
		return SHUNT_R_NETFILTER_BRIDGE;
	if (of_family(p, cfg.called4, cfg.called6) == SHUNT_CALLED_NONE) {
		if (forwardable(p, BRIDGE4((struct memory){}, p->to, dev_mtu), 0) != NEXT)
			return SHUNT_R_MTU;
	} else if (p->len != p->l3 + p->l3_len) {	/* br_netfilter cuts that off in the midst of the chains */
		return SHUNT_R_NETFILTER_BRIDGE;
	}
	w->in = shown_by(p->ctx, 0);
	w->out = p->out;
	image = p->is6 ? live.rules[10] : live.rules[7];
	if (image && rule_run(w, image) != RULE_ACCEPT)
		return SHUNT_R_NETFILTER_BRIDGE;
	image = p->is6 ? live.rules[11] : live.rules[8];
	if (image && rule_run(w, image) != RULE_ACCEPT)
		return SHUNT_R_NETFILTER_BRIDGE;
	w->in = p->in->ifindex;
	return NEXT;
}

/* Do rules of IP meet the packet? */
always_inline int shown_to_ip(const struct packet *p)
{
	return !bridged(p) || (p->shown & SHUNT_SHOWN_IP);
}

/* Behind the route images take the TTL for one more than what rules see. There is none more than 255. */
always_inline int rules_bridged(struct packet *p)
{
	struct rule_walk *w = p->rules;

	if (!(frozen.rule_asks & 1 << SHUNT_V_TTL) || !w)
		return NEXT;
	if (w->value[SHUNT_V_TTL] >= 255)
		return SHUNT_R_NETFILTER_RULE;
	w->value[SHUNT_V_TTL]++;
	return NEXT;
}

#endif
