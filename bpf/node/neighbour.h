/* SPDX-License-Identifier: GPL-2.0 */
/*
 * neighbour: which next hops packets use that go past the kernel's neighbour layer, so that the daemon keeps their entries alive.
 */
#ifndef SHUNT_NODE_NEIGHBOUR_H
#define SHUNT_NODE_NEIGHBOUR_H

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHUNT_NEIGH_SLOTS);
	__type(key, __u32);
	__type(value, struct shunt_neigh_use);
} neigh_use SEC(".maps");

/*
 * Tell the daemon which neighbour is in use: bpf_fib_lookup() does not, so its entry would turn STALE and never be probed. At
 * most one write per neighbour, CPU and quarter second. The stamp is part of the hash: a collision costs a neighbour one quarter second.
 */
always_inline void note_neighbour(struct packet *p)
{
	__u64 stamp = bpf_jiffies64() >> 6;
	struct shunt_neigh_use *use;
	__u64 a0, a1 = 0;
	__u32 slot;

	if (p->noted) {
		if (*p->noted == stamp)
			return;
		*p->noted = stamp;
	}
	if (p->next_family == AF_INET) {
		a0 = p->next4;
		slot = p->next4;
	} else {
		a0 = *(__u64 *)&p->fib->ipv6_dst[0];
		a1 = *(__u64 *)&p->fib->ipv6_dst[2];
		slot = p->fib->ipv6_dst[3] ^ p->fib->ipv6_dst[2];
	}
	slot = ((slot ^ p->out ^ (__u32)stamp << 8) * 0x9e3779b1U) >> 23;
	use = bpf_map_lookup_elem(&neigh_use, &slot);
	if (!use || (use->stamp == stamp && use->addr[0] == a0 && use->addr[1] == a1 && use->ifindex == p->out))
		return;
	use->ifindex = p->out;
	use->family = p->next_family;
	use->addr[0] = a0;
	use->addr[1] = a1;
	use->stamp = stamp;
}

#endif
