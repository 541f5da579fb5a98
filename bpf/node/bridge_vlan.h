/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bridge_vlan: which VLAN a frame belongs to at a bridge that filters by them, and how it leaves.
 *
 * Problem: what a port is in, how its untagged frames are taken and what state a VLAN has there is changed by commands at any time, and a station is
 * known in one VLAN and not in another.
 * Mechanism: what br_allowed_ingress(), br_allowed_egress() and br_handle_vlan() read is read here, in the kernel's own memory, as node/bridge.h has it: the
 * port's group of VLANs, a hash table by number (lib/rhashtable.c). Stations are looked up with the number beside their address.
 * Fast are frames without a tag, of the VLAN that the port gives them (PVID), and those with one tag of the bridge's own protocol. A tag is put on or
 * taken off at the very end. Tags of number 0, of another protocol, and a second one behind the first are Linux's, and so is what is counted by VLAN.
 * The bridge itself is in VLANs as a port is: what it hands on to this host without a tag enters by it, what it hands on with one by the VLAN device of that number on it.
 */
#ifndef SHUNT_NODE_BRIDGE_VLAN_H
#define SHUNT_NODE_BRIDGE_VLAN_H

#include "../include/jhash.h"
#include "layout.h"
#include "vlan.h"

#define BRIDGE2(m, base, member)	(BRIDGE4(m, base, member) & 0xffff)	/* never the last two bytes of its structure */

#define VLAN_CHAIN		8	/* entries of a bucket that are looked at */
#define VLAN_FORWARDING		3	/* BR_STATE_FORWARDING */
#define VLAN_UNTAGGED		(1 << 2)	/* BRIDGE_VLAN_INFO_UNTAGGED */
#define VLAN_OF_BRIDGE		(1 << 0 | 1 << 5)	/* BRIDGE_VLAN_INFO_MASTER and _BRENTRY: the bridge itself is in it, and not its ports alone */

/* Does the bridge filter by VLAN, as far as the daemon knows? */
always_inline int by_vlan(struct packet *p)
{
	return frozen.bridges.port_vlans && cfg.bridge_vlans;
}

/* Does what is routed come by a bridge that does? Frames between ports are not asked for it. */
always_inline int up_by_vlan(struct packet *p)
{
#ifdef SHUNT_GENERIC
	return 0;
#else
	return cfg.bridge == SHUNT_BRIDGE_HOST && by_vlan(p);
#endif
}

/* A bridge's options, of which filtering must not be off, and counting not on, as if that were an option that must not be on. */
always_inline __u64 options_vlan(__u64 options)
{
	return (options & frozen.bridges.counting) ? options | frozen.bridges.filtering : options ^ frozen.bridges.filtering;
}

/* jhash() of a number of two bytes, include/linux/jhash.h. */
always_inline __u32 vlan_hash(__u32 id, __u32 seed)
{
	__u32 a = JHASH_INITVAL + 2 + seed, b = a, c = a;

	a += id;
	JHASH_FINAL(a, b, c);
	return c;
}

/* Address of the entry of a VLAN in a port's group, 0 where there is none that can be seen. A function of its own, so that it is verified once. */
__attribute__((noinline)) __u64 vlan_find(__u64 group, __u32 id)
{
	const struct memory m = {};
	__u64 table, at;

	if (!frozen.bridges.port_vlans || !group)
		return 0;
	table = BRIDGE8(m, group, group_table);
	if (!table || BRIDGE4(m, table, tbl_nest) || BRIDGE8(m, table, tbl_next))
		return 0;
	at = vlan_hash(id, BRIDGE4(m, table, tbl_seed)) & (BRIDGE4(m, table, tbl_size) - 1);
	at = memory8(m, table + 8 * at, frozen.bridges.tbl_buckets) & ~1ULL;	/* bit 0 is a lock */
	for (int i = 0; i < VLAN_CHAIN; i++) {
		__u64 entry = at - frozen.bridges.vlan_node;

		if (!at || (at & 1))	/* chains end with an odd value */
			return 0;
		if (BRIDGE2(m, entry, vlan_id) == id)
			return entry;
		at = memory8(m, at, 0);
	}
	return 0;
}

/*
 * The tag that Linux would see beside the frame, its protocol in the upper half; 0 where there is none. What is behind it is stored at `proto`. At tc it is
 * beside the frame, but for those that `explain` makes.
 */
