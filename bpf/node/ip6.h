/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ip6: what ip6_rcv_core() and ip6_forward() check before and after the route lookup.
 *
 * Only plain packets between global unicast addresses go on: no extension headers, no link-local, loopback, unspecified, mapped
 * or multicast addresses, no neighbour discovery or multicast listener discovery.
 */
#ifndef SHUNT_NODE_IP6_H
#define SHUNT_NODE_IP6_H

#include "ip4.h"

/* ::/64 (unspecified, loopback, v4-mapped, v4-compatible), fe80::/10, fec0::/10 and ff00::/8. */
always_inline int ip6_special(const __be32 *addr)
{
	__u32 first = bpf_ntohl(addr[0]);

	return (first | addr[1]) == 0 || (first >> 24) >= 0xfe;
}

/*
 * No extension header of those that Linux looks behind (ipv6_ext_hdr(), nf_ip6_ext_hdr()), and not none. To a router all else is what the packet carries: a transport protocol, another packet of
 * IPv4 or IPv6, ESP.
 */
always_inline int ip6_plain(__u8 nexthdr)
{
	switch (nexthdr) {
	case PROTO_HOPOPTS:
	case 43:	/* routing */
	case 44:	/* fragment */
	case 51:	/* AH */
	case 59:	/* none */
	case 60:	/* destination options */
		return 0;
	}
	return 1;
}

always_inline int node_ip6(struct packet *p)
{
	struct ip6 *ip = network(p);

	if (p->in->ip6)
		return p->in->ip6;
	if ((void *)(ip + 1) > packet_end(p))
		return LEAVE(SHUNT_R_TOO_SHORT);
	if ((ip->flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return LEAVE(SHUNT_R_IP6_HEADER);
	/* Zero means a jumbogram, whose length is in an extension header. */
	p->l3_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (p->l3_len == sizeof(*ip) || p->l3 + p->l3_len > p->len)
		return LEAVE(SHUNT_R_IP6_HEADER);
	if (ip6_special(ip->src) || ip6_special(ip->dst))
		return LEAVE(SHUNT_R_IP6_ADDRESS);
	if (ip->hop_limit <= 1)
		return LEAVE(SHUNT_R_TTL);
	p->l4_proto = ip->nexthdr;
	if (!ip6_plain(ip->nexthdr))
		return LEAVE(SHUNT_R_IP6_EXTENSION);
	if (ip->nexthdr == PROTO_ICMP6) {
		__u8 *type = (void *)(ip + 1);

		if ((void *)(type + 1) > packet_end(p))
			return LEAVE(SHUNT_R_TOO_SHORT);
		if (*type != 128 && *type != 129)	/* echo request and reply, RFC 4443 */
			return LEAVE(SHUNT_R_ICMP6_CONTROL);
	}
	if (cfg.ports) {
		int r = ports(p, ip + 1);

		if (r != NEXT)
			return r;
	}
	__builtin_memset(p->fib, 0, sizeof(*p->fib));
	p->fib->family = AF_INET6;
	p->fib->flowinfo = ip->flow & bpf_htonl(0x0fffffff);
	__builtin_memcpy(p->fib->ipv6_src, ip->src, sizeof(ip->src));
	__builtin_memcpy(p->fib->ipv6_dst, ip->dst, sizeof(ip->dst));
	p->is6 = 1;
	p->tos = bpf_ntohl(ip->flow) >> 20;
	return NEXT;
}

#endif
