/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dsfield: the TOS or traffic class that rules have given the packet, written into its header.
 *
 * The IPv4 checksum follows as ipv4_change_dsfield() has it, which the targets DSCP and TOS call and which never gives 0xffff. nf_tables writes
 * 0xffff for a checksum of 0 (nft_csum_replace()); that is seen on the wire if it happens behind the TTL's, which gives no 0xffff either.
 */
#ifndef SHUNT_NODE_DSFIELD_H
#define SHUNT_NODE_DSFIELD_H

#include "rules.h"

/* After ttl4(). */
always_inline void dsfield4(struct packet *p, struct ip4 *ip)
{
	struct rule_walk *w = p->rules;
	__u32 check, ds;

	if (!(frozen.rule_dims & SHUNT_RULES_DS) || !w)
		return;
	ds = w->value[SHUNT_V_DS] & 0xff;
	check = bpf_ntohs(ip->check);
	if (ip->tos != ds) {
		check += ip->tos;
		if ((check + 1) >> 16)
			check = (check + 1) & 0xffff;
		check -= ds;
		check += check >> 16;
		ip->tos = ds;
	}
	if (!(check & 0xffff) && w->mangled)
		check = 0xffff;
	ip->check = bpf_htons((__u16)check);
}

/* Gives what was added to the header's first word, as a sum of 16-bit words in the packet's order. */
always_inline __u32 dsfield6(struct packet *p, struct ip6 *ip)
{
	struct rule_walk *w = p->rules;
	__u32 old, new, diff;

	if (!(frozen.rule_dims & SHUNT_RULES_DS) || !w)
		return 0;
	old = ip->flow;
	new = (old & ~bpf_htonl(0xff << 20)) | bpf_htonl((w->value[SHUNT_V_DS] & 0xff) << 20);
	ip->flow = new;
	diff = new + ~old;
	return diff + (diff < new);
}

#endif