always_inline __u32 outer_tag(ctx_t *ctx, struct eth *eth, __be16 *proto)
{
	struct vlan_tag *tag = (void *)(eth + 1);

	*proto = eth->proto;
#ifdef HOOK_TC
	if (ctx->vlan_present)
		return ctx->vlan_proto << 16 | (ctx->vlan_tci & 0xffff);
#endif
	if (!is_tag(eth->proto) || (void *)(tag + 1) > ctx_end(ctx))
		return 0;
	*proto = tag->proto;
	return (__u32)eth->proto << 16 | bpf_ntohs(tag->tci);
}

/* __allowed_ingress(): the VLAN of a frame that comes by a port, or, negative, a reason to leave by. */
__attribute__((noinline)) int vlan_in(ctx_t *ctx, __u64 port, __u64 br)
{
	const struct memory m = {};
	struct eth *eth = ctx_data(ctx);
	__u64 group, entry;
	__u32 tag, id;
	__be16 proto;

	if (!frozen.bridges.port_vlans)
		return -SHUNT_R_BRIDGE_MEMBER;
	if ((void *)(eth + 1) > ctx_end(ctx))
		return -SHUNT_R_TOO_SHORT;
	tag = outer_tag(ctx, eth, &proto);
	if (is_tag(proto))
		return -SHUNT_R_VLAN_UNKNOWN;
	group = BRIDGE8(m, port, port_vlans);
	if (!tag) {
		id = BRIDGE2(m, group, group_pvid);
		return group && id && BRIDGE1(m, group, group_pvid_state) == VLAN_FORWARDING ? (int)id : -SHUNT_R_BRIDGE_MEMBER;
	}
	id = tag & 0xfff;
	if (!id || tag >> 16 != BRIDGE2(m, br, br_vlan_proto))
		return -SHUNT_R_VLAN_UNKNOWN;
	entry = BRIDGE8(m, BRIDGE8(m, port, port_dev), dev_vlans);
	if (entry && BRIDGE4(m, entry, vlans_devices))	/* VLAN devices take theirs before the bridge does */
		return -SHUNT_R_VLAN_UNKNOWN;
	entry = vlan_find(group, id);
	return entry && BRIDGE1(m, entry, vlan_state) == VLAN_FORWARDING ? (int)id : -SHUNT_R_BRIDGE_MEMBER;
}

/* How what belongs to a VLAN leaves by a member of its group, 0 or TAGGED_OUT, or, negative, a reason to leave by. `whose` is what says of an entry that it is the member's. */
always_inline int vlan_leaves(struct memory m, __u64 group, __u32 id, __u32 whose)
{
	__u64 entry = vlan_find(group, id);
	__u32 flags = BRIDGE2(m, entry, vlan_flags);

	if (!entry || BRIDGE1(m, entry, vlan_state) != VLAN_FORWARDING || (flags & ~VLAN_UNTAGGED) != whose)
		return -SHUNT_R_BRIDGE_MEMBER;
	return (flags & VLAN_UNTAGGED) ? 0 : TAGGED_OUT;
}

/* br_allowed_egress() and br_handle_vlan(): how a frame of a VLAN leaves by a port, TAGGED_IN and TAGGED_OUT, or, negative, a reason to leave by. */
__attribute__((noinline)) int vlan_out(ctx_t *ctx, __u64 port, __u32 id)
{
	const struct memory m = {};
	struct eth *eth = ctx_data(ctx);
	__be16 proto;
	int how;

	if (!frozen.bridges.port_vlans)
		return -SHUNT_R_BRIDGE_MEMBER;
	if ((void *)(eth + 1) > ctx_end(ctx))
		return -SHUNT_R_TOO_SHORT;
	how = vlan_leaves(m, BRIDGE8(m, port, port_vlans), id, 0);
	return how < 0 ? how : how | (outer_tag(ctx, eth, &proto) ? TAGGED_IN : 0);
}

/*
 * br_pass_frame_up(): how a frame of a VLAN that is for this host is handed on by the bridge's own device, as vlan_out() says it. What br_netfilter does with one that has a
 * tag on its way is a switch of its own, and to what enters by a VLAN device it has shown the bridge: where it looks at any, these are Linux's.
 */
