/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flowtable: the packets of connections that Linux has put into a flow table of the user's (`flow add @name`).
 *
 * Problem: Linux takes such packets out at the ingress of the table's devices and sends them as the entry says, past rules and connection tracking,
 * whose entry is marked as offloaded and lives as long as that of the flow table.
 * Mechanism: where such a connection's packets go is found out as for any other (those that are translated are Linux's); rules are not asked, as they are not in Linux.
 * The entry, looked up in the kernel's own table (bpf_xdp_flow_lookup(), which also extends its life as Linux would), then has to say the same:
 * sent by way of a neighbour, that next hop, that device, with its padding, which stays, no longer than its MTU, by a route that Linux has not forgotten.
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

/*
 * Finds the packet's entry and puts into `by` where that sends: the device, the next hop and the MTU. 0 if there is none that is wholly understood. `l3` is where the
 * IP header is. A function of its own, since its variables need no room in the frame of its caller.
 */
__attribute__((noinline)) int flow_entry(ctx_t *ctx, struct bpf_fib_lookup *by, __u32 l3)
{
	struct bpf_flowtable_opts___shunt opts = {};
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	struct flow_offload_tuple_rhash *hash;
	struct flow_offload_tuple *tuple;
	struct ip4 *ip = data + (l3 & 0x1f);
	__be16 *port = (void *)(ip + 1);
	__u32 device, family;
	__u64 at, route;

	if (!frozen.flowtable || !by || (void *)(port + 2) > end)
		return 0;
	__builtin_memset(by, 0, sizeof(*by));
	by->family = AF_INET;
	by->l4_protocol = ip->proto;
	by->ifindex = frozen.port;
	by->ipv4_src = ip->src;
	by->ipv4_dst = ip->dst;
	by->sport = port[0];
	by->dport = port[1];
	hash = bpf_xdp_flow_lookup(ctx, by, &opts, sizeof(opts));
	if (!hash)
		return 0;
	tuple = (void *)hash + bpf_core_field_offset(struct flow_offload_tuple_rhash, tuple);
	at = (__u64)tuple;
	if (BPF_CORE_READ_BITFIELD_PROBED(tuple, xmit_type) != FLOW_OFFLOAD_XMIT_NEIGH || BPF_CORE_READ_BITFIELD_PROBED(tuple, encap_num))
		return 0;
	route = FIELD(at, struct flow_offload_tuple, dst_cache, 8);
	if ((FIELD(route, struct dst_entry, obsolete, 4) & 0xffff) != DST_OBSOLETE_FORCE_CHK ||
	    FIELD(route, struct rtable, rt_genid, 4) != peek(frozen.genid4, 4))
		return 0;
	device = FIELD(FIELD(route, struct dst_entry, dev, 8), struct net_device, ifindex, 4);
	/* Newer kernels send by a device of the entry's own, and put around the packet what the other direction comes in. */
	if (bpf_core_field_exists(struct flow_offload_tuple, ifidx) && FIELD(at, struct flow_offload_tuple, ifidx, 4) != device)
		return 0;
	family = FIELD(route, struct rtable, rt_gw_family, 4) & 0xff;
	if (family && family != AF_INET)
		return 0;
	by->ifindex = device;
	by->ipv4_dst = family ? (__be32)FIELD(route, struct rtable, rt_gw4, 4) : by->ipv4_dst;
	by->tot_len = FIELD(at, struct flow_offload_tuple, mtu, 4);
	return 1;
}

/* The last reason against a packet of such a connection: its entry sends it elsewhere than the route leads. */
always_inline int node_flowtable(struct packet *p)
{
	if (p->is6 || p->next_family != AF_INET || !flow_entry(p->ctx, p->fib, p->l3))
		return SHUNT_R_CONNTRACK_STATE;
	return p->fib->ifindex == p->out && p->fib->ipv4_dst == p->next4 && p->len - p->l3 <= p->fib->tot_len ? NEXT : SHUNT_R_CONNTRACK_STATE;
}

#undef FIELD

#else

always_inline int node_flowtable(struct packet *p)
{
	return SHUNT_R_CONNTRACK_STATE;
}

#endif

#endif
