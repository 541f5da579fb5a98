/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bridge: a frame between two ports of a Linux bridge.
 *
 * Problem: which port leads to a station is learned by the bridge from every frame that it sees, is forgotten after a time, and is changed by
 * commands. A copy would be late, and a frame that goes past the bridge teaches it nothing.
 * Mechanism: what br_handle_frame() and br_handle_frame_finish() read is read here, in their order, in the kernel's own memory: the port, its
 * state and flags, the bridge's options, and its FDB, a hash table of the kernel's (lib/rhashtable.c), with the offsets that the kernel's type information gives.
 * Known unicast is forwarded. Everything from which the bridge would learn goes to Linux: a source that is not known at this port, and, a few times
 * in each ageing time, one that is, so that entries live on as if Linux had seen all their frames.
 *
 * Why it is sound: programs run under rcu_read_lock(), as the bridge's receive handler does; ports, tables and entries are freed a grace period
 * after the last pointer to them is gone. Each pointer is read once and followed. An entry that is being moved to a larger table may be missed,
 * and is then Linux's; none is ever taken for another's, since its address is compared.
 *
 * br_netfilter shows what is bridged to the rules of IP. Where those say nothing, and the guard sees to that, what is left of it are its own checks of the
 * header: what passes them is cut to the length that the header says, the rest is Linux's. Where they say something, they are asked then (shown.h).
 * Invariant: nothing is written, neither to the frame, but for that cut at the very end, nor to the bridge. An option, flag or state that is not known to do
 * nothing here is Linux's.
 */
#ifndef SHUNT_NODE_BRIDGE_H
#define SHUNT_NODE_BRIDGE_H

#include "../include/jhash.h"
#include "layout.h"
#include "ip4.h"
#include "vlan.h"
#include "bridge_vlan.h"

#define ETH_P_ARP	0x0806	/* proxy ARP and neighbour suppression look into these two, */
#define ETH_P_RARP	0x8035
#define ETH_P_MRP	0x88E3	/* and protocols of bridges take these (br_process_frame_type()) */
#define ETH_P_CFM	0x8902
#define ETH_P_PPP_SES	0x8864
#define PPPOE_SES_HLEN	8	/* with the protocol behind the header */

#define IFF_PROMISC		(1 << 8)
#define IFF_BRIDGE_PORT		(1 << 9)	/* enum netdev_priv_flags */
#define BR_STATE_FORWARDING	3

/* Flags of ports that mean nothing for known unicast, include/linux/if_bridge.h; hairpin is asked for by in = out. */
#define BR_HAIRPIN_MODE		(1 << 0)
#define BR_BPDU_GUARD		(1 << 1)
#define BR_ROOT_BLOCK		(1 << 2)
#define BR_MULTICAST_FAST_LEAVE	(1 << 3)
#define BR_ADMIN_COST		(1 << 4)
#define BR_LEARNING		(1 << 5)
#define BR_FLOOD		(1 << 6)
#define BR_PROMISC		(1 << 7)
#define BR_MCAST_FLOOD		(1 << 11)
#define BR_MULTICAST_TO_UNICAST	(1 << 12)
#define BR_BCAST_FLOOD		(1 << 14)
#define BR_ISOLATED		(1 << 16)
#define BR_PLAIN (BR_HAIRPIN_MODE | BR_BPDU_GUARD | BR_ROOT_BLOCK | BR_MULTICAST_FAST_LEAVE | BR_ADMIN_COST | BR_LEARNING | BR_FLOOD | BR_PROMISC | \
		  BR_MCAST_FLOOD | BR_MULTICAST_TO_UNICAST | BR_BCAST_FLOOD | BR_ISOLATED)

/* Flags of entries, net/bridge/br_private.h */
#define FDB_LOCAL		(1 << 0)
#define FDB_STATIC		(1 << 1)
#define FDB_STICKY		(1 << 2)
#define FDB_ADDED_BY_USER	(1 << 3)
#define FDB_ADDED_BY_EXT_LEARN	(1 << 4)
#define FDB_DYNAMIC_LEARNED	(1 << 9)
#define FDB_PLAIN (FDB_STATIC | FDB_STICKY | FDB_ADDED_BY_USER | FDB_ADDED_BY_EXT_LEARN | FDB_DYNAMIC_LEARNED)

