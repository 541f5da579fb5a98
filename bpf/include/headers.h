/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire formats. All fields are in network byte order. IP headers are declared with their natural alignment although they start two bytes
 * off it: every architecture that the verifier lets access packets so does it in one load.
 */
#ifndef SHUNT_HEADERS_H
#define SHUNT_HEADERS_H

#include "common.h"

struct eth {
	__u8 dst[6];
	__u8 src[6];
	__be16 proto;
} __attribute__((packed, aligned(2)));

struct vlan_tag {
	__be16 tci;
	__be16 proto;	/* of what follows */
} __attribute__((packed, aligned(2)));

struct ip4 {
	__u8 ver_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag;
	__u8 ttl;
	__u8 proto;
	__be16 check;
	__be32 src;
	__be32 dst;
};

struct ip6 {
	__be32 flow;	/* version, traffic class, flow label */
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__be32 src[4];
	__be32 dst[4];
};

#define IP4_FRAG_MASK	bpf_htons(0x3fff)	/* more fragments, or an offset */

enum {
	PROTO_HOPOPTS = 0,
	PROTO_ICMP = 1,
	PROTO_IGMP = 2,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_DCCP = 33,
	PROTO_ICMP6 = 58,
	PROTO_SCTP = 132,
	PROTO_UDPLITE = 136,
};

#endif
