/* SPDX-License-Identifier: GPL-2.0 */
/*
 * egress and redirect at TC.
 *
 * bpf_redirect_neigh() hands the packet to the kernel's neighbour layer and from there to the egress device's queueing discipline
 * and egress hooks: neighbour states, VLAN devices and shapers behave as for any forwarded packet. As at XDP, every check comes
 * before the first write.
 */
#ifndef SHUNT_NODE_EGRESS_TC_H
#define SHUNT_NODE_EGRESS_TC_H

#define HOOK_BIT (1U << 31)	/* see way_in(), node/route_cache.h */

#include "ttl.h"
#include "dsfield.h"
#include "peer.h"
#include "neighbour.h"
#include "nat.h"
#include "tunnel.h"
#include "bridge_vlan.h"

/* Logical egress interfaces that may be entered; with SHUNT_BRIDGED, ports of bridges. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} tx_tc SEC(".maps");

#define BPF_MTU_CHK_SEGS_ (1U << 0)

/* Does the interface lead into a tunnel? */
always_inline int into_tunnel(__u32 out)
{
	__u32 *way = bpf_map_lookup_elem(&tx_tc, &out);

	return way && (*way & SHUNT_INTO_TUNNEL);
}

/*
 * May segments be longer than net.ipv6.conf.IFACE.mtu, where that is below the device's MTU? The lookup heeds it, and is told how long segments of TCP are; of others the
 * length hangs on what is inside (a tunnel's packets), or the lookup was told none.
 */
always_inline int cut_short6(struct packet *p, __u32 out)
{
	__u32 *way;

	if (!p->is6 || p->l4_proto == PROTO_TCP)
		return 0;
	way = bpf_map_lookup_elem(&tx_tc, &out);
	return way && (*way & SHUNT_SHORT6);
}

/* rt_tos2priority(), include/net/route.h: bits 3 and 4 of the TOS choose best effort, bulk, interactive or interactive bulk. */
always_inline __u32 tos_priority(__u8 tos)
{
	return (0x4620 >> (((tos >> 3) & 3) * 4)) & 0xf;
}

/* Hop limit in a packet whose checksum the device computed over all of it (CHECKSUM_COMPLETE): take the change along. */
always_inline void ttl6(ctx_t *ctx, struct ip6 *ip)
{
	__u16 *word = (void *)&ip->nexthdr;
	__u32 old = *word, new, diff;

	ip->hop_limit--;
	new = *word;
	diff = new + ~old;
	diff += diff < new;
	bpf_csum_update(ctx, diff);
}

/* Is there a fast way out? The answer is remembered with the route. */
always_inline __u32 egress_slow(struct packet *p)
{
	__u32 out = p->out;

	__u32 *way = bpf_map_lookup_elem(&tx_tc, &out);

	return !way ? SHUNT_R_EGRESS_SLOW : cfg.onto ? *way & SHUNT_ONTO : 0;
}

/* Is nothing to leave there? */
always_inline int closed(struct packet *p)
{
	return p->slow && !(cfg.onto && p->slow == SHUNT_ONTO);
}

/* Are there bridges that filter by VLAN among those whose port is entered at once? The generic program goes through their own device. */
always_inline int onto_vlans(struct packet *p)
{
#ifdef SHUNT_GENERIC
	return 0;
#else
	return frozen.bridges.port_vlans && cfg.onto == SHUNT_ONTO_VLANS;
#endif
}

/* Do all segments fit it? */
always_inline int node_egress(struct packet *p)
{
	__u32 out = p->out, mtu = 0;

	if (is_gso(p) && (bpf_check_mtu(p->ctx, out, &mtu, 0, BPF_MTU_CHK_SEGS_) || cut_short6(p, out)))
		return SHUNT_R_SEGMENT_MTU;
	if (cfg.tunnel && into_tunnel(out) && from_tunnel(p->ctx))
		return SHUNT_R_TUNNEL_METADATA;
	return NEXT;
}

/* Its way out is found when it is handed on. */
always_inline int node_way_out(struct packet *p)
{
	return NEXT;
}

/* What tx_tc says of the port, 0 where frames of the bridge may not leave by it. It is remembered with the stations, as with a route (route_cache.h): until the next plan. */
always_inline __u32 way_to_port(struct packet *p)
{
	__u32 out = p->out | SHUNT_BRIDGED, epoch = live.epoch, *way;	/* the epoch from before the lookup */
	struct shunt_pair *known = p->known;

	if (known && known->out == out && known->epoch == epoch)
		return known->way;
	way = bpf_map_lookup_elem(&tx_tc, &out);
	if (!way)
		return 0;
	if (known) {
		known->out = out;
		known->way = *way;
		known->epoch = epoch;
	}
	return *way;
}

