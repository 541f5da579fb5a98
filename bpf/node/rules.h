/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rules: netfilter's rules, from an image that internal/rules/image compiles.
 *
 * Problem: a firewall must cost the same whatever the number of its rules, and a changed rule must be in force with the next packet.
 * Mechanism: all rules are data in one array. For each dimension that some rule asks for, a table leads from the packet's value to a row with a
 * bit for each rule; the rules that the packet satisfies are the bits that all rows share, in their order. Of many rules trees find them (rule_tree.h). A rule's record says what follows:
 * operations (conditions that no row knows, counters, marks), then where to go on. The layout is in internal/rules/image/layout.go.
 * Invariant: nothing is written but the walk's own state. Counters are collected and added at the commit point, so a packet that goes to
 * Linux has moved none. What a packet reads of an image it reads by one base; images are replaced, never changed.
 *
 * Every read of the image is masked to the array, so that whatever is in it cannot lead outside.
 */
#ifndef SHUNT_NODE_RULES_H
#define SHUNT_NODE_RULES_H

#include "rule_step.h"
#include "ipset.h"
#include "verdicts.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct shunt_count);
} rule_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_walk);
} rule_walks SEC(".maps");

#ifndef RULE_FRAME
#define RULE_FRAME 0	/* where the frame begins */
#endif

#define RULE_OVER (SHUNT_RULE_STAGES + SHUNT_RULE_FRONTS)

enum rule_stage { RULES_RAW, RULES_PRE, RULES_POST };

/*
 * The next byte of a value, where there is another node; else the same place once more. Nobody can foresee how deep the nodes lie that a packet meets, and
 * a wrong guess of the CPU costs more than an idle step.
 */
always_inline __u32 rule_node(__u32 base, __u32 n, __u32 at, __u32 byte)
{
	__u32 inner = (__s32)n >> 31, to = base + (n & ~RULE_INNER) + byte * 4;

	asm volatile("" : "+r"(inner));	/* to the compiler a choice is a branch */
	return at + ((to - at) & inner);
}

/* A row by a trie: a root, and nodes for at most that many bytes behind it. */
always_inline __u32 rule_trie(__u32 base, __u32 table, __u32 shift, __u32 v, const int bytes)
{
	__u32 at = base + table + (v >> (shift & 31)) * 4, n = rule4(at);

	_Pragma("clang loop unroll(full)")
	for (int i = 0; i < bytes; i++) {
		shift -= 8;
		at = rule_node(base, n, at, v >> (shift & 31) & 255);
		n = rule4(at);
	}
	return n;
}

static int rule_halve(__u32 i, struct rule_context *ctx)
{
	struct rule_walk *w = ctx->w;
	__u32 mid;
	__u64 hi;

	w->half >>= 1;
	if (!w->half)
		return 1;
	mid = w->keys + (w->found + w->half) * 16;
	hi = rule8(mid);
	if (hi < w->hi || (hi == w->hi && rule8(mid + 8) <= w->lo))
		w->found += w->half;
	return 0;
}

/* A row by binary search among 128-bit values. */
always_inline __u32 rule_find(struct rule_walk *w, __u32 table, __u32 n, __u64 *addr)
{
	struct rule_context ctx = { .w = w };

	w->hi = addr[0];
	w->lo = addr[1];
	w->keys = w->base + table;
	w->half = n;
	w->found = 0;
	bpf_loop(32, rule_halve, &ctx, 0);
	return rule4(w->keys + n * 16 + w->found * 4);
}

/* Take a dimension's row from its table, if the image has one; else the row of all ones. */
#define RULE_ROW(dim, lookup)							\
	do {									\
		__u32 table = rule4(base + RULE_DIMS + 8 * (dim));		\
		__u32 arg = rule4(base + RULE_DIMS + 8 * (dim) + 4);		\
										\
		w->row[dim] = table ? (lookup) : ones;				\
		if (!w->row[dim])						\
			return RULE_SLOW;					\
	} while (0)

#define RULE_ASKED(dim) (frozen.rule_dims & 1 << (dim))

/*
 * One stage of a packet's way; the verdict. A global function: the verifier reads it once, knowing nothing of its callers, instead of once
 * for each stage and for each state that a packet can come in.
 */
