/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flowtable: the packets of connections that Linux has put into a flow table of the user's (`flow add @name`).
 *
 * Problem: Linux takes such packets out at the ingress of the table's devices, and rewrites and sends them as the entry says, past rules and connection tracking,
 * whose entry is marked as offloaded and lives as long as that of the flow table.
 * Mechanism: where such a connection's packets go, and what they become, is found out as for any other; rules are not asked, as they are not in Linux.
 * The entry, looked up in the kernel's own table (bpf_xdp_flow_lookup(), which also extends its life as Linux would), then has to say the same:
 * sent by way of a neighbour, that next hop, that device, with its padding, which stays, no longer than its MTU, by a route that Linux has not forgotten.
 * What it says of addresses and ports was taken from the connection's tuples when it was made (flow_offload_alloc()), as what is written here is.
 * Invariant: entries are only read. Where an entry and the route differ, Linux has the packet, ends the entry if it is out of date, and with it the mark.
 */
#ifndef SHUNT_NODE_FLOWTABLE_H
#define SHUNT_NODE_FLOWTABLE_H

#include "nat.h"
#include "guard.h"

#define IPS_OFFLOAD		(1 << 14)

/* enum flow_offload_xmit_type, and what all routes are that have to be checked before use */
#define FLOW_OFFLOAD_XMIT_NEIGH	1
#define DST_OBSOLETE_FORCE_CHK	0xffff

/* Is a connection of this status one whose packets meet no rules, and whose entry is asked? */
always_inline int in_flowtable(__u32 status)
{
#ifdef HOOK_XDP
	return frozen.flowtable && (status & IPS_OFFLOAD);
#else
	return 0;
#endif
}

/* The same of a packet's, which has been judged. */
always_inline int offloaded(const struct packet *p)
{
	return frozen.flowtable && (p->ct & CT_OFFLOADED);
}

#ifdef HOOK_XDP

#define FIELD(from, type, field, width) peek((from) + bpf_core_field_offset(type, field), width)

/* Flags of IPv6 routes, include/uapi/linux/ipv6_route.h */
#define RTF_GATEWAY	0x0002
#define RTF_EXPIRES	0x00400000
#define RTF_CACHE	0x01000000
#define RTF_PCPU	0x40000000

/* Would Linux still follow the route of an IPv4 entry? ipv4_dst_check() */
always_inline int stands4(__u64 route)
{
	return FIELD(route, struct rtable, rt_genid, 4) == peek(frozen.genid4, 4);
}

/* That of an IPv6 entry, which was made when the table was as the cookie says? ip6_dst_check(), for what it is asked of forwarded packets: a CPU's copy of a route. */
always_inline int stands6(__u64 route, __u32 cookie)
{
	__u64 from, node;

	if (!bpf_core_type_exists(struct rt6_info) || !bpf_core_type_exists(struct fib6_info) || !bpf_core_field_exists(struct rt6_info, sernum))
		return 0;
	if ((FIELD(route, struct rt6_info, rt6i_flags, 4) & (RTF_PCPU | RTF_CACHE | RTF_EXPIRES)) != RTF_PCPU || FIELD(route, struct rt6_info, sernum, 4))
		return 0;
	from = FIELD(route, struct rt6_info, from, 8);
	if ((FIELD(from, struct fib6_info, fib6_flags, 4) & RTF_EXPIRES) && (__s64)(FIELD(from, struct fib6_info, expires, 8) - bpf_jiffies64()) <= 0)
		return 0;
	node = FIELD(from, struct fib6_info, fib6_node, 8);
	return node && FIELD(node, struct fib6_node, fn_sernum, 4) == cookie;
}

/* What flow_entry() is to know of the packet. */
#define FLOW_IP6	1
#define FLOW_TRANSLATED	2

/*
 * Finds the packet's entry, and says whether that sends it to this next hop (of IPv6 the one in `by`); `by` then has the device, the MTU as its length, and what it had of the
 * next hop. 0 also if there is none that is wholly understood. `l3` is where the IP header is, whose addresses are as they came. A function of its own, since its
 * variables need no room in the frame of its caller.
 */