/* May frames of the bridge leave by its port? */
always_inline int bridge_egress(struct packet *p, struct memory m, int vlans)
{
	__u32 way = way_to_port(p);

	if (!way)
		return SHUNT_R_EGRESS_SLOW;
	p->by_peer = frozen.bridges.veth_peer && (way & SHUNT_BY_PEER) && seen_by_device(p) && !(vlans && p->vlan_how) && peer_takes(p, m, p->to);
	if (!p->by_peer && (way & SHUNT_VETH) && passes_by(m, p->to))
		return SHUNT_R_EGRESS_SLOW;
	/* A bridged frame keeps what its outer header said in Linux too, unless br_netfilter gives it a route. */
	if (cfg.tunnel && (way & SHUNT_INTO_TUNNEL) && from_tunnel(p->ctx))
		return SHUNT_R_TUNNEL_METADATA;
	return NEXT;
}

/* Cuts off what lies behind the IP packet. */
always_inline int trim(struct packet *p)
{
	if (!is_gso(p) && p->ctx->len > p->l3 + p->l3_len && bpf_skb_change_tail(p->ctx, p->l3 + p->l3_len, 0))
		return SHUNT_R_TRIM_FAILED;
	return NEXT;
}

/*
 * What a local socket has sent shares its buffer with the sender's queue of what is unacknowledged. ip_forward() has a copy made of the header and of what describes the
 * data (skb_cow()), and so two CPUs do not contend for one cache line until the data are acknowledged: some 4 % of a bulk transfer. Adding no room does only that.
 */
always_inline void part(struct packet *p)
{
	if (is_gso(p))
		bpf_skb_change_head(p->ctx, 0, 0);
}

/* Returns a reason to leave by, before the first write, or NEXT: rewritten, to be handed to the neighbour layer. */
always_inline int commit_tc(struct packet *p)
{
	ctx_t *ctx = p->ctx;
	__u8 tos = p->tos;	/* ip_forward() asks for it before its hook */
	__u32 diff, *frame;
	void *l3;

	if (trim(p) != NEXT)
		return SHUNT_R_TRIM_FAILED;
	if (translated(p) && !nat_write(ctx, sizeof(struct eth)))
		return SHUNT_R_REWRITE_FAILED;
	if (up_by_vlan(p) && ctx->vlan_present && bpf_skb_vlan_pop(ctx))	/* a tag beside the packet always goes */
		return SHUNT_R_REWRITE_FAILED;
	p->data = ctx_data(ctx);
	l3 = p->data + sizeof(struct eth);
	if (p->is6) {
		if (l3 + sizeof(struct ip6) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		ttl6(ctx, l3);
		diff = dsfield6(p, l3);
		if (diff)
			bpf_csum_update(ctx, diff);
	} else {
		if (l3 + sizeof(struct ip4) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		ttl4(l3);
		dsfield4(p, l3);
		if (cfg.set_priority)
			ctx->priority = tos_priority(tos);
	}
	if (cfg.onto && p->onto) {	/* else the neighbour layer does it */
		frame = p->data;
		frame[0] = p->macs[0];
		frame[1] = p->macs[1];
		frame[2] = p->macs[2];
	}
	if ((frozen.rule_dims & SHUNT_RULES_MARK) && p->rules)
		ctx->mark = p->rules->value[SHUNT_V_MARK];
	if ((frozen.rule_dims & SHUNT_RULES_PRIORITY) && p->rules && p->rules->have >> SHUNT_V_PRIORITY & 1)
		ctx->priority = p->rules->value[SHUNT_V_PRIORITY];
	part(p);
	if (onto_vlans(p) && p->onto && p->vlan_how)	/* there is no tag, and so this one is put beside the packet, which always goes */
		bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), p->vlan_id);
	return NEXT;
}

/*
 * A bridged packet that rules have let pass: nothing in it changes but what its connection has Linux translate, and, of what is sent back into the bridge, the address of the
 * station (neigh_hh_bridge(), or br_nf_pre_routing_finish_bridge_slow()).
 */
always_inline int commit_bridged(struct packet *p)
{
	int r = keeps_padding(p) ? NEXT : trim(p);

	if (r == NEXT && translated(p)) {
		struct eth *eth;

		if (!nat_write(p->ctx, sizeof(struct eth)))
			return SHUNT_R_REWRITE_FAILED;
		eth = ctx_data(p->ctx);
		if (p->onto && (void *)(eth + 1) <= packet_end(p)) {
			*(__u32 *)eth->dst = p->macs[0];
			*(__u16 *)(eth->dst + 4) = p->macs[1];
			note_neighbour(p);
		}
	}
	if (r == NEXT && (frozen.rule_dims & SHUNT_RULES_MARK) && p->rules)
		p->ctx->mark = p->rules->value[SHUNT_V_MARK];
	return r;
}

always_inline int redirect_bridged(struct packet *p)
{
	__u32 port = p->onto ? p->onto : p->out;

	return p->by_peer ? redirect_peer(p, port) : bpf_redirect(port, 0);
}

always_inline int redirect_tc(struct packet *p)
{
	struct bpf_redir_neigh nh = {};

	nh.nh_family = p->next_family;
	if (p->next_family == AF_INET)
		nh.ipv4_nh = p->next4;
	else
		__builtin_memcpy(&nh.ipv6_nh, p->fib->ipv6_dst, sizeof(nh.ipv6_nh));
	return bpf_redirect_neigh(p->out, &nh, sizeof(nh), 0);
}

#endif
