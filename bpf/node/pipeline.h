/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The order of the nodes, the same at both hooks: cheap and frequent reasons first, then lookups, then the proof that all of it still
 * holds; nothing is written.
 *
 * A node that the configuration does not need is folded away before loading; a new node is one header and one line here.
 */
#ifndef SHUNT_PIPELINE_H
#define SHUNT_PIPELINE_H

#include "guard.h"
#include "vlan.h"
#include "bridge_vlan.h"
#include "ip4.h"
#include "route_cache.h"
#include "ip6.h"
#include "local.h"
#include "special.h"
#include "fib.h"
#include "rpf.h"
#include "rules.h"
#include "conntrack.h"
#include "shown.h"
#include "turn.h"

/* For functions that return a reason to leave by, or NEXT. */
#define NODE(call)			\
	do {				\
		r = (call);		\
		if (r != NEXT)		\
			return r;	\
	} while (0)

/* The packet's way: a reason to leave by, or NEXT when it is known: p->out, p->macs and the next hop say how. */
always_inline int route(struct packet *p)
{
	int r;

	if (p->is6 ? !remembered6(p) : !remembered4(p)) {
		if (!right_device(p))	/* its answers are not for our tables */
			return SHUNT_R_WRONG_DEVICE;
		NODE(node_local(p));
		NODE(node_special(p));
		NODE(node_fib(p));
		if (receiver_base(p))
			return SHUNT_R_NETFILTER_RULE;
		NODE(node_rpf(p));
		p->slow = egress_slow(p);
		if (p->is6)
			remember6(p);
		else
			remember4(p);
	}
	if (closed(p))
		return p->slow;
	NODE(node_egress(p));
	return NEXT;
}

/*
 * What rules and the route make of the packet, of which the rules before connection tracking have said NEXT or SHUNT_R_RULE_DROP. Rules are asked where
 * Linux asks them: what Linux would do before is decided then.
 */
always_inline int decide(struct packet *p, int verdict)
{
	int r;

	if (verdict == NEXT && shown_to_ip(p)) {
		verdict = node_rules(p, RULES_PRE, 0);
		if (verdict == NEXT) {
			if (bridged(p)) {
				NODE(rules_bridged(p));
			} else {
				if (translated(p))
					NODE(nat_destination(p));
				rules_routed(p);
				NODE(route(p));
				if (translated(p))
					NODE(nat_device(p));
				NODE(node_turn(p));
			}
			verdict = node_rules(p, RULES_POST, bridged(p) ? p->in->ifindex : p->out);
			if (verdict == NEXT && !bridged(p))
				NODE(node_way_out(p));
		}
	}
	if (verdict == SHUNT_R_RULE_DROP && bridged(p) && (p->shown & SHUNT_SHOWN_FRAMES))
		return SHUNT_R_NETFILTER_BRIDGE;	/* which chains of the bridge met it before is not known */
	if (verdict == SHUNT_R_RULE_DROP && !sender_proved(p, of_family(p, frozen.rules[RULES_RAW].asks | frozen.rules[RULES_PRE].asks, frozen.rules[3 + RULES_RAW].asks | frozen.rules[3 + RULES_PRE].asks)))
		return SHUNT_R_NETFILTER_RULE;	/* what is dropped before the route has not come to node_rpf() */
	if (rules_on())
		forget(p->l4_proto, p->l3_len);	/* or all that comes behind is verified for each protocol */
	if (verdict == NEXT || verdict == SHUNT_R_RULE_DROP)
		NODE(node_guard(p));
	return verdict;
}

/* How many tags the frame has: or the verifier follows each number of them through all that comes behind. */
always_inline void depth_forgotten(struct packet *p)
{
#ifndef HOOK_TC
	if (lean() || !cfg.vlan_in)
		return;
	forget(p->l3, p->l3_len);
	forget(p->len, p->l3_len);
	p->data = ctx_data(p->ctx);
#endif
}

/* Returns a reason to leave by; NEXT: the packet may be forwarded; or SHUNT_R_RULE_DROP: it is to be dropped. Of a bridged one it is known by which port it leaves. */
always_inline int pipeline(struct packet *p)
{
	int r, up = NOT_UP;

	if (bridged(p)) {
		NODE(node_shown(p));
	} else {
		if (up_by_vlan(p)) {
			up = vlan_up(p->ctx, p->vlan_id);
			NODE(node_vlan_up(p, up));
		}
		NODE(node_vlan(p, up));
		if (p->proto == bpf_htons(ETH_P_IP))
			NODE(node_ip4(p));
		else if (p->proto == bpf_htons(ETH_P_IPV6))
			NODE(node_ip6(p));
		else
			return is_tag(p->proto) ? SHUNT_R_VLAN_UNKNOWN : SHUNT_R_ETHERTYPE;
	}
	depth_forgotten(p);
	NODE(rules_begin(p));
	if (!bridged(p))
		NODE(rules_sender(p));
	if (bridged(p) && (p->shown & SHUNT_SHOWN_FRAMES))
		NODE(rules_of_frame(p));
	if (shown_to_ip(p)) {
		rules_ports(p);
		NODE(rules_front(p));
		r = node_rules(p, RULES_RAW, 0);
	} else {
		r = NEXT;
	}
	if (r == NEXT && shown_to_ip(p) && tracked(p) && !rules_untracked(p)) {
		NODE(node_conntrack(p));
		rules_tracked(p);
	}
	if (r == NEXT || r == SHUNT_R_RULE_DROP)
		r = decide(p, r);
	return p->ct & CT_FOUND ? commit_conn(p, r) : r;
}

#undef NODE

#endif
