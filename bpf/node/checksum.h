/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Transport checksums, where Linux verifies them on the way (connection tracking): a packet whose checksum is wrong belongs to no
 * connection, and rules may drop it.
 *
 * The bytes are copied before they are added up: the verifier follows every length of a packet apart, but not of a buffer, and the frame may
 * lie in several pieces.
 */
#ifndef SHUNT_CHECKSUM_H
#define SHUNT_CHECKSUM_H

#include "packet.h"

#define SUM_MAX 4096	/* bytes; longer packets are not verified */
#define SUM_STEP 512	/* what bpf_csum_diff() takes at once before Linux 6.13 */

struct shunt_sum {
	__u32 word[SUM_MAX / 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_sum);
} summed SEC(".maps");

/* Is it right, and could that be found out? The sum of everything, addresses included, is then all ones; zero stands for none in UDP. */
always_inline int checksum_right(struct packet *p)
{
	__u32 off = p->l3 + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__u32 len = p->l3_len - (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__u64 all = bpf_htonl((__u32)p->l4_proto << 16 | len);
	__u32 zero = 0, sum = 0;
	struct shunt_sum *s = bpf_map_lookup_elem(&summed, &zero);

	if (!s || len < 8 || len > SUM_MAX - 4)
		return 0;
	s->word[len / 4] = 0;	/* behind the last byte */
	if (load_bytes(p->ctx, off, s, len))
		return 0;
	if (p->l4_proto == PROTO_UDP && !(s->word[1] >> 16))
		return 1;
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < SUM_MAX / 4; at += SUM_STEP / 4) {
		__u32 n = len > SUM_STEP ? SUM_STEP : (len + 3) & ~3;

		sum = bpf_csum_diff(NULL, 0, &s->word[at], n, sum);
		if (len <= SUM_STEP)
			break;
		len -= SUM_STEP;
	}
	all += sum;
	if (p->is6) {
		for (int i = 0; i < 4; i++)
			all += (__u64)p->fib->ipv6_src[i] + p->fib->ipv6_dst[i];
	} else {
		all += (__u64)p->src + p->dst;
	}
	all = (all & 0xffffffff) + (all >> 32);
	all = (all & 0xffff) + ((all >> 16) & 0xffff) + (all >> 32);
	all = (all & 0xffff) + (all >> 16);
	all = (all & 0xffff) + (all >> 16);
	return all == 0xffff;
}

#endif
