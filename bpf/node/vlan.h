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
		return SHUNT_R_DST_MAC;
	return NEXT;
}

always_inline int node_vlan(struct packet *p)
{
	struct eth *eth = p->data;
	struct vlan_tag *tag = (void *)(eth + 1);
	struct shunt_vlan_key key = { .port = cfg.port };

	if ((void *)(eth + 1) > packet_end(p))
		return SHUNT_R_TOO_SHORT;
	p->proto = eth->proto;
	p->l3 = sizeof(*eth);
	p->in = &cfg.in;
#ifdef HOOK_TC
	if (p->ctx->vlan_present)
		return SHUNT_R_VLAN_UNKNOWN;
#endif
	if (cfg.vlan_in && is_tag(p->proto)) {
		if ((void *)(tag + 1) > packet_end(p))
			return SHUNT_R_TOO_SHORT;
		key.outer_proto = p->proto;
		key.outer_id = bpf_ntohs(tag->tci) & 0xfff;
		p->proto = tag->proto;
		p->l3 += sizeof(*tag);
		tag++;
		if (is_tag(p->proto)) {
			if ((void *)(tag + 1) > packet_end(p))
				return SHUNT_R_TOO_SHORT;
			key.inner_proto = p->proto;
			key.inner_id = bpf_ntohs(tag->tci) & 0xfff;
			p->proto = tag->proto;
			p->l3 += sizeof(*tag);
		}
		p->in = bpf_map_lookup_elem(&vlans, &key);
		if (!p->in)
			return SHUNT_R_VLAN_UNKNOWN;
	}
	return own_address(p, eth);
}

#endif
