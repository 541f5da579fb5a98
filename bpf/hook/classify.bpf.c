/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The node of rules alone, for tests and for measuring it: the packet's devices come in front of its frame, and the verdict goes back there.
 * Nobody attaches it.
 */
#include "../include/ctx_xdp.h"
#include "../include/port.h"

struct classified {
	__u32 in, out;
	__u32 ct_state;	/* of the packet's connection, 0 for none; afterwards as the rules have left it */
	__u32 ct_status, ct_mark, ct_dir;
	__u32 reason;	/* NEXT, or as node_rules() has it */
	__u32 mark, ds;
	union {	/* before: what the connection's first packet had; there is no room for more in front of a frame */
		struct {
			__be16 sport, dport;
			__be32 src[4], dst[4];
		};
		struct {
			__u32 n;
			__u32 count[8];
		};
	};
	__u32 phys_in, phys_out;
	__u32 zone;	/* by which the rules had the connection looked up; before, that of the connection */
};

#define RULE_FRAME sizeof(struct classified)
#include "../node/rules.h"

SEC("xdp.frags")
int shunt_classify(struct xdp_md *ctx)
{
	struct shunt_input in = {};
	struct packet packet = { .ctx = ctx, .data = ctx_data(ctx), .in = &in }, *p = &packet;
	struct classified *c = p->data;
	struct eth *eth = (void *)(c + 1);
	struct ip4 *ip = (void *)(eth + 1);
	int r;

	if ((void *)(ip + 1) > packet_end(p))
		return XDP_ABORTED;
	p->l3 = sizeof(*c) + sizeof(*eth);
	in.ifindex = c->in;
	p->out = c->out;
	p->len = packet_end(p) - p->data;
	if (eth->proto == bpf_htons(ETH_P_IP)) {
		p->l3_len = bpf_ntohs(ip->tot_len);
		p->l4_proto = ip->proto;
		p->tos = ip->tos;
	} else {
		struct ip6 *ip6 = (void *)ip;

		if ((void *)(ip6 + 1) > packet_end(p))
			return XDP_ABORTED;
		p->is6 = 1;
		p->l3_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		p->l4_proto = ip6->nexthdr;
		p->tos = bpf_ntohl(ip6->flow) >> 20;
	}
	r = rules_begin(p);
	if (p->rules) {
		p->rules->phys_in = c->phys_in;
		p->rules->phys_out = c->phys_out;
	}
	if (r == NEXT)
		r = node_rules(p, RULES_RAW, 0);
	if (r == NEXT && c->ct_state && !rules_untracked(p)) {
		p->ct_state = c->ct_state;
		p->ct_status = c->ct_status;
		p->ct_mark = c->ct_mark;
		p->ct_dir = c->ct_dir;
		if (p->rules)
			p->rules->value[SHUNT_V_CT_ZONE] = c->zone;
		rules_original(p, c->src, c->dst, c->sport, c->dport);
		rules_tracked(p);
	}
	if (r == NEXT)
		r = node_rules(p, RULES_PRE, 0);
	if (r == NEXT)
		r = node_rules(p, RULES_POST, p->out);
	c->reason = r;
	if (p->rules) {
		c->mark = p->rules->value[SHUNT_V_MARK];
		c->ct_state = p->rules->value[SHUNT_V_CT_STATE];
		c->zone = rules_zone(p);
		c->ds = p->rules->value[SHUNT_V_DS];
		c->n = p->rules->n;
		__builtin_memcpy(c->count, p->rules->count, sizeof(c->count));
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