__attribute__((noinline)) __u32 rule_run(struct rule_walk *w, __u64 base)
{
	struct rule_context ctx = { .w = w };
	__u32 ones = rule4(base + 12);

	if (!w)
		return RULE_LONG;
	if (frozen.flowtable && w->past)
		return RULE_ACCEPT;
	w->base = base;
	w->sums = rule4(base + 4);
	w->records = base + rule4(base + 8);
	w->row[0] = ones;
	w->trees = RULE_BY_TREE ? rule4(base + RULE_TREE) : 0;
	if (w->trees)
		goto devices;
	if (w->have & 1 << SHUNT_V_FLOW) {
		if (RULE_ASKED(SHUNT_D_SRC))
			RULE_ROW(SHUNT_D_SRC, rule_find(w, table, arg, w->src));
		if (RULE_ASKED(SHUNT_D_DST))
			RULE_ROW(SHUNT_D_DST, rule_find(w, table, arg, w->dst));
	} else {
		if (RULE_ASKED(SHUNT_D_SRC))
			RULE_ROW(SHUNT_D_SRC, rule_trie(base, table, arg, w->value[SHUNT_V_SRC], 3));
		if (RULE_ASKED(SHUNT_D_DST))
			RULE_ROW(SHUNT_D_DST, rule_trie(base, table, arg, w->value[SHUNT_V_DST], 3));
	}
	if (RULE_ASKED(SHUNT_D_DPORT))
		RULE_ROW(SHUNT_D_DPORT, rule_trie(base, table, arg, w->value[SHUNT_V_DPORT], 1));
	if (RULE_ASKED(SHUNT_D_SPORT))
		RULE_ROW(SHUNT_D_SPORT, rule_trie(base, table, arg, w->value[SHUNT_V_SPORT], 1));
	if (RULE_ASKED(SHUNT_D_PROTO))
		RULE_ROW(SHUNT_D_PROTO, rule_trie(base, table, arg, w->value[SHUNT_V_PROTO], 0));
devices:
	if (RULE_ASKED(SHUNT_D_IIF))
		RULE_ROW(SHUNT_D_IIF, rule_device(base, table, arg, w->in));
	if (RULE_ASKED(SHUNT_D_OIF))
		RULE_ROW(SHUNT_D_OIF, rule_device(base, table, arg, w->out));
	if (RULE_ASKED(SHUNT_D_PHYS_IN))
		RULE_ROW(SHUNT_D_PHYS_IN, rule_device(base, table, arg, w->phys_in));
	if (RULE_ASKED(SHUNT_D_PHYS_OUT))
		RULE_ROW(SHUNT_D_PHYS_OUT, rule_device(base, table, arg, w->phys_out));
	w->op = w->depth = w->verdict = 0;
	w->set.head = w->set.state = 0;
	rule_go(w, 0);
	if (!(frozen.rule_moves == SHUNT_RULE_MOVES ? rule_begin(w) : rule_begin_few(w)))
		bpf_loop(RULE_STEPS, rule_step, &ctx, 0);
	return w->verdict;
}

#define RULE_NO_PORTS 0x10000
#define RULE_PORTS (1 << SHUNT_V_SPORT | 1 << SHUNT_V_DPORT)