#define FDB_CHAIN	8	/* entries of a bucket that are looked at; tables are as large as to have one or two */
#define FDB_NONE	0
#define FDB_BUSY	1	/* the table is being resized, or the bucket is longer */

/* jhash2() of an address with its VLAN in the two bytes behind it, include/linux/jhash.h. */
always_inline __u32 fdb_hash(__u64 mac, __u32 seed)
{
	__u32 a = JHASH_INITVAL + (2 << 2) + seed, b = a, c = a;

	b += (__u32)(mac >> 32);
	a += (__u32)mac;
	JHASH_FINAL(a, b, c);
	return c;
}

/*
 * Adding up the hashes of both addresses is half of what finding their stations takes, so each CPU keeps those of the pairs that it has seen. They are what the function gives for the
 * values beside them, whatever happens to the bridge: there is nothing in it that could become wrong. Entries are looked up with every frame.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_pairs);
} pairs SEC(".maps");

/* Programs run with soft interrupts off, also those of `explain`, so nobody comes between. */
always_inline struct shunt_pair *pair_of(__u64 src, __u64 dst, __u32 seed)
{
	__u32 first = 0;
	struct shunt_pairs *all = bpf_map_lookup_elem(&pairs, &first);
	struct shunt_pair *of;

	if (!all)
		return NULL;
	of = &all->at[(src + dst * 3) * 0x9e3779b97f4a7c15ULL >> 56];	/* a product's upper bits depend on all */
	if (of->src != src || of->dst != dst || of->seed != seed) {
		of->src = src;
		of->dst = dst;
		of->seed = seed;
		of->src_hash = fdb_hash(src, seed);
		of->dst_hash = fdb_hash(dst, seed);
		of->out = 0;
	}
	return of;
}

/* A table, in which no entry is being moved. */
struct fdb {
	__u64 at;	/* 0: one is */
	__u32 seed, last;
};

always_inline struct fdb fdb_open(struct memory m, __u64 table)
{
	struct fdb f = {};

	if (table && !BRIDGE4(m, table, tbl_nest) && !BRIDGE8(m, table, tbl_next)) {
		f.at = table;
		f.seed = BRIDGE4(m, table, tbl_seed);
		f.last = BRIDGE4(m, table, tbl_size) - 1;
	}
	return f;
}

/* Address of the entry of a station; FDB_NONE, FDB_BUSY. */
always_inline __u64 fdb_seek(struct memory m, struct fdb f, __u64 mac, __u32 hash)
{
	__u64 at = memory8(m, f.at + 8 * (__u64)(hash & f.last), frozen.bridges.tbl_buckets) & ~1ULL;	/* bit 0 is a lock */

	_Pragma("clang loop unroll(disable)")
	for (int i = 0; i < FDB_CHAIN; i++) {
		__u64 entry = at - frozen.bridges.fdb_node;

		if (!at || (at & 1))	/* chains end with an odd value */
			return FDB_NONE;
		if (BRIDGE8(m, entry, fdb_key) == mac)
			return entry;
		at = memory8(m, at, 0);
	}
	return FDB_BUSY;
}

/* The same as a function of its own, so that it is verified once. */
__attribute__((noinline)) __u64 fdb_find(__u64 table, __u64 mac)
{
	const struct memory m = {};
	struct fdb f;

	if (!frozen.bridges.known)
		return FDB_BUSY;
	f = fdb_open(m, table);
	return f.at ? fdb_seek(m, f, mac, fdb_hash(mac, f.seed)) : FDB_BUSY;
}

/* Is the packet's port one of a bridge, and can its FDB be read? */
always_inline int at_bridge(struct packet *p)
{
	return frozen.bridges.known && cfg.bridge;
}

