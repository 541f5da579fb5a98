/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vlan: Ethernet header and tags; finds the logical interface that the packet enters by.
 *
 * At XDP tags are in the frame (drivers that strip them are declined by the graph). At TC the program sits on the VLAN device itself,
 * so a tag that is still there belongs to no modelled device.
 */
#ifndef SHUNT_NODE_VLAN_H
#define SHUNT_NODE_VLAN_H

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);	/* a bridge's port has each VLAN device on the bridge */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct shunt_vlan_key);
	__type(value, struct shunt_input);
} vlans SEC(".maps");

always_inline int is_tag(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Linux accepts only the device's own address; two words instead of six bytes. */
always_inline int own_address(struct packet *p, struct eth *eth)
{
	if (*(__u32 *)eth->dst != *(volatile __u32 *)p->in->mac || *(__u16 *)(eth->dst + 4) != *(volatile __u16 *)(p->in->mac + 4))
		return LEAVE(SHUNT_R_DST_MAC);
	return NEXT;
}

/* How a frame of a bridge came, and how it leaves: both or none of them is as it is. */
#define TAGGED_IN		1
#define TAGGED_OUT		2

#define TAG(proto, id) ((__u32)(proto) << 16 | (id))

/* The interface that what comes by a port, or, with SHUNT_BRIDGED, is handed up by its bridge, with these tags enters by, see TAG(). A function of its own, since its key needs no room in the frame of its caller. */
static __attribute__((noinline)) const struct shunt_input *entered(__u32 port, __u32 outer, __u32 inner)
{
	struct shunt_vlan_key key = { .port = port, .outer_proto = outer >> 16, .outer_id = outer, .inner_proto = inner >> 16, .inner_id = inner };

	return bpf_map_lookup_elem(&vlans, &key);
}

/* `up`: how a bridge hands on what is for this host, see vlan_up(); NOT_UP: nobody does, and the frame's own tags say by what it enters. */
#define NOT_UP (-1)

always_inline int node_vlan(struct packet *p, int up)
{
	struct eth *eth = p->data;
	__u32 outer = 0, inner = 0;

	if ((void *)(eth + 1) > packet_end(p))
		return LEAVE(SHUNT_R_TOO_SHORT);
	p->proto = eth->proto;
	p->l3 = sizeof(*eth);
	p->in = &cfg.in;
#ifdef HOOK_TC
	if (up == NOT_UP && p->ctx->vlan_present)
		return LEAVE(SHUNT_R_VLAN_UNKNOWN);
#else
	struct vlan_tag *tag = (void *)(eth + 1);
	int tagged = up == NOT_UP || (up & TAGGED_IN);

	if (tagged && (up != NOT_UP || (!lean() && cfg.vlan_in && is_tag(p->proto)))) {
		if ((void *)(tag + 1) > packet_end(p))
			return LEAVE(SHUNT_R_TOO_SHORT);
		outer = TAG(p->proto, bpf_ntohs(tag->tci) & 0xfff);
		p->proto = tag->proto;
		p->l3 += sizeof(*tag);
		tag++;
		if (up == NOT_UP && is_tag(p->proto)) {
			if ((void *)(tag + 1) > packet_end(p))
				return LEAVE(SHUNT_R_TOO_SHORT);
			inner = TAG(p->proto, bpf_ntohs(tag->tci) & 0xfff);
			p->proto = tag->proto;
			p->l3 += sizeof(*tag);
		}
	}
#endif
	if (up != NOT_UP)
		outer = (up & TAGGED_OUT) ? TAG(bpf_htons(ETH_P_8021Q), p->vlan_id) : 0;
	if (up != NOT_UP || outer) {
		p->in = entered(up == NOT_UP ? cfg.port : cfg.port | SHUNT_BRIDGED, outer, inner);
		if (!p->in)
			return LEAVE(SHUNT_R_VLAN_UNKNOWN);
	}
	return own_address(p, eth);
}

#endif
