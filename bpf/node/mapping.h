/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mapping: static translation of IPv4 addresses and ports, without connections.
 *
 * Problem: a mapping of one address and port to another needs no memory of connections, only a look into a table, once for the destination of
 * packets that come in and once for the source of those that go back.
 * Mechanism: two hash tables in one array, filled by internal/compile so that whatever is in them is found within MAPPING_PROBES steps. The
 * mapped destination counts for the route and for the rules behind it, the source is changed behind them, as Linux does it.
 * Invariant: nothing is written before the last check. TCP, UDP and ICMP only; others go to Linux.
 */
#ifndef SHUNT_NODE_MAPPING_H
#define SHUNT_NODE_MAPPING_H

#include "rewrite.h"
#include "rules.h"

#define MAPPING_PROBES 8
#define TC_ACT_UNSPEC_ (-1)
#define TC_ACT_SHOT_ 2

enum { MAP_DESTINATIONS = 1, MAP_SOURCES = 2 };

/* Written by internal/compile. */
const volatile struct {
	__u32 on;	/* MAP_… */
	__u32 mask;	/* entries of a table, less one */
} mapping;

/* For each table its entries: key and value, see mapping_key(). */
volatile __u64 mapping_data[4] SEC(".data.mapping");

struct mappings {
	__be32 dst, src;	/* 0: as it is */
	__be16 dport, sport;	/* 0: as it is */
};

always_inline __u64 mapping_at(__u32 offset)
{
	volatile __u8 *p = (volatile __u8 *)mapping_data;

	asm volatile("" : "+r"(p));	/* its size is not what the compiler sees */
	return *(volatile __u64 *)(p + (offset & (mapping.mask * 32ULL + 31) & ~7ULL));
}

/* Bits 0 to 31 are the address, 32 to 47 the port, both in network order, then the protocol; the top bit tells an entry from none. */
always_inline __u64 mapping_key(__be32 addr, __be16 port, __u8 proto)
{
	return addr | (__u64)port << 32 | (__u64)proto << 48 | 1ULL << 63;
}

always_inline __u64 mapping_probe(__u32 table, __u64 key)
{
	__u32 slot = key * 0x9e3779b97f4a7c15ULL >> 32;

	_Pragma("clang loop unroll(full)")
	for (int i = 0; i < MAPPING_PROBES; i++) {
		__u32 at = table * (mapping.mask + 1) * 16 + (slot + i & mapping.mask) * 16;
		__u64 k = mapping_at(at);

		if (k == key)
			return mapping_at(at + 8);
		if (!k)
			return 0;
	}
	return 0;
}

/* What an address and port become, as mapping_key() has it; 0 when they stay. */
always_inline __u64 mapping_find(struct packet *p, __u32 table, __be32 addr, __be16 port)
{
	__u64 found = 0;

	if (p->l4_proto != PROTO_ICMP)
		found = mapping_probe(table, mapping_key(addr, port, p->l4_proto));
	return found ? found : mapping_probe(table, mapping_key(addr, 0, 0));
}

always_inline int mapping_able(struct packet *p)
{
	__u32 l4 = p->l4_proto == PROTO_TCP ? 20 : 8;

	if (p->l4_proto != PROTO_TCP && p->l4_proto != PROTO_UDP && p->l4_proto != PROTO_ICMP)
		return SHUNT_R_PROTOCOL;
	return network(p) + sizeof(struct ip4) + l4 > packet_end(p) ? SHUNT_R_TOO_SHORT : NEXT;
}

always_inline void mapping_ports(struct packet *p, __be16 *sport, __be16 *dport)
{
	__be16 *l4 = network(p) + sizeof(struct ip4);

	*sport = *dport = 0;
	if (p->l4_proto == PROTO_ICMP || (void *)(l4 + 2) > packet_end(p))
		return;
	*sport = l4[0];
	*dport = l4[1];
}

/* Before the route: where to. */
always_inline int map_destination(struct packet *p, struct mappings *m)
{
	__be16 sport, dport;
	__u64 to;
	int r;

	if (!(mapping.on & MAP_DESTINATIONS) || p->is6)
		return NEXT;
	mapping_ports(p, &sport, &dport);
	to = mapping_find(p, 0, p->dst, dport);
	if (!to)
		return NEXT;
	r = mapping_able(p);
	if (r != NEXT)
		return r;
	m->dst = to;
	m->dport = to >> 32;
	p->dst = m->dst;
	if (!rules_on())
		return NEXT;
	p->rules->value[SHUNT_V_DST] = bpf_ntohl(m->dst);
	if (m->dport)
		p->rules->value[SHUNT_V_DPORT] = bpf_ntohs(m->dport);
	return NEXT;
}

