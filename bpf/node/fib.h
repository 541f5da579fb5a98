/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fib: the kernel's own route lookup, live: policy rules, all tables, multipath, VRF, neighbours.
 *
 * What the lookup does not do is done around it: martians (ip4, ip6), reverse path (rpf), route mtu that is not locked and other notable
 * routes (special). Any answer that is not understood goes to Linux.
 */
#ifndef SHUNT_NODE_FIB_H
#define SHUNT_NODE_FIB_H

#include "nat.h"

#define BPF_FIB_LOOKUP_SKIP_NEIGH_ (1U << 2)	/* Linux 6.3; not in older uapi headers */
#define BPF_FIB_LOOKUP_MARK_BIT 5		/* BPF_FIB_LOOKUP_MARK, Linux 6.10; the mark is where the answer has the addresses */

always_inline int fib_reason(long rc)
{
	if (rc == BPF_FIB_LKUP_RET_SUCCESS)
		return NEXT;
	switch (rc) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return SHUNT_R_BLACKHOLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return SHUNT_R_UNREACHABLE;
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return SHUNT_R_PROHIBIT;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return SHUNT_R_NOT_FORWARDED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return SHUNT_R_FORWARDING_DISABLED;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return SHUNT_R_ROUTE_ENCAP;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return SHUNT_R_NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return SHUNT_R_MTU;
	}
	return SHUNT_R_LOOKUP_ERROR;
}

/* Does br_netfilter go on bridging what a new destination sends back into the bridge (br_nf_pre_routing_finish(), br_nf_pre_routing_finish_ipv6())? And do we: node/turn.h. */
always_inline int turns(const struct packet *p)
{
#if defined(HOOK_TC) && !defined(SHUNT_GENERIC)
	return cfg.bridge && of_family(p, cfg.called4, cfg.called6) == SHUNT_CALLED_ALL && (of_family(p, cfg.shown4, cfg.shown6) & SHUNT_SHOWN_IP) &&
	       translated(p);
#else
	return 0;
#endif
}

/*
 * May the packet leave where it came in? Linux sends an ICMP redirect about such packets, but none about translated ones of IPv4: it drops those itself
 * (nf_nat_icmp_reply_translation()).
 */
always_inline int may_turn(const struct packet *p)
{
	return turns(p) || (!p->is6 && translated(p) && (!cfg.bridge || cfg.called4 == SHUNT_CALLED_NONE));
}

always_inline int node_fib(struct packet *p)
{
	int r;

	if (!p->is6) {
		__builtin_memset(p->fib, 0, sizeof(*p->fib));
		p->fib->family = AF_INET;
		p->fib->tos = p->tos;
		p->fib->ipv4_src = p->src;
		p->fib->ipv4_dst = p->dst;
	}
	p->fib->ifindex = p->in->ifindex;
	p->fib->l4_protocol = p->is6 || cfg.ports ? p->l4_proto : 0;
	p->fib->sport = p->sport;
	p->fib->dport = p->dport;
	p->fib->tot_len = fib_len(p);
	if (cfg.fib_mark && rules_on())
		*(__u32 *)p->fib->smac = p->rules->value[SHUNT_V_MARK];
	r = fib_reason(bpf_fib_lookup(p->ctx, p->fib, sizeof(*p->fib), (__u32)cfg.fib_mark << BPF_FIB_LOOKUP_MARK_BIT));
	if (r == SHUNT_R_MTU && is_gso(p))
		return SHUNT_R_SEGMENT_MTU;
	if (r != NEXT)
		return r;
	p->out = p->fib->ifindex;
	if (p->out == p->in->ifindex && !may_turn(p))
		return SHUNT_R_SAME_INTERFACE;
	/* The next hop is where the destination was; it may be IPv6 for an IPv4 route. */
	p->next_family = p->fib->family;
	p->next4 = p->fib->ipv4_dst;
	__builtin_memcpy(p->macs, p->fib->dmac, 6);
	__builtin_memcpy((void *)p->macs + 6, p->fib->smac, 6);
	return NEXT;
}

#endif
