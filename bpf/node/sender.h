/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sender: is a sender's address of type unicast, if rules ask for that (fib saddr type, addrtype --src-type)? Images take it to be unicast.
 *
 * IPv4: to Linux the type is what the table of local addresses says of the address, unicast if that says nothing (inet_addr_type()).
 * Where that table is the first that routing asks, without regard to anything but the address (rules.Class: LocalFirst), a route to the
 * sender proves it, and so does one that refuses; a local or broadcast address is not-forwarded. That can also mean that there is no
 * route at all, so it is Linux's to find out.
 * IPv6: the type comes from a whole lookup, as if the router itself had something to say to the sender. LocalFirst says that this finds what the
 * lookup for programs does. A route that is neither local nor anycast nor refuses (nor leads to the loopback device, which is to refuse), and leads to a gateway, proves it; without a gateway the first address of the
 * route's prefix is anycast to Linux too (ipv6_anycast_destination()). The lookup does not tell the prefix, so it has to be an address that is
 * the first of none that there is (may_be_base()): one of its last bits is set. The same goes for a receiver, whose route is the packet's.
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

always_inline int sender6_unicast(struct packet *p)
{
	__u32 by = sender_by(p->ctx, p->l3, p->in->ifindex, cfg.onlink6);

	return by && !(by & SENDER_BASE);
}

/* asks: what the rules ask for that the packet met. */
always_inline int sender_proved(struct packet *p, __u32 asks)
{
	if (!(asks & SHUNT_ASKS_SENDER) || bridged(p))
		return 1;
	return p->is6 ? sender6_unicast(p) : sender_unicast(p->ctx, p->src, p->in->ifindex);
}

/* May an IPv6 packet's receiver, or the gateway that the lookup has put in its place, be the first of a prefix, where rules behind the route ask for its type? */
always_inline int receiver_base(struct packet *p)
{
	return p->is6 && (SENDER_ASKED6 & SHUNT_ASKS_RECEIVER) && may_be_base(p->fib->ipv6_dst, cfg.onlink6);
}

#endif
