/* SPDX-License-Identifier: GPL-2.0 */
/* ttl: one hop less, as ip_decrease_ttl() and ip6_forward() do it; the IPv4 checksum by RFC 1141. */
#ifndef SHUNT_NODE_TTL_H
#define SHUNT_NODE_TTL_H

#include "packet.h"

always_inline void ttl4(struct ip4 *ip)
{
	__u32 check = (__u16)ip->check;

	check += bpf_htons(0x0100);
	ip->check = (__be16)(check + (check >= 0xffff));
	ip->ttl--;
}

#endif
