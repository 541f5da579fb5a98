/* SPDX-License-Identifier: GPL-2.0 */
/*
 * egress and redirect at XDP: the last checks, then the rewriting, then out.
 *
 * This is the commit point: everything that can still send the packet to Linux is asked before the first byte is written. Cutting
 * off padding changes nothing that Linux would not change (pskb_trim_rcsum() in ip_rcv_core()).
 */
#ifndef SHUNT_NODE_EGRESS_XDP_H
#define SHUNT_NODE_EGRESS_XDP_H

#define HOOK_BIT 0U	/* see way_in(), node/route_cache.h */

#include "ttl.h"
#include "dsfield.h"
#include "vlan.h"
#include "neighbour.h"
#include "nat.h"
#include "flowtable.h"

/* Key: logical egress ifindex, or with SHUNT_BRIDGED that of a bridge's port; value: the device that carries it. Entries vanish with their device. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} tx_xdp SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct shunt_tags);
} tags SEC(".maps");

/* Is nothing to leave there? */
always_inline int closed(struct packet *p)
{
	return p->slow;
}

/* Is there a way out that will do for other packets too? Where there is none that is remembered with the route. */
always_inline __u32 egress_slow(struct packet *p)
{
	return bpf_redirect_map(&tx_xdp, p->out, XDP_PASS) == XDP_REDIRECT ? 0 : SHUNT_R_EGRESS_SLOW;
}

/* Is it too long for there, which Linux finds out before its rules? */
always_inline int node_egress(struct packet *p)
{
	__u32 out = p->out;

	if (cfg.vlan_out || cfg.frags) {
		struct shunt_tags *t = bpf_map_lookup_elem(&tags, &out);

		if (!t)
			return SHUNT_R_EGRESS_SLOW;
		p->tags = *t;
		if (cfg.frags && t->no_frags && p->len > (__u32)(packet_end(p) - p->data))
			return SHUNT_R_EGRESS_FRAGS;
		if (cfg.vlan_out && t->max_len && p->l3_len > t->max_len)
			return SHUNT_R_MTU;
	}
	return NEXT;
}

/*
 * Is there a fast way out? Where there is, bpf_redirect_map() has noted it for the end: of several calls for a packet the kernel follows the last,
 * and none unless XDP_REDIRECT is returned. What rules drop needs none.
 */
always_inline int node_way_out(struct packet *p)
{
	return bpf_redirect_map(&tx_xdp, p->out, XDP_PASS) == XDP_REDIRECT ? NEXT : SHUNT_R_EGRESS_SLOW;
}

/* May frames of the bridge leave by its port? */
always_inline int bridge_egress(struct packet *p, struct memory m, int vlans)
{
	if (p->len > (__u32)(packet_end(p) - p->data))
		return SHUNT_R_EGRESS_FRAGS;
	return bpf_redirect_map(&tx_xdp, p->out | SHUNT_BRIDGED, XDP_PASS) == XDP_REDIRECT ? NEXT : SHUNT_R_EGRESS_SLOW;
}

/* Cuts off what lies behind the IP packet. */
always_inline int trim(struct packet *p)
{
	__u32 pad = p->len - p->l3 - p->l3_len;

	return pad && bpf_xdp_adjust_tail(p->ctx, -(int)pad) ? SHUNT_R_TRIM_FAILED : NEXT;
}

/* Returns a reason to leave by, before the first write, or NEXT: rewritten. */
always_inline int commit_xdp(struct packet *p)
{
	ctx_t *ctx = p->ctx;
	__u32 *frame;
	struct eth *eth;
	void *l3;

	if (cfg.neigh_use)
		note_neighbour(p);
	if (!offloaded(p) && trim(p) != NEXT)	/* what Linux takes out at ingress keeps its padding */
		return SHUNT_R_TRIM_FAILED;
	if (cfg.vlan_in || cfg.vlan_out) {
		int room = (int)(sizeof(struct eth) + sizeof(struct vlan_tag) * (p->tags.n & 3)) - (int)p->l3;

		if (room && bpf_xdp_adjust_head(ctx, -room))
			return SHUNT_R_REWRITE_FAILED;
		p->l3 += room;
	}

	if (translated(p) && !nat_write(ctx, p->l3))
		return SHUNT_R_REWRITE_FAILED;
	p->data = ctx_data(ctx);
	eth = p->data;
	l3 = p->data + (p->l3 & 0x1f);
	if ((void *)(eth + 1) > packet_end(p))
		return SHUNT_R_TOO_SHORT;
	if (p->is6) {
		struct ip6 *ip = l3;

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		ip->hop_limit--;
		dsfield6(p, ip);
	} else {
		struct ip4 *ip = l3;

		if ((void *)(ip + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		ttl4(ip);
		dsfield4(p, ip);
	}
	frame = p->data;
	frame[0] = p->macs[0];
	frame[1] = p->macs[1];
	frame[2] = p->macs[2];
	if (cfg.vlan_in || cfg.vlan_out) {
		struct vlan_tag *tag = (void *)(eth + 1);
		__be16 inner = p->is6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

		eth->proto = inner;
		if (p->tags.n && (void *)(tag + 2) <= packet_end(p)) {
			eth->proto = p->tags.outer_proto;
			tag[0].tci = bpf_htons(p->tags.outer_id);
			tag[0].proto = inner;
			if (p->tags.n > 1) {
				tag[0].proto = p->tags.inner_proto;
				tag[1].tci = bpf_htons(p->tags.inner_id);
				tag[1].proto = inner;
			}
		}
	}
	return NEXT;
}

#endif