/* right_device(), of which the address is known. No device leaves its namespace while its receive handlers run, so it may be asked before the guard. */
always_inline int right_port(struct packet *p, struct memory m, __u64 dev)
{
	struct net_device *d;

	if (m.how != SHUNT_PEEK_CAST)
		return right_device(p);
	d = memory_at(m, dev, 0);
	return (cfg.lower || ctx_ifindex(p->ctx) == cfg.port) && (!frozen.kern_ctx || (__u64)d->nd_net.net == cfg.net);
}

/* What br_allowed_ingress() and should_deliver() ask of a port. */
always_inline int port_plain(struct memory m, __u64 port, __u64 flags)
{
	return BRIDGE1(m, port, port_state) == BR_STATE_FORWARDING && !(flags & ~(__u64)BR_PLAIN) &&
	       !(frozen.bridges.port_domain && BRIDGE4(m, port, port_domain));
}

/* Does Linux know the source at this port, and from a frame of late? See br_fdb_update(). */
always_inline int fdb_source(struct memory m, __u64 entry, __u64 port, __u64 mac, __u64 ageing)
{
	__u64 most;

	if (entry == FDB_BUSY)
		return LEAVE(SHUNT_R_BRIDGE_TABLE);
	if (entry == FDB_NONE || BRIDGE8(m, entry, fdb_port) != port || (BRIDGE8(m, entry, fdb_flags) & ~(__u64)FDB_PLAIN))
		return LEAVE(SHUNT_R_BRIDGE_SOURCE);
	/* A quarter of the time, or up to a quarter of that less, so that stations do not all come at once. */
	most = (ageing >> 2) - ((ageing >> 12) * (mac >> 40 & 0xff));
	if ((__s64)(bpf_jiffies64() - BRIDGE8(m, entry, fdb_updated)) >= (__s64)most)
		return LEAVE(SHUNT_R_BRIDGE_REFRESH);
	return NEXT;
}

/* The port that leads to a station is stored at `to`. Linux forwards by entries that have expired until they are collected; here they are its own. */
always_inline int fdb_destination(struct memory m, __u64 entry, __u64 ageing, __u64 *to)
{
	__u64 flags;

	if (entry == FDB_BUSY)
		return LEAVE(SHUNT_R_BRIDGE_TABLE);
	if (entry == FDB_NONE)
		return LEAVE(SHUNT_R_BRIDGE_DESTINATION);
	flags = BRIDGE8(m, entry, fdb_flags);
	*to = BRIDGE8(m, entry, fdb_port);
	if ((flags & FDB_LOCAL) || !*to)
		return LEAVE(SHUNT_R_BRIDGE_LOCAL);
	if (flags & ~(__u64)FDB_PLAIN)
		return LEAVE(SHUNT_R_BRIDGE_DESTINATION);
	if (!(flags & (FDB_STATIC | FDB_ADDED_BY_EXT_LEARN)) && (__s64)(bpf_jiffies64() - BRIDGE8(m, entry, fdb_updated)) >= (__s64)ageing)
		return LEAVE(SHUNT_R_BRIDGE_DESTINATION);
	return NEXT;
}

/* br_validate_ipv4(); options are Linux's. `room` is what lies behind the Ethernet header; the packet's length is stored at `len`. */
always_inline int header4_right(struct ip4 *ip, void *end, __u32 room, __u32 *len)
{
	if ((void *)(ip + 1) > end)
		return SHUNT_R_TOO_SHORT;
	if (ip->ver_ihl != 0x45)
		return (ip->ver_ihl >> 4) == 4 && (ip->ver_ihl & 0xf) > 5 ? SHUNT_R_IP4_OPTIONS : SHUNT_R_IP4_HEADER;
	*len = bpf_ntohs(ip->tot_len);
	if (*len < sizeof(*ip) || *len > room)
		return SHUNT_R_IP4_HEADER;
	return ip4_sum(ip) == 0xffff ? NEXT : SHUNT_R_IP4_CHECKSUM;
}

