/* SPDX-License-Identifier: GPL-2.0 */
/*
 * alone: rules without a daemon, for `shunt compile`.
 *
 * Problem: a file of rules shall work on a machine by nothing but `ip link` or `tc`.
 * Mechanism: the nodes that the daemon uses look at the packet and at the rules; the kernel's route lookup says whether the packet will be
 * forwarded, since only then it meets the rules behind the route. internal/compile writes image, mappings and constants into the object's data
 * sections; the code stays as it is.
 * Invariant: what the nodes do not understand goes to Linux untouched. A packet is rewritten after every check, and only by static mappings.
 */
#define SHUNT_NO_SETS	/* files of rules have no ipsets that live in a kernel */

#ifdef SHUNT_ALONE_TC
#include "../include/ctx_skb.h"
#else
#include "../include/ctx_xdp.h"
#endif
#include "../node/ip6.h"
#include "../node/rules.h"
#include "../node/mapping.h"

#define UNTOUCHED SHUNT_R_NOT_FORWARDED

/* Does the packet's way lead on to another interface? Linux answers, delivers or drops the others. */
always_inline int forwarded(struct packet *p)
{
	if (!p->is6) {
		p->fib->family = AF_INET;
		p->fib->tos = p->tos;
		p->fib->ipv4_src = p->src;
		p->fib->ipv4_dst = p->dst;
	}
	p->fib->ifindex = ctx_ifindex(p->ctx);
	p->fib->l4_protocol = p->l4_proto;
	switch (bpf_fib_lookup(p->ctx, p->fib, sizeof(*p->fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return 1;
	}
	return 0;
}

/* NEXT: go on, with the mappings in m; SHUNT_R_RULE_DROP; or any other reason: to Linux as it is. */
always_inline int decide(struct packet *p, struct mappings *m)
{
	struct eth *eth = p->data;
	int r;

	if ((void *)(eth + 1) > packet_end(p))
		return SHUNT_R_TOO_SHORT;
	if (eth->dst[0] & 1)	/* group addresses are never forwarded */
		return UNTOUCHED;
	p->l3 = sizeof(*eth);
	if (eth->proto == bpf_htons(ETH_P_IP))
		r = node_ip4(p);
	else if (eth->proto == bpf_htons(ETH_P_IPV6))
		r = node_ip6(p);
	else
		return UNTOUCHED;
	if (r == NEXT)
		r = rules_begin(p);
	if (r == NEXT)
		r = node_rules(p, RULES_PRE, 0);
	if (r == NEXT)
		r = map_destination(p, m);
	if (r != NEXT)
		return r;
	if (forwarded(p)) {
		r = node_rules(p, RULES_POST, p->out);
		if (r == NEXT)
			r = map_source(p, m);
	}
	return r;
}

#ifdef SHUNT_ALONE_TC

#define HEADERS (sizeof(struct eth) + sizeof(struct ip6) + 20)

SEC("tc")
int shunt_rules(struct __sk_buff *ctx)
{
	struct bpf_fib_lookup fib = {};
	struct packet packet = { .ctx = ctx, .fib = &fib, .in = &frozen.in }, *p = &packet;
	struct mappings m = {};

	if (ctx->pkt_type != PACKET_HOST || ctx->vlan_present || ctx->mark)	/* rules take the mark for 0 */
		return TC_ACT_UNSPEC_;
	if (ctx->data_end - ctx->data < HEADERS)	/* a short one has less: no harm */
		bpf_skb_pull_data(ctx, ctx->len < HEADERS ? ctx->len : HEADERS);
	p->data = ctx_data(ctx);
	p->len = ctx->len;
	switch (decide(p, &m)) {
	case NEXT:
		apply_tc(p, &m);
		break;
	case SHUNT_R_RULE_DROP:
		return TC_ACT_SHOT_;
	}
	return TC_ACT_UNSPEC_;
}

#else

SEC("xdp")
int shunt_rules(struct xdp_md *ctx)
{
	struct bpf_fib_lookup fib = {};
	struct packet packet = { .ctx = ctx, .fib = &fib, .in = &frozen.in, .data = ctx_data(ctx) }, *p = &packet;
	struct mappings m = {};

	p->len = ctx_len(ctx);
	switch (decide(p, &m)) {
	case NEXT:
		apply_xdp(p, &m);
		break;
	case SHUNT_R_RULE_DROP:
		return XDP_DROP;
	}
	return XDP_PASS;
}

#endif

char LICENSE[] SEC("license") = "GPL";
