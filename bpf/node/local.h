/* SPDX-License-Identifier: GPL-2.0 */
/*
 * local: is the source one of this host's own addresses?
 *
 * Linux drops such packets (fib_validate_source() for IPv4) even with rp_filter 0, unless accept_local is set; a reverse route lookup
 * would find out as well, at ten times the cost of this table.
 */
#ifndef SHUNT_NODE_LOCAL_H
#define SHUNT_NODE_LOCAL_H

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be32);
	__type(value, __u8);
} local4 SEC(".maps");

always_inline int node_local(struct packet *p)
{
	__be32 src = p->src;

	if (!p->is6 && p->in->local4 && bpf_map_lookup_elem(&local4, &src))
		return SHUNT_R_LOCAL_SOURCE;
	return NEXT;
}

#endif