/* Behind the rules: where from. */
always_inline int map_source(struct packet *p, struct mappings *m)
{
	__be16 sport, dport;
	__u64 to;
	int r;

	if (!(mapping.on & MAP_SOURCES) || p->is6)
		return NEXT;
	mapping_ports(p, &sport, &dport);
	to = mapping_find(p, 1, p->src, sport);
	if (!to)
		return NEXT;
	r = mapping_able(p);
	if (r != NEXT)
		return r;
	m->src = to;
	m->sport = to >> 32;
	return NEXT;
}

#ifdef HOOK_XDP

always_inline void apply_xdp(struct packet *p, struct mappings *m)
{
	struct ip4 *ip = network(p);
	__be16 *port = (void *)(ip + 1);
	__u16 *check = NULL;
	__u16 sum;

	if (!mapping.on || !(m->dst | m->src) || (void *)(ip + 1) > packet_end(p))
		return;
	if (p->l4_proto == PROTO_TCP && (void *)(port + 10) <= packet_end(p))
		check = (__u16 *)port + 8;
	else if (p->l4_proto == PROTO_UDP && (void *)(port + 4) <= packet_end(p) && port[3])
		check = (__u16 *)port + 3;
	sum = check ? *check : 0;
	if (m->dst) {
		ip->check = recheck(ip->check, differ(ip->dst, m->dst));
		sum = recheck(sum, differ(ip->dst, m->dst));
		ip->dst = m->dst;
	}
	if (m->src) {
		ip->check = recheck(ip->check, differ(ip->src, m->src));
		sum = recheck(sum, differ(ip->src, m->src));
		ip->src = m->src;
	}
	if (p->l4_proto == PROTO_ICMP || (void *)(port + 2) > packet_end(p))
		return;
	if (m->dport) {
		sum = recheck(sum, differ(port[1], m->dport));
		port[1] = m->dport;
	}
	if (m->sport) {
		sum = recheck(sum, differ(port[0], m->sport));
		port[0] = m->sport;
	}
	if (check)
		*check = sum || p->l4_proto != PROTO_UDP ? sum : 0xffff;
}

#else

/* The helpers know of checksums that are still to be filled in. */
always_inline void remap(struct packet *p, __u32 at, __u32 check, __u64 flags, __u64 old, __u64 new, __u32 size)
{
	if (check)
		bpf_l4_csum_replace(p->ctx, check, old, new, flags | size);
	bpf_skb_store_bytes(p->ctx, at, &new, size, 0);
}

always_inline void apply_tc(struct packet *p, struct mappings *m)
{
	struct ip4 *ip = network(p);
	__u32 l3 = p->l3, l4 = l3 + sizeof(*ip), check = 0;
	__be16 sport, dport;
	__be32 src, dst;
	__u64 flags = 0;

	if (!mapping.on || !(m->dst | m->src) || (void *)(ip + 1) > packet_end(p))
		return;
	src = ip->src;
	dst = ip->dst;
	mapping_ports(p, &sport, &dport);
	if (p->l4_proto == PROTO_TCP) {
		check = l4 + 16;
	} else if (p->l4_proto == PROTO_UDP) {
		check = l4 + 6;
		flags = BPF_F_MARK_MANGLED_0;
	}
	if (m->dst) {
		bpf_l3_csum_replace(p->ctx, l3 + __builtin_offsetof(struct ip4, check), dst, m->dst, 4);
		remap(p, l3 + __builtin_offsetof(struct ip4, dst), check, flags | BPF_F_PSEUDO_HDR, dst, m->dst, 4);
	}
	if (m->src) {
		bpf_l3_csum_replace(p->ctx, l3 + __builtin_offsetof(struct ip4, check), src, m->src, 4);
		remap(p, l3 + __builtin_offsetof(struct ip4, src), check, flags | BPF_F_PSEUDO_HDR, src, m->src, 4);
	}
	if (p->l4_proto == PROTO_ICMP)
		return;
	if (m->dport)
		remap(p, l4 + 2, check, flags, dport, m->dport, 2);
	if (m->sport)
		remap(p, l4, check, flags, sport, m->sport, 2);
}

#endif
#endif
