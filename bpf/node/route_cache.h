/* SPDX-License-Identifier: GPL-2.0 */
/*
 * route_cache: route lookups, remembered for as long as the kernel itself would remember them.
 *
 * Problem: the lookup is most of the path's own cost, twice that with rp_filter, and most packets ask what one before asked. With a full table
 * and destinations all over it, each lookup waits for memory several times.
 * Mechanism: tables for each CPU, keyed by everything that the lookups depend on when no policy rules of the user's exist. IPv4: a
 * destination takes 16 bytes and one look at memory, four share a cache line; the daemon makes the table as large as the number of routes asks
 * for. What destinations share, next hop and ingress, is apart, in hops4. IPv6: a direct-mapped table.
 * An entry counts while `genid` stands, the sum of the kernel's route generation, that of its next hops and the daemon's epoch (every change
 * of plan, every neighbour event, every IPv6 route event). All three only grow, so equal sums mean that none has changed. It is read before the lookup,
 * so a change during that makes the entry stillborn.
 *
 * net->ipv4.rt_genid is what Linux judges its own cached IPv4 routes by: it changes with every route, rule, address and device change, but
 * not when a member of a next-hop group is replaced, which net->nexthop.seq tells. net->ipv6.fib6_sernum changes with every route that is
 * added but not with one that is removed; removals come as events, and without a daemon within the short life of an IPv6 entry.
 * A slot of hops4 gets another next hop only under another genid, when every destination that refers to it has died. When all that may be used are
 * taken the lookup is not remembered. While an entry is written it is dead, for the sake of interrupts.
 * Invariant: what an entry answers is what the lookups would answer now, but for a neighbour's new MAC or a removed IPv6 route between the
 * kernel's change and its event, and never longer than the watchdog lets the daemon be silent.
 */
#ifndef SHUNT_NODE_ROUTE_CACHE_H
#define SHUNT_NODE_ROUTE_CACHE_H

#include "guard.h"
#include "fib.h"

/* frozen.lines4 for each CPU; the daemon sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);	/* for its alignment */
	__type(key, __u32);
	__type(value, struct shunt_dests4);
} dests4 SEC(".maps");

/* SHUNT_HOP_SLOTS for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_HOP_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct shunt_hop4);
} hops4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHUNT_ROUTE_SLOTS);
	__type(key, __u32);
	__type(value, struct shunt_route6);
} routes6 SEC(".maps");

#define DSCP 0xfc
#define HOP_PROBES 4

/* A product's bits depend on none above them, and networks differ in the upper ones here: fold once. The upper bits are the best. */
always_inline __u32 mix(__u32 a, __u32 b, __u32 c)
{
	__u32 h = a * 0x9e3779b1U ^ b * 0x85ebca6bU ^ c;

	return (h ^ h >> 16) * 0xc2b2ae35U;
}

/*
 * What is remembered of the interface that a packet came by: with the hook, where the same port may have another way out or none. One port can carry programs
 * at both, and what leaves XDP for tc comes there with the same addresses.
 */
always_inline __u32 way_in(struct packet *p)
{
	return p->in->ifindex | HOOK_BIT;
}

always_inline void *hop4(struct packet *p, __u32 slot)
{
	slot = p->cpu * SHUNT_HOP_SLOTS + (slot & (SHUNT_HOP_SLOTS - 1));
	return bpf_map_lookup_elem(&hops4, &slot);
}

/* Return 1 and fill in the result if the lookups for this packet are remembered; if not, note where and under what to remember them. */
always_inline int remembered4(struct packet *p)
{
	struct shunt_dest4 *n;
	struct shunt_hop4 *hop;
	__u32 line, len;

	p->dests4 = NULL;
	if (lean() || !cfg.cache4)
		return 0;
	len = mtu_len(p);
	p->genid = peek(cfg.genid4, 4) + peek(cfg.nexthop_seq, 4) + (__u32)live.epoch;
	p->cpu = bpf_get_smp_processor_id();
	p->hash = mix(p->dst, p->src, way_in(p) + ((p->tos & DSCP) << 16));
	line = p->cpu * frozen.lines4 + ((p->hash >> 13) & (frozen.lines4 - 1));
	p->dests4 = bpf_map_lookup_elem(&dests4, &line);
	if (!p->dests4)
		return 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < SHUNT_DEST_WAYS; i++) {
		n = &p->dests4->way[i];
		if (n->pair == p->pair && n->genid == p->genid && len <= n->max_len)
			goto found;
	}
	return 0;
found:
	hop = hop4(p, n->hop);
	if (!hop || hop->in != way_in(p) || hop->dscp != (p->tos & DSCP))
		return 0;
	if (hop->out == p->in->ifindex && !may_turn(p))	/* a translated packet was remembered */
		return 0;
	p->out = hop->out;
	p->slow = hop->slow;
	p->next_family = AF_INET;
	p->next4 = hop->addr;
	__builtin_memcpy(p->macs, hop->macs, sizeof(p->macs));
	p->noted = &hop->noted;
	return 1;
}