/* What the rules ask of the transport header. Fragments are gone before (ip4), and so are IPv6 extension headers (ip6). */
always_inline int rule_transport(struct packet *p, struct rule_walk *w)
{
	__u32 header = p->is6 ? sizeof(struct ip6) : sizeof(struct ip4);
	__u8 *l4 = network(p) + header;
	__u32 proto = p->l4_proto, len = p->l3_len;

	/* What is asked of copies leaves the verifier with one state behind all of it, not with one for each protocol. */
	forget(proto, w->n);
	forget(len, w->n);
	/* Matches of iptables drop a packet whose transport header is cut short (par->hotdrop). */
	if (len < header + (proto == PROTO_TCP ? 20 : 8))
		return SHUNT_R_TOO_SHORT;
	if ((frozen.rule_asks & RULE_PORTS) || RULE_ASKED(SHUNT_D_SPORT) || RULE_ASKED(SHUNT_D_DPORT)) {
		switch (proto) {
		case PROTO_TCP:
		case PROTO_UDP:
		case PROTO_DCCP:
		case PROTO_SCTP:
		case PROTO_UDPLITE:
			if ((void *)(l4 + 4) > packet_end(p))
				return SHUNT_R_TOO_SHORT;
			w->value[SHUNT_V_SPORT] = bpf_ntohs(*(__be16 *)l4);
			w->value[SHUNT_V_DPORT] = bpf_ntohs(*(__be16 *)(l4 + 2));
			w->have |= RULE_PORTS;
			break;
		default:
			w->value[SHUNT_V_SPORT] = RULE_NO_PORTS;
			w->value[SHUNT_V_DPORT] = RULE_NO_PORTS;
		}
	}
	if ((frozen.rule_asks & 1 << SHUNT_V_TCP_FLAGS) && proto == PROTO_TCP) {
		if ((void *)(l4 + 14) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		w->value[SHUNT_V_TCP_FLAGS] = l4[13];
		w->have |= 1 << SHUNT_V_TCP_FLAGS;
	}
	if ((frozen.rule_asks & 1 << SHUNT_V_ICMP) && (proto == PROTO_ICMP || proto == PROTO_ICMP6)) {
		if ((void *)(l4 + 2) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		w->value[SHUNT_V_ICMP] = bpf_ntohs(*(__be16 *)l4);
		w->have |= 1 << SHUNT_V_ICMP;
	}
	return NEXT;
}

#define RULE_ALWAYS (1 << SHUNT_V_CT_STATE | 1 << SHUNT_V_DS | 1 << SHUNT_V_TTL | 1 << SHUNT_V_LENGTH | 1 << SHUNT_V_MARK | 1 << SHUNT_V_PROTO)
#define RULE_CONN (1 << SHUNT_V_CT_STATUS | 1 << SHUNT_V_CT_MARK | 1 << SHUNT_V_CT_DIR | 1 << SHUNT_V_CT_ZONE)
#define RULE_ORIGINAL (1 << SHUNT_V_ORIG_SRC | 1 << SHUNT_V_ORIG_DST | 1 << SHUNT_V_ORIG_PORTS)
#define RULE_MAC (1 << SHUNT_V_MAC_HIGH | 1 << SHUNT_V_MAC_LOW | 1 << SHUNT_V_TO_HIGH | 1 << SHUNT_V_TO_LOW)
#define RULE_BACK (1 << SHUNT_V_BACK | 1 << SHUNT_V_BACK_BY)
#define SENDER_ASKED4 (frozen.rules[0].asks | frozen.rules[1].asks | frozen.rules[2].asks)
#define SENDER_ASKED6 (frozen.rules[3].asks | frozen.rules[4].asks | frozen.rules[5].asks)
#define LOOPBACK_IFINDEX 1	/* in every namespace: include/net/net_namespace.h */
#define RULE_SKIP_NEIGH (1U << 2)	/* BPF_FIB_LOOKUP_SKIP_NEIGH, Linux 6.3 */
#define SENDER_BASE (1U << 31)	/* beside the index of an interface, which is an int */
#define RULE_IP4 (1 << SHUNT_V_SRC | 1 << SHUNT_V_DST | 1 << SHUNT_V_ID | 1 << SHUNT_V_FRAG)

always_inline int rules_on(void)
{
	return (frozen.rule_dims & SHUNT_RULES_ON) != 0;
}

/* Whether any rule is about packets of this family: the others have nothing to be asked. */
always_inline int rules_of_family(const struct packet *p)
{
	return of_family(p, (frozen.rules[0].dims | frozen.rules[1].dims | frozen.rules[2].dims | frozen.rules[7].dims | frozen.rules[8].dims) & SHUNT_RULES_ON,
			 (frozen.rules[3].dims | frozen.rules[4].dims | frozen.rules[5].dims | frozen.rules[10].dims | frozen.rules[11].dims) & SHUNT_RULES_ON);
}

/* Collect what the rules ask of the packet. */
always_inline int rules_begin(struct packet *p)
{
	struct rule_walk *w;
	__u32 zero = 0;

	if (!rules_on())
		return NEXT;
	w = bpf_map_lookup_elem(&rule_walks, &zero);
	if (!w)
		return SHUNT_R_NETFILTER_LONG;
	p->rules = w;
	w->n = 0;
	/* What is written to every packet, or asked of it behind the rules. */
	w->mangled = 0;
	if (frozen.flowtable)
		w->past = 0;
	if (frozen.rule_dims & SHUNT_RULES_ZONE)
		w->zone = 0;
	if (frozen.rule_dims & SHUNT_RULES_PRIORITY)
		w->have = 0;
	w->value[SHUNT_V_MARK] = ctx_mark(p->ctx);
	w->value[SHUNT_V_DS] = p->tos;
	w->value[SHUNT_V_CT_STATE] = SHUNT_CT_INVALID;
	if (!rules_of_family(p))
		return NEXT;
	w->in = p->in->ifindex;
	w->value[SHUNT_V_PROTO] = p->l4_proto;
	w->value[SHUNT_V_LENGTH] = p->l3_len;
	if (p->is6) {
		struct ip6 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		w->have = RULE_ALWAYS | 1 << SHUNT_V_FLOW;
		w->value[SHUNT_V_FLOW] = bpf_ntohl(ip->flow) & 0xfffff;
		w->value[SHUNT_V_TTL] = ip->hop_limit;
		w->src[0] = (__u64)bpf_ntohl(ip->src[0]) << 32 | bpf_ntohl(ip->src[1]);
		w->src[1] = (__u64)bpf_ntohl(ip->src[2]) << 32 | bpf_ntohl(ip->src[3]);
		w->dst[0] = (__u64)bpf_ntohl(ip->dst[0]) << 32 | bpf_ntohl(ip->dst[1]);
		w->dst[1] = (__u64)bpf_ntohl(ip->dst[2]) << 32 | bpf_ntohl(ip->dst[3]);
	} else {
		struct ip4 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		w->have = RULE_ALWAYS | RULE_IP4;
		w->value[SHUNT_V_SRC] = bpf_ntohl(ip->src);
		w->value[SHUNT_V_DST] = bpf_ntohl(ip->dst);
		w->value[SHUNT_V_TTL] = ip->ttl;
		w->value[SHUNT_V_ID] = bpf_ntohs(ip->id);
		w->value[SHUNT_V_FRAG] = bpf_ntohs(ip->frag);
	}
	if (frozen.rule_asks & RULE_MAC) {
		struct eth *eth = p->data + RULE_FRAME;

		if ((void *)(eth + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		w->have |= RULE_MAC;
		w->value[SHUNT_V_MAC_HIGH] = eth->src[0] << 8 | eth->src[1];
		w->value[SHUNT_V_MAC_LOW] = (__u32)eth->src[2] << 24 | eth->src[3] << 16 | eth->src[4] << 8 | eth->src[5];
		w->value[SHUNT_V_TO_HIGH] = eth->dst[0] << 8 | eth->dst[1];
		w->value[SHUNT_V_TO_LOW] = (__u32)eth->dst[2] << 24 | eth->dst[3] << 16 | eth->dst[4] << 8 | eth->dst[5];
	}
	return rule_transport(p, w);
}

/* May it be the first address of a prefix on a link? The longest such prefix has 64 bits, or so many more (cfg.onlink6). */
always_inline int may_be_base(const __be32 *addr, __u32 more)
{
	return !(((__u64)bpf_ntohl(addr[2]) << 32 | bpf_ntohl(addr[3])) << (more & 63));
}

/*
 * The interface of the route to an IPv6 packet's sender, 0 if there is none; with SENDER_BASE if that may be anycast (sender.h). A function of its own: on Linux 6.1
 * its caller's frame has no room for another lookup.
 */
__attribute__((noinline)) __u32 sender_by(ctx_t *ctx, __u32 l3, __u32 ifindex, __u32 more)
{
	struct bpf_fib_lookup back = {};
	struct ip6 *ip = ctx_data(ctx) + (l3 & 0x1f);
	long rc;

	if (!(frozen.rule_asks & (RULE_BACK | SHUNT_ASKS_SENDER)) || (void *)(ip + 1) > ctx_end(ctx))
		return 0;
	back.family = AF_INET6;
	back.flowinfo = ip->flow & bpf_htonl(0x0fffffff);
	__builtin_memcpy(back.ipv6_src, ip->dst, sizeof(ip->dst));
	__builtin_memcpy(back.ipv6_dst, ip->src, sizeof(ip->src));
	back.ifindex = ifindex;
	rc = bpf_fib_lookup(ctx, &back, sizeof(back), frozen.skip_neigh ? RULE_SKIP_NEIGH : 0);
	/* Without SKIP_NEIGH a missing neighbour is still a route found. */
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return 0;
	/* A route to the loopback device refuses, although it is called unicast (fib6_is_reject() in net/ipv6/route.c), which the lookup for programs does not tell. */
	if (back.ifindex == LOOPBACK_IFINDEX)
		return 0;
	/* A gateway has taken the sender's place, and may itself be the first of its prefix. */
	return back.ifindex | (may_be_base(back.ipv6_dst, more) ? SENDER_BASE : 0);
}

/* The interface of the route to an IPv4 sender, 0 where that is not one of type unicast. */
__attribute__((noinline)) __u32 sender4_by(ctx_t *ctx, __u32 addr, __u32 ifindex)
{
	struct bpf_fib_lookup back = {};
	long rc;

	if (!(SENDER_ASKED4 & RULE_BACK))
		return 0;
	back.family = AF_INET;
	back.ipv4_dst = addr;
	back.ifindex = ifindex;
	rc = bpf_fib_lookup(ctx, &back, sizeof(back), frozen.skip_neigh ? RULE_SKIP_NEIGH : 0);
	return rc == BPF_FIB_LKUP_RET_SUCCESS || rc == BPF_FIB_LKUP_RET_NO_NEIGH ? back.ifindex : 0;
}

/*
 * The route to the sender, if it is asked for (fib saddr . iif oif, rpfilter). Only an answer that holds for Linux's own lookup too lets the packet go on
 * (internal/graph: routeBack); whatever else there is, no route above all, is Linux's to find out.
 */
always_inline int rules_sender(struct packet *p)
{
	struct rule_walk *w = p->rules;
	__u32 back, asks;

	if (!(frozen.rule_asks & RULE_BACK) || !w)
		return NEXT;
	asks = of_family(p, SENDER_ASKED4, SENDER_ASKED6);
	if (!(asks & RULE_BACK))
		return NEXT;
	if (p->is6)
		back = sender_by(p->ctx, p->l3, p->in->ifindex, cfg.onlink6) & ~SENDER_BASE;
	else
		back = sender4_by(p->ctx, p->src, p->in->ifindex);
	if (!back || ((asks & 1 << SHUNT_V_BACK) && back != p->in->ifindex))
		return SHUNT_R_NETFILTER_RULE;
	w->have |= RULE_BACK;
	w->value[SHUNT_V_BACK] = w->value[SHUNT_V_BACK_BY] = 1;
	return NEXT;
}

/* Leave the packets of changed rules to Linux until the images know those. */
always_inline int rules_front(struct packet *p)
{
	__u64 base;

	if (!rules_on() || !rules_of_family(p))
		return NEXT;
	base = live.rules[SHUNT_RULE_STAGES + (p->is6 != 0)];
	return base && rule_run(p->rules, base) != RULE_ACCEPT ? SHUNT_R_NETFILTER_RULE : NEXT;
}

/* What one image says; what it said to such a packet before, where that is known. */
always_inline __u32 rule_ask(struct packet *p, __u32 stage, __u64 image)
{
	__u32 v = 0;
	int known = verdicts_known(stage) && image >> 32 && !traced(p->ctx) && !verdicts_rest(p->rules);	/* `explain` walks: it may be interrupted by a packet */

	if (known)
		v = verdict_recall(p->rules, image);
	if (!v) {
		v = rule_run(p->rules, image);
		if (known)
			verdict_remember(p->rules, image, v);
	}
	return v;
}

/* over: where what newer rules concern is decided before the image is asked, 0 for nowhere. */
always_inline int rule_stage(struct packet *p, __u32 stage, __u32 over)
{
	__u32 v = RULE_ACCEPT;
	__u64 base;

	if (!(frozen.rules[stage].dims & SHUNT_RULES_ON))
		return NEXT;
	if (over) {
		base = live.rules[over];
		if (base)
			v = rule_run(p->rules, base);
	}
	if (v == RULE_ACCEPT) {
		base = live.rules[stage];
		if (!base)
			return NEXT;
		v = rule_ask(p, stage, base);
	}
	switch (v) {
	case RULE_ACCEPT:
	case RULE_DECIDED:
		return NEXT;
	case RULE_DROP:
		return SHUNT_R_RULE_DROP;
	case RULE_SLOW:
		return SHUNT_R_NETFILTER_RULE;
	}
	return SHUNT_R_NETFILTER_LONG;
}

/* NEXT: accepted; SHUNT_R_RULE_DROP: to be dropped, if the guard agrees; any other reason: to Linux. `out` is the way out behind the route. */
always_inline int node_rules(struct packet *p, enum rule_stage stage, __u32 out)
{
	if (rules_on())
		p->rules->out = stage == RULES_POST ? out : 0;
	if (stage != RULES_POST)
		return p->is6 ? rule_stage(p, 3 + stage, 0) : rule_stage(p, stage, 0);
	return p->is6 ? rule_stage(p, 3 + stage, RULE_OVER + 1) : rule_stage(p, stage, RULE_OVER);
}

/* Have rules kept the packet out of connection tracking? */
always_inline int rules_untracked(struct packet *p)
{
	return (frozen.rule_dims & SHUNT_RULES_NOTRACK) && p->rules && p->rules->value[SHUNT_V_CT_STATE] == SHUNT_CT_UNTRACKED;
}

/* In which zone the packet's connection is looked up, and for which directions: see struct rule_walk. */
always_inline __u32 rules_zone(struct packet *p)
{
	return (frozen.rule_dims & SHUNT_RULES_ZONE) && p->rules ? p->rules->zone : 0;
}

/* What a connection's first packet had, as it came: rules ask for it as `ct original …`. */
always_inline void rules_original(struct packet *p, const __be32 *src, const __be32 *dst, __be16 sport, __be16 dport)
{
	struct rule_walk *w = p->rules;

	if (!(frozen.rule_asks & RULE_ORIGINAL) || !w)
		return;
	w->value[SHUNT_V_ORIG_PORTS] = (__u32)bpf_ntohs(sport) << 16 | bpf_ntohs(dport);
	if (!p->is6) {
		w->value[SHUNT_V_ORIG_SRC] = bpf_ntohl(src[0]);
		w->value[SHUNT_V_ORIG_DST] = bpf_ntohl(dst[0]);
		return;
	}
	w->orig[0] = (__u64)bpf_ntohl(src[0]) << 32 | bpf_ntohl(src[1]);
	w->orig[1] = (__u64)bpf_ntohl(src[2]) << 32 | bpf_ntohl(src[3]);
	w->orig[2] = (__u64)bpf_ntohl(dst[0]) << 32 | bpf_ntohl(dst[1]);
	w->orig[3] = (__u64)bpf_ntohl(dst[2]) << 32 | bpf_ntohl(dst[3]);
}

/* The packet's connection, found and judged, is what rules ask from here on; its zone they have from judge_conn(). */
always_inline void rules_tracked(struct packet *p)
{
	struct rule_walk *w = p->rules;

	if (!rules_on() || !w)
		return;
	if (frozen.flowtable)
		w->past = p->ct & CT_OFFLOADED;
	w->value[SHUNT_V_CT_STATE] = p->ct_state;
	w->value[SHUNT_V_CT_STATUS] = p->ct_status;
	w->value[SHUNT_V_CT_MARK] = p->ct_mark;
	w->value[SHUNT_V_CT_DIR] = p->ct_dir;
	w->have |= RULE_CONN | RULE_ORIGINAL;
}

/* What the route is looked up by, as the rules before it have left it. */
always_inline void rules_routed(struct packet *p)
{
	if ((frozen.rule_dims & SHUNT_RULES_PRIORITY) && p->rules && !p->is6 && cfg.set_priority)	/* by the TOS, whatever rules have set */
		p->rules->have &= ~(1U << SHUNT_V_PRIORITY);
	if (!(frozen.rule_dims & SHUNT_RULES_DS) || !p->rules)
		return;
	p->tos = p->rules->value[SHUNT_V_DS];
	if (p->is6)
		p->fib->flowinfo = (p->fib->flowinfo & bpf_htonl(0xfffff)) | bpf_htonl((__u32)p->tos << 20);
}

/* Move the counters of the rules that the packet met. It is decided what becomes of it. */
always_inline void rules_count(struct packet *p, __u32 padded)
{
	struct rule_walk *w = p->rules;

	if (!rules_on() || !w || traced(p->ctx))	/* what `explain` tries moves no counters */
		return;
	_Pragma("clang loop unroll(full)")
	for (int i = 0; i < RULE_COUNTS; i++) {
		struct shunt_count *c;
		__u32 slot;

		if (i >= w->n)
			break;
		slot = w->count[i] & 0xffffff;
		c = bpf_map_lookup_elem(&rule_counts, &slot);
		if (!c)
			continue;
		c->packets++;
		c->bytes += w->count[i] >> 24 == 0 ? p->l3_len : w->count[i] >> 24 == 1 ? padded : p->l3_len + sizeof(struct eth);
	}
}

#endif
