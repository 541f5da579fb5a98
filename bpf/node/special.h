/* SPDX-License-Identifier: GPL-2.0 */
/*
 * special: routes with a property that bpf_fib_lookup() does not honour (an mtu that is not locked, encapsulation, realms, multipath
 * that is hashed otherwise, unknown attributes).
 *
 * The table holds only such routes, of all routing tables, longest prefix first, with what shorter ones demand folded in; it is looked up
 * with the destination before the FIB replaces that by the gateway. Too many packets may match, never too few.
 */
#ifndef SHUNT_NODE_SPECIAL_H
#define SHUNT_NODE_SPECIAL_H

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct shunt_prefix4);
	__type(value, struct shunt_special);
} special4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct shunt_prefix6);
	__type(value, struct shunt_special);
} special6 SEC(".maps");

always_inline int special_reason(struct packet *p, struct shunt_special *s)
{
	if (!s)
		return NEXT;
	if (s->reason)
		return s->reason;
	return s->mtu && mtu_len(p) > s->mtu ? SHUNT_R_ROUTE_MTU : NEXT;
}

always_inline int node_special(struct packet *p)
{
	if (!p->is6 && cfg.special4) {
		struct shunt_prefix4 key = { .prefixlen = 32 };

		__builtin_memcpy(key.addr, &p->dst, 4);
		return special_reason(p, bpf_map_lookup_elem(&special4, &key));
	}
	if (p->is6 && cfg.special6) {
		struct shunt_prefix6 key = { .prefixlen = 128 };

		__builtin_memcpy(key.addr, p->fib->ipv6_dst, 16);
		return special_reason(p, bpf_map_lookup_elem(&special6, &key));
	}
	return NEXT;
}

#endif
