/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rpf: the reverse path check of IPv4, __fib_validate_source() in net/ipv4/fib_frontend.c; and what rules take for granted of senders (sender).
 *
 * Linux looks the source up as if the answer came in by the egress interface, with addresses and ports swapped; where the ingress
 * interface belongs to a VRF, in that VRF's table, which is what a lookup as if by the ingress interface gives. Strict: the route
 * must lead out of the ingress interface. Loose: it must exist and be unicast. "Source" is what remains with rp_filter 0 under custom
 * rules: a source whose route is local, broadcast or multicast is dropped, one without a route is not.
 * A different answer is not a drop here: Linux decides (several next hops, interfaces without an address).
 */
#ifndef SHUNT_NODE_RPF_H
#define SHUNT_NODE_RPF_H

#include "fib.h"
#include "sender.h"

always_inline int node_rpf(struct packet *p)
{
	struct bpf_fib_lookup rev = {};
	__u8 mode;
	long rc;

	/* The packet first: clang merges no test with a volatile load behind it, and a merged test could not be folded away. */
	if (p->is6)
		return sender_proved(p, SENDER_ASKED6) ? NEXT : SHUNT_R_NETFILTER_RULE;
	mode = p->in->rpf4;
	if (mode == SHUNT_RPF_NONE)
		return sender_proved(p, SENDER_ASKED4) ? NEXT : SHUNT_R_NETFILTER_RULE;	/* other modes prove it as well */
	rev.family = AF_INET;
	rev.tos = p->tos;
	rev.ipv4_src = p->dst;
	rev.ipv4_dst = p->src;
	rev.ifindex = p->in->rpf_in ? p->in->ifindex : p->out;
	rev.l4_protocol = cfg.ports ? p->l4_proto : 0;
	rev.sport = p->dport;
	rev.dport = p->sport;
	rc = bpf_fib_lookup(p->ctx, &rev, sizeof(rev), frozen.skip_neigh ? BPF_FIB_LOOKUP_SKIP_NEIGH_ : 0);
	/* What a lookup refuses (an unreachable default route in a VRF) is no route; a local address would have been not-forwarded. */
	if (mode == SHUNT_RPF_SOURCE &&
	    (rc == BPF_FIB_LKUP_RET_UNREACHABLE || rc == BPF_FIB_LKUP_RET_BLACKHOLE || rc == BPF_FIB_LKUP_RET_PROHIBIT))
		return NEXT;
	/* Without SKIP_NEIGH a missing neighbour is still a route found. */
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return SHUNT_R_RP_FILTER;
	if (mode == SHUNT_RPF_STRICT && rev.ifindex != p->in->ifindex)
		return SHUNT_R_RP_FILTER;
	return NEXT;
}

#endif