__attribute__((noinline)) int vlan_up(ctx_t *ctx, __u32 id)
{
	const struct memory m = {};
	__u64 br = BRIDGE8(m, BRIDGE8(m, device_at(ctx), dev_handler), port_bridge);
	struct eth *eth = ctx_data(ctx);
	__be16 proto;
	int how;

	if (!frozen.bridges.port_vlans)
		return -SHUNT_R_BRIDGE_MEMBER;
	if ((void *)(eth + 1) > ctx_end(ctx))
		return -SHUNT_R_TOO_SHORT;
	how = vlan_leaves(m, BRIDGE8(m, br, br_vlans), id, VLAN_OF_BRIDGE);
	if (how == TAGGED_OUT && BRIDGE2(m, br, br_vlan_proto) != bpf_htons(ETH_P_8021Q))
		return -SHUNT_R_VLAN_UNKNOWN;
	if (how >= 0 && outer_tag(ctx, eth, &proto))
		how |= TAGGED_IN;
	if (how > 0 && (BRIDGE8(m, br, br_options) & (frozen.bridges.call4 | frozen.bridges.call6)))
		return -SHUNT_R_BRIDGE_OPTION;
	return how;
}

/* Makes a frame that a bridge hands on, `how` as vlan_up() says it, one that node_vlan() can read. */
always_inline int node_vlan_up(struct packet *p, int how)
{
	if (how < 0)
		return -how;
	if (how && (cfg.called4 || cfg.called6))
		return SHUNT_R_BRIDGE_NETFILTER;
#ifdef HOOK_TC
	/* Frames that `explain` makes have their tag in them: it is taken off at once, and nobody else sees it. Others have it beside them, and commit_tc() takes it off. */
	if ((how & TAGGED_IN) && !p->ctx->vlan_present) {
		if (bpf_skb_vlan_pop(p->ctx))
			return SHUNT_R_REWRITE_FAILED;
		p->data = ctx_data(p->ctx);
		p->len = p->ctx->len;
	}
#endif
	return NEXT;
}

/* What br_netfilter does with a frame that is tagged on its way is a switch of its own (bridge-nf-filter-vlan-tagged), so where it looks at any it is Linux's. */
always_inline int called_vlan(struct packet *p, __u64 options)
{
	if (cfg.called4 || cfg.called6)
		return SHUNT_R_BRIDGE_NETFILTER;
	return (options & (frozen.bridges.call4 | frozen.bridges.call6)) ? SHUNT_R_BRIDGE_OPTION : NEXT;
}

/* By how much a frame may become longer where the tag is part of it. */
always_inline __u32 grows(struct packet *p)
{
#ifdef HOOK_XDP
	if (p->vlan_how == TAGGED_OUT)
		return sizeof(struct vlan_tag);
#endif
	return 0;
}

/* Puts the tag on or takes it off: a reason to leave by, with nothing changed, or NEXT. A function of its own, for the stack. */
__attribute__((noinline)) int retag(ctx_t *ctx, __u32 how, __u32 id)
{
	const struct memory m = {};
	__u64 br = BRIDGE8(m, BRIDGE8(m, device_at(ctx), dev_handler), port_bridge);
	__be16 proto = BRIDGE2(m, br, br_vlan_proto);

	if (!frozen.bridges.port_vlans || (how != TAGGED_IN && !is_tag(proto)))
		return SHUNT_R_REWRITE_FAILED;
#ifdef HOOK_TC
	return (how == TAGGED_IN ? bpf_skb_vlan_pop(ctx) : bpf_skb_vlan_push(ctx, proto, id)) ? SHUNT_R_REWRITE_FAILED : NEXT;
#else
	__u32 *frame = ctx_data(ctx), macs[3];
	struct eth *eth;
	struct vlan_tag *tag;

	if ((void *)(frame + 3) > ctx_end(ctx))
		return SHUNT_R_TOO_SHORT;
	macs[0] = frame[0];
	macs[1] = frame[1];
	macs[2] = frame[2];
	if (bpf_xdp_adjust_head(ctx, how == TAGGED_IN ? (int)sizeof(*tag) : -(int)sizeof(*tag)))
		return SHUNT_R_REWRITE_FAILED;
	frame = ctx_data(ctx);
	eth = (void *)frame;
	tag = (void *)(eth + 1);
	if ((void *)(eth + 1) > ctx_end(ctx))	/* never: it is as long as it was, and the tag more or less */
		return SHUNT_R_TOO_SHORT;
	frame[0] = macs[0];
	frame[1] = macs[1];
	frame[2] = macs[2];
	if (how == TAGGED_OUT && (void *)(tag + 1) <= ctx_end(ctx)) {
		eth->proto = proto;
		tag->tci = bpf_htons(id);
	}
	return NEXT;
#endif
}

#endif
