/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sender: is an IPv4 sender's address of type unicast, if rules ask for that (fib saddr type, addrtype --src-type)?
 *
 * To Linux the type is what the table of local addresses says of the address, unicast if that says nothing (inet_addr_type()). Images take it
 * to be unicast. Where that table is the first that routing asks, without regard to anything but the address (rules.Class: LocalFirst), a route to the
 * sender proves it, and so does one that refuses; a local or broadcast address is not-forwarded. That can also mean that there is no
 * route at all, so it is Linux's to find out.
 * The proof comes before the guard and behind the rules, so it is never older than what they said. It is remembered with the route (route_cache).
 */
#ifndef SHUNT_NODE_SENDER_H
#define SHUNT_NODE_SENDER_H

#include "fib.h"

/* A function of its own: on Linux 6.1 its caller's frame has no room for another lookup. */
__attribute__((noinline)) __u32 sender_unicast(ctx_t *ctx, __u32 addr, __u32 ifindex)
{
	struct bpf_fib_lookup to = {};

	to.family = AF_INET;
	to.ipv4_dst = addr;
	to.ifindex = ifindex;
	switch (bpf_fib_lookup(ctx, &to, sizeof(to), frozen.skip_neigh ? BPF_FIB_LOOKUP_SKIP_NEIGH_ : 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return 1;
	}
	return 0;
}

/* asks: what the rules ask for that the packet met. */
always_inline int sender_proved(struct packet *p, __u32 asks)
{
	return !(asks & SHUNT_ASKS_SENDER) || p->is6 || bridged(p) || sender_unicast(p->ctx, p->src, p->in->ifindex);
}

#endif