/* The slot of a packet's next hop; -1 if there is none to be had. */
always_inline int remember_hop4(struct packet *p)
{
	__u32 start = mix(p->next4, p->out, way_in(p) + ((p->tos & DSCP) << 16)) >> 13;
	__u32 dscp = p->tos & DSCP, genid;
	struct shunt_hop4 *h;

#pragma clang loop unroll(full)
	for (int i = 0; i < HOP_PROBES; i++) {
		h = hop4(p, start + i);
		if (!h)
			return -1;
		genid = h->genid;
		if (genid != p->genid) {
			h->out = 0;
			/* An interrupt may have taken it just now. */
			if (__sync_val_compare_and_swap(&h->genid, genid, p->genid) != genid)
				return -1;
			h->in = way_in(p);
			h->dscp = dscp;
			h->addr = p->next4;
			h->slow = p->slow;
			h->noted = 0;
			__builtin_memcpy(h->macs, p->macs, sizeof(h->macs));
			barrier();
			h->out = p->out;
		}
		if (h->out == p->out && h->addr == p->next4 && h->in == way_in(p) && h->dscp == dscp) {
			p->noted = &h->noted;
			return (start + i) & (SHUNT_HOP_SLOTS - 1);
		}
	}
	return -1;
}

/*
 * After the lookups have said yes. A next hop of the other family is not remembered, nor what was asked for a packet that is still to be
 * segmented: the lookup checked no length for it.
 */
always_inline void remember4(struct packet *p)
{
	struct shunt_dest4 *n;
	int hop;

	p->noted = NULL;
	if (lean() || !cfg.cache4 || !p->dests4 || p->next_family != AF_INET || is_gso(p))
		return;
	hop = remember_hop4(p);
	if (hop < 0)
		return;
	n = &p->dests4->way[p->hash & (SHUNT_DEST_WAYS - 1)];
#pragma clang loop unroll(full)
	for (int i = 0; i < SHUNT_DEST_WAYS; i++) {
		struct shunt_dest4 *other = &p->dests4->way[i];

		if (other->genid != p->genid || other->pair == p->pair) {
			n = other;
			break;
		}
	}
	n->genid = p->genid - 1;
	barrier();
	n->pair = p->pair;
	n->hop = hop;
	n->max_len = p->l3_len;
	barrier();
	n->genid = p->genid;
}

always_inline int remembered6(struct packet *p)
{
	__u64 *src = (void *)p->fib->ipv6_src, *dst = (void *)p->fib->ipv6_dst;
	__u32 slot = mix(p->fib->ipv6_dst[3] ^ p->fib->ipv6_dst[1], p->fib->ipv6_src[3] ^ p->fib->flowinfo, way_in(p) ^ p->l4_proto) >> 20;
	struct shunt_nexthop *n;
	struct shunt_route6 *r;

	p->route6 = NULL;
	if (lean() || !cfg.cache6)
		return 0;
	p->genid = peek(cfg.genid6, 4) + peek(cfg.nexthop_seq, 4) + (__u32)live.epoch;
	r = bpf_map_lookup_elem(&routes6, &slot);
	p->route6 = r;
	if (!r || r->dst[0] != dst[0] || r->dst[1] != dst[1] || r->src[0] != src[0] || r->src[1] != src[1] ||
	    r->in != way_in(p) || r->flow != p->fib->flowinfo || r->proto != p->l4_proto)
		return 0;
	n = &r->next;
	if (n->genid != p->genid || mtu_len(p) > n->max_len || bpf_jiffies64() - n->born > cfg.cache6_jiffies)
		return 0;
	p->out = n->out;
	p->slow = n->slow;
	p->next_family = AF_INET6;
	__builtin_memcpy(p->macs, n->macs, sizeof(p->macs));
	__builtin_memcpy(p->fib->ipv6_dst, n->addr, sizeof(n->addr));
	p->noted = &n->noted;
	return 1;
}

always_inline void remember6(struct packet *p)
{
	struct ip6 *ip = network(p);
	struct shunt_route6 *r = p->route6;

	p->noted = NULL;
	if (lean() || !cfg.cache6 || !r || translated(p) || (void *)(ip + 1) > packet_end(p) || is_gso(p))	/* translated: the header has not what was asked for */
		return;
	r->next.genid = p->genid - 1;
	barrier();
	__builtin_memcpy(r->src, ip->src, sizeof(r->src));
	__builtin_memcpy(r->dst, ip->dst, sizeof(r->dst));
	r->in = way_in(p);
	r->flow = (ip->flow & bpf_htonl(0xfffff)) | bpf_htonl((__u32)p->tos << 20);
	r->proto = p->l4_proto;
	r->next.noted = 0;
	r->next.born = bpf_jiffies64();
	r->next.out = p->out;
	r->next.slow = p->slow;
	r->next.max_len = p->l3_len;
	__builtin_memcpy(r->next.macs, p->macs, sizeof(p->macs));
	__builtin_memcpy(r->next.addr, p->fib->ipv6_dst, sizeof(r->next.addr));
	p->noted = &r->next.noted;
	barrier();
	r->next.genid = p->genid;
}

#endif
