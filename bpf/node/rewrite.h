/* SPDX-License-Identifier: GPL-2.0 */
/* rewrite: checksums after numbers that they cover have changed, without adding up the rest; RFC 1624, equation 3. */
#ifndef SHUNT_NODE_REWRITE_H
#define SHUNT_NODE_REWRITE_H

#include "packet.h"

/* By how much a sum of 16-bit words changes with a number of up to four bytes. Several may be added. */
always_inline __u64 differ(__u32 old, __u32 new)
{
	return (__u64)~old + new;
}

/* 32 bits of it, as the kernel's helpers take it. */
always_inline __u32 folded(__u64 diff)
{
	diff = (diff & 0xffffffff) + (diff >> 32);
	return diff + (diff >> 32);
}

always_inline __u16 recheck(__u16 check, __u64 diff)
{
	__u32 sum = folded(diff);

	sum = (sum & 0xffff) + (sum >> 16) + (__u16)~check;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

#endif
