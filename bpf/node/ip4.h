/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ip4: what ip_rcv(), ip_rcv_finish() and ip_route_input() check before the route lookup.
 *
 * Everything that Linux would drop, answer, reassemble, deliver or interpret leaves here, so Linux does it. Linux checks martians by
 * prefix in ip_route_input_slow(); bpf_fib_lookup() does not (it succeeds for 127/8 under a default route).
 */
#ifndef SHUNT_NODE_IP4_H
#define SHUNT_NODE_IP4_H

#include "packet.h"

/* 0/8, 127/8 and 224/3: multicast, class E, limited broadcast. The address is in network byte order. */
always_inline int ip4_martian(__be32 addr)
{
	__u8 first = addr & 0xff;

	return first == 0 || first == 127 || first >= 224;
}

/* Sum of a header without options, 0xffff when the checksum is right. RFC 1071: any word width gives the same sum. */
always_inline __u32 ip4_sum(struct ip4 *ip)
{
	__u32 *w = (void *)ip;
	__u64 sum = (__u64)w[0] + w[1] + w[2] + w[3] + w[4];

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Ports as the kernel's flow dissector gives them to policy rules: for TCP, UDP and SCTP; 0 for ICMP. Other protocols would need
 * more of the dissector.
 */
always_inline int ports(struct packet *p, void *l4)
{
	__be16 *port = l4;

	switch (p->l4_proto) {
	case PROTO_TCP:
	case PROTO_UDP:
	case PROTO_SCTP:
		if ((void *)(port + 2) > packet_end(p))
			return LEAVE(SHUNT_R_TOO_SHORT);
		p->sport = port[0];
		p->dport = port[1];
		return NEXT;
	case PROTO_ICMP:
	case PROTO_ICMP6:
		return NEXT;
	}
	return LEAVE(SHUNT_R_PROTOCOL);
}

/* Errors are hashed by the packet inside when there are several next hops: RFC 792 types 3, 4, 5, 11, 12. */
always_inline int icmp4_is_error(__u8 type)
{
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

always_inline int node_ip4(struct packet *p)
{
	struct ip4 *ip = network(p);

	if (p->in->ip4)
		return p->in->ip4;
	if ((void *)(ip + 1) > packet_end(p))
		return LEAVE(SHUNT_R_TOO_SHORT);
	if (ip->ver_ihl != 0x45)
		return LEAVE((ip->ver_ihl >> 4) == 4 && (ip->ver_ihl & 0xf) > 5 ? SHUNT_R_IP4_OPTIONS : SHUNT_R_IP4_HEADER);
	p->l3_len = bpf_ntohs(ip->tot_len);
	if (p->l3_len < sizeof(*ip) || p->l3 + p->l3_len > p->len)
		return LEAVE(SHUNT_R_IP4_HEADER);
	if (ip->frag & IP4_FRAG_MASK)
		return LEAVE(SHUNT_R_FRAGMENT);
	if (ip4_martian(ip->src))
		return LEAVE(SHUNT_R_MARTIAN_SOURCE);
	if (ip4_martian(ip->dst))
		return LEAVE(SHUNT_R_MARTIAN_DESTINATION);
	if (ip->ttl <= 1)
		return LEAVE(SHUNT_R_TTL);
	if (ip4_sum(ip) != 0xffff)
		return LEAVE(SHUNT_R_IP4_CHECKSUM);
	p->l4_proto = ip->proto;
	if (ip->proto == PROTO_ICMP) {
		__u8 *type = (void *)(ip + 1);

		if ((void *)(type + 1) > packet_end(p))
			return LEAVE(SHUNT_R_TOO_SHORT);
		if (icmp4_is_error(*type))
			return LEAVE(SHUNT_R_ICMP_ERROR);
	}
	if (ip->proto == PROTO_IGMP)
		return LEAVE(SHUNT_R_PROTOCOL);
	if (cfg.ports) {
		int r = ports(p, ip + 1);

		if (r != NEXT)
			return r;
	}
	p->tos = ip->tos;
	__builtin_memcpy(&p->pair, &ip->src, sizeof(p->pair));
	return NEXT;
}

#endif