/* br_validate_ipv6(); what is in hop-by-hop options, such as the length of a jumbogram, is Linux's. */
always_inline int header6_right(struct ip6 *ip, void *end, __u32 room, __u32 *len)
{
	if ((void *)(ip + 1) > end)
		return SHUNT_R_TOO_SHORT;
	if ((ip->flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return SHUNT_R_IP6_HEADER;
	if (ip->nexthdr == PROTO_HOPOPTS)
		return SHUNT_R_IP6_EXTENSION;
	*len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	return *len == sizeof(*ip) || *len > room ? SHUNT_R_IP6_HEADER : NEXT;
}

/*
 * What br_netfilter does to an IP packet, but for the rules: the length that the header says, or, negative, a reason to leave by. Fragments are nothing to it as
 * long as nothing puts them together, which is done by what is not registered where rules say nothing. A packet that is still to be segmented has to be as long
 * as it says; another one that is longer than the MTU would be cut into fragments. A function of its own, since its variables need no room in the frame of
 * its caller.
 */
__attribute__((noinline)) int called_len(ctx_t *ctx, __u32 frame, __u32 gso, __u32 mtu)
{
	struct eth *eth = ctx_data(ctx);
	void *end = ctx_end(ctx);
	__u32 room = frame - sizeof(*eth), len = 0;
	int r;

	if ((void *)(eth + 1) > end)
		return -SHUNT_R_TOO_SHORT;
	r = eth->proto == bpf_htons(ETH_P_IP) ? header4_right((void *)(eth + 1), end, room, &len) : header6_right((void *)(eth + 1), end, room, &len);
	if (r != NEXT)
		return -r;
	if (gso)
		return len == room ? (int)len : eth->proto == bpf_htons(ETH_P_IP) ? -SHUNT_R_IP4_HEADER : -SHUNT_R_IP6_HEADER;
	return len > mtu ? -SHUNT_R_MTU : (int)len;
}

/* Do chains of family bridge look at frames of this family? */
always_inline int framed(const struct packet *p)
{
	return of_family(p, cfg.shown4, cfg.shown6) & SHUNT_SHOWN_FRAMES;
}

/* Whether br_netfilter or a chain of family bridge looks at a frame, and what the first does: a reason to leave by, or NEXT; p->l3_len is not 0 then if it looks. */
always_inline int called(struct packet *p, __u64 options, __u32 mtu)
{
	struct eth *eth = p->data;
	__u8 how;
	int r;

	if ((void *)(eth + 1) > packet_end(p))
		return SHUNT_R_TOO_SHORT;
	if (eth->proto == bpf_htons(ETH_P_IP)) {
		how = cfg.called4;
		options &= frozen.bridges.call4;
	} else if (eth->proto == bpf_htons(ETH_P_IPV6)) {
		how = cfg.called6;
		options &= frozen.bridges.call6;
		p->is6 = 1;
	} else if (cfg.chains) {
		return SHUNT_R_NETFILTER_BRIDGE;
	} else if (eth->proto == bpf_htons(ETH_P_PPP_SES)) {	/* whether it looks into these is a switch of its own */
		how = cfg.called4 || cfg.called6 ? SHUNT_CALLED_SLOW : SHUNT_CALLED_NONE;
		options &= frozen.bridges.call4 | frozen.bridges.call6;
	} else {
		return NEXT;
	}
	if (how == SHUNT_CALLED_NONE && options)
		return SHUNT_R_BRIDGE_OPTION;
	if (how == SHUNT_CALLED_NONE && !framed(p))
		return NEXT;
	if (how == SHUNT_CALLED_SLOW)
		return cfg.chains ? SHUNT_R_NETFILTER_BRIDGE : SHUNT_R_BRIDGE_NETFILTER;
	if (how == SHUNT_CALLED_OPTION && !options)
		return NEXT;
	r = called_len(p->ctx, p->len, is_gso(p), how == SHUNT_CALLED_NONE ? ~0U : mtu);
	if (r < 0)
		return -r;
	p->l3 = sizeof(*eth);
	p->l3_len = r;
#ifndef SHUNT_GENERIC
	p->shown = of_family(p, cfg.shown4, cfg.shown6);
#endif
	return NEXT;
}

/* Which port the frame leaves by: a reason to leave by, or NEXT, and p->out says it. `vlans`: the bridge filters by them. */
always_inline int node_bridge(struct packet *p, struct memory m, int vlans)
{
	struct eth *eth = p->data;
	struct shunt_pair *known = NULL;
	struct fdb fdb = {};
	__u64 dev, port, br, dev_br, table, flags, flags_to, options, ageing, src, dst, to = 0;
	__be16 proto;
	__u32 mtu;
	int r;

	if ((void *)(eth + 1) > packet_end(p))
		return LEAVE(SHUNT_R_TOO_SHORT);
	/* br_netfilter, wherever it is there and whatever its switches say, drops what has no room for the header (br_nf_pre_routing()). */
	if (eth->proto == bpf_htons(ETH_P_PPP_SES) && p->len < sizeof(*eth) + PPPOE_SES_HLEN)
		return LEAVE(SHUNT_R_TOO_SHORT);
	proto = eth->proto;
	if (vlans) {
		if (outer_tag(p->ctx, eth, &proto) && proto == bpf_htons(ETH_P_PPP_SES))	/* the same behind a tag, left to Linux */
			return LEAVE(SHUNT_R_ETHERTYPE);
	} else {
#ifdef HOOK_TC
		if (p->ctx->vlan_present)
			return LEAVE(SHUNT_R_VLAN_UNKNOWN);
#endif
		if (is_tag(proto))
			return LEAVE(SHUNT_R_VLAN_UNKNOWN);
	}
	if (eth->dst[0] & 1)
		return LEAVE(SHUNT_R_BRIDGE_GROUP);
	if (proto == bpf_htons(ETH_P_ARP) || proto == bpf_htons(ETH_P_RARP) || proto == bpf_htons(ETH_P_MRP) || proto == bpf_htons(ETH_P_CFM))
		return LEAVE(SHUNT_R_ETHERTYPE);
	dst = *(__u64 *)p->data << 16 >> 16;	/* each with two bytes of the other */
	src = *(__u64 *)(p->data + 4) >> 16;
	if ((src & 1) || !src)	/* dropped by Linux */
		return LEAVE(SHUNT_R_BRIDGE_SOURCE);

	dev = device_at(p->ctx);
	if (!right_port(p, m, dev) || !(BRIDGE4(m, dev, dev_priv_flags) & IFF_BRIDGE_PORT))
		return LEAVE(SHUNT_R_WRONG_DEVICE);
	port = BRIDGE8(m, dev, dev_handler);
	if (BRIDGE8(m, port, port_dev) != dev)
		return LEAVE(SHUNT_R_WRONG_DEVICE);
	flags = BRIDGE8(m, port, port_flags);
	if (!port_plain(m, port, flags))
		return LEAVE(SHUNT_R_BRIDGE_PORT);
	br = BRIDGE8(m, port, port_bridge);
	options = BRIDGE8(m, br, br_options);
	if (vlans)
		options = options_vlan(options);
	if (options & frozen.bridges.options)
		return LEAVE(SHUNT_R_BRIDGE_OPTION);
	dev_br = frozen.bridges.dev_private ? br - frozen.bridges.dev_private : BRIDGE8(m, br, br_dev);	/* netdev_priv() */
	if (BRIDGE4(m, dev_br, dev_flags) & IFF_PROMISC)
		return LEAVE(SHUNT_R_BRIDGE_PROMISC);
	if (BRIDGE1(m, br, br_changing))	/* entries age by another time: hold_time() */
		return LEAVE(SHUNT_R_BRIDGE_PORT);
	ageing = BRIDGE8(m, br, br_ageing);
	if (vlans) {
		r = vlan_in(p->ctx, port, br);
		if (r < 0)
			return -r;
		p->vlan_id = r;
		src |= (__u64)p->vlan_id << 48;
		dst |= (__u64)p->vlan_id << 48;
	}

	table = BRIDGE8(m, br, br_table);
	if (m.how == SHUNT_PEEK_CAST) {	/* where a call for each word would cost more than one for the table, fdb_find() opens it */
		fdb = fdb_open(m, table);
		known = fdb.at ? pair_of(src, dst, fdb.seed) : NULL;
		if (!known)
			return LEAVE(SHUNT_R_BRIDGE_TABLE);
		p->known = known;
	}
	if (flags & BR_LEARNING) {
		r = fdb_source(m, m.how == SHUNT_PEEK_CAST ? fdb_seek(m, fdb, src, known->src_hash) : fdb_find(table, src), port, src, ageing);
		if (r != NEXT)
			return r;
	}
	r = fdb_destination(m, m.how == SHUNT_PEEK_CAST ? fdb_seek(m, fdb, dst, known->dst_hash) : fdb_find(table, dst), ageing, &to);
	if (r != NEXT)
		return r;
	flags_to = BRIDGE8(m, to, port_flags);
	if (to == port || !port_plain(m, to, flags_to) || (flags & flags_to & BR_ISOLATED) || BRIDGE8(m, to, port_backup))
		return LEAVE(SHUNT_R_BRIDGE_PORT);
	if (vlans) {
		r = vlan_out(p->ctx, to, p->vlan_id);
		if (r < 0)
			return -r;
		p->vlan_how = r;
	}
	dev = BRIDGE8(m, to, port_dev);
	p->to = dev;
	p->out = BRIDGE4(m, dev, dev_ifindex);
	mtu = BRIDGE4(m, dev, dev_mtu);
	r = vlans && p->vlan_how ? called_vlan(p, options) : called(p, options, mtu);
	if (r != NEXT || p->l3_len)
		return r;
	return forwardable(p, mtu, vlans ? grows(p) : 0);
}

/* Is the frame, which leaves the bridge by a reason, to be routed as one of the bridge's interface? node_vlan() asks for whose address it bears. */
always_inline int for_host(struct packet *p, int r)
{
#ifdef SHUNT_GENERIC
	if (by_vlan(p))	/* these have no room for it */
		return 0;
#endif
	return r == SHUNT_R_BRIDGE_LOCAL && cfg.bridge == SHUNT_BRIDGE_HOST;
}

/* The port, and that it may be entered. Compiled twice, so that bridges without VLANs carry nothing of them. */
always_inline int bridge_way(struct packet *p, struct memory m, int vlans)
{
	int r = node_bridge(p, m, vlans);

	return r == NEXT ? bridge_egress(p, m, vlans) : r;
}

always_inline int bridge_by(struct packet *p, struct memory m)
{
	return by_vlan(p) ? bridge_way(p, m, 1) : bridge_way(p, m, 0);
}

/*
 * A reason to leave by, or NEXT: the frame may leave by p->out as it is now. All up to the way is compiled once where the kernel's memory is read directly, and once for the other ways to read
 * it; the generic programs are content with the latter.
 */
always_inline int bridge(struct packet *p)
{
	int r;

#ifndef SHUNT_GENERIC
	if (frozen.peek == SHUNT_PEEK_CAST)
		r = bridge_by(p, memory_cast());
	else
#endif
		r = bridge_by(p, (struct memory){});
	if (r == NEXT && is_shown(p))
		return r;
	if (r == NEXT)
		r = p->l3_len ? guard_family(p) : guard_port(p);
	if (r == NEXT && p->l3_len)
		r = trim(p);
	if (r == NEXT && by_vlan(p) && (p->vlan_how == TAGGED_IN || p->vlan_how == TAGGED_OUT))
		r = retag(p->ctx, p->vlan_how, p->vlan_id) == NEXT ? NEXT : SHUNT_R_REWRITE_FAILED;	/* no other reason, as far as verifiers see: it is not routed then */
	return r;
}

#endif