__attribute__((noinline)) int flow_entry(ctx_t *ctx, struct bpf_fib_lookup *by, __u32 l3, __u32 how, __be32 next)
{
	struct bpf_flowtable_opts___shunt opts = {};
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	struct flow_offload_tuple_rhash *hash;
	struct flow_offload_tuple *tuple;
	struct ip4 *ip = data + (l3 & 0x1f);
	struct ip6 *ip6 = (void *)ip;
	struct translation *t = translation();	/* also where this has room: `dst` is where the packet ends up, whether or not it is translated */
	__be16 *port;
	__u32 device;
	__u64 at, route;

	if (!frozen.flowtable || !by || !t)
		return 0;
	if (how & FLOW_IP6) {
		port = (void *)(ip6 + 1);
		if ((void *)(port + 2) > end)
			return 0;
		if (!(how & FLOW_TRANSLATED))
			__builtin_memcpy(t->dst, ip6->dst, sizeof(t->dst));
		__builtin_memcpy(t->hop, by->ipv6_dst, sizeof(t->hop));
		__builtin_memset(by, 0, sizeof(*by));
		__builtin_memcpy(by->ipv6_src, ip6->src, sizeof(ip6->src));
		__builtin_memcpy(by->ipv6_dst, ip6->dst, sizeof(ip6->dst));
		by->family = AF_INET6;
		by->l4_protocol = ip6->nexthdr;
		by->sport = port[0];
		by->dport = port[1];
	} else {
		port = (void *)(ip + 1);
		if ((void *)(port + 2) > end)
			return 0;
		if (!(how & FLOW_TRANSLATED))
			t->dst[0] = ip->dst;
		__builtin_memset(by, 0, sizeof(*by));
		by->ipv4_src = ip->src;
		by->ipv4_dst = ip->dst;
		by->family = AF_INET;
		by->l4_protocol = ip->proto;
		by->sport = port[0];
		by->dport = port[1];
	}
	by->ifindex = frozen.port;
	hash = bpf_xdp_flow_lookup(ctx, by, &opts, sizeof(opts));
	if (!hash)
		return 0;
	tuple = (void *)hash + bpf_core_field_offset(struct flow_offload_tuple_rhash, tuple);
	at = (__u64)tuple;
	if (BPF_CORE_READ_BITFIELD_PROBED(tuple, xmit_type) != FLOW_OFFLOAD_XMIT_NEIGH || BPF_CORE_READ_BITFIELD_PROBED(tuple, encap_num))
		return 0;
	route = FIELD(at, struct flow_offload_tuple, dst_cache, 8);
	if ((FIELD(route, struct dst_entry, obsolete, 4) & 0xffff) != DST_OBSOLETE_FORCE_CHK)
		return 0;
	device = FIELD(FIELD(route, struct dst_entry, dev, 8), struct net_device, ifindex, 4);
	/* Newer kernels send by a device of the entry's own, and put around the packet what the other direction comes in. */
	if (bpf_core_field_exists(struct flow_offload_tuple, ifidx) && FIELD(at, struct flow_offload_tuple, ifidx, 4) != device)
		return 0;
	if (how & FLOW_IP6) {
		__u64 to = route + bpf_core_field_offset(struct rt6_info, rt6i_gateway);
		int onlink = !(FIELD(route, struct rt6_info, rt6i_flags, 4) & RTF_GATEWAY);

		if (!stands6(route, FIELD(at, struct flow_offload_tuple, dst_cookie, 4)))
			return 0;
		for (int i = 0; i < 4; i++)
			if (t->hop[i] != (onlink ? t->dst[i] : (__be32)peek(to + 4 * i, 4)))
				return 0;
		__builtin_memcpy(by->ipv6_dst, t->hop, sizeof(t->hop));
	} else {
		__u32 family = FIELD(route, struct rtable, rt_gw_family, 4) & 0xff;

		if (!stands4(route) || (family && family != AF_INET) || next != (family ? (__be32)FIELD(route, struct rtable, rt_gw4, 4) : t->dst[0]))
			return 0;
	}
	by->ifindex = device;
	by->tot_len = FIELD(at, struct flow_offload_tuple, mtu, 4);
	return 1;
}

/* The last reason against a packet of such a connection: its entry sends it elsewhere than the route leads. */
always_inline int node_flowtable(struct packet *p)
{
	__u32 how = (p->is6 ? FLOW_IP6 : 0) | (translated(p) ? FLOW_TRANSLATED : 0);

	if (p->next_family != (p->is6 ? AF_INET6 : AF_INET) || !flow_entry(p->ctx, p->fib, p->l3, how, p->next4))
		return SHUNT_R_CONNTRACK_STATE;
	return p->fib->ifindex == p->out && p->len - p->l3 <= p->fib->tot_len ? NEXT : SHUNT_R_CONNTRACK_STATE;
}

#undef FIELD

#else

always_inline int node_flowtable(struct packet *p)
{
	return SHUNT_R_CONNTRACK_STATE;
}

#endif

#endif
