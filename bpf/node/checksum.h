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

/* With room behind for what older verifiers take a masked length to be. */
struct shunt_sum {
	__u32 word[(SUM_MAX + SUM_STEP) / 4];
};

/* The value of x, which is less than the power of two: older verifiers may have seen that compared in another register, or before it was spilled. */
#define below(power, x)									\
	do {										\
		__u64 masked_ = (x);							\
		asm volatile("%0 &= %1" : "+r"(masked_) : "i"((power) - 1));		\
		(x) = masked_;								\
	} while (0)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_sum);
} summed SEC(".maps");

/*
 * Is the checksum of what lies behind the network header right, and could that be found out? `pseudo` is the sum of the rest that it covers. The sum of
 * everything is then all ones; zero stands for none in UDP. A global function, which the verifier reads once, and whose variables need no room in the
 * frame of its caller.
 */
__attribute__((noinline)) int sum_right(ctx_t *ctx, __u32 off, __u32 len, __u32 proto, __u64 pseudo)
{
	__u64 all = pseudo + bpf_htonl(proto << 16 | len);
	__u32 zero = 0, sum = 0;
	struct shunt_sum *s = bpf_map_lookup_elem(&summed, &zero);

	if (!s || len < 8 || len > SUM_MAX - 4)
		return 0;
	len -= 8;
	below(SUM_MAX, len);
	len += 8;
	s->word[len / 4] = 0;	/* behind the last byte */
	if (load_bytes(ctx, off, s, len))
		return 0;
	if (proto == PROTO_UDP && !(s->word[1] >> 16))
		return 1;
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < SUM_MAX / 4; at += SUM_STEP / 4) {
		__u32 n = len > SUM_STEP ? SUM_STEP : (len + 3) & ~3;

		below(2 * SUM_STEP, n);
		sum = bpf_csum_diff(NULL, 0, &s->word[at], n, sum);
		if (len <= SUM_STEP)
			break;
		len -= SUM_STEP;
	}
	all += sum;
	all = (all & 0xffffffff) + (all >> 32);
	all = (all & 0xffff) + ((all >> 16) & 0xffff) + (all >> 32);
	all = (all & 0xffff) + (all >> 16);
	all = (all & 0xffff) + (all >> 16);
	return all == 0xffff;
}

always_inline int checksum_right(struct packet *p)
{
	__u32 header = p->is6 ? sizeof(struct ip6) : sizeof(struct ip4);
	__u64 addresses = 0;

	if (p->is6) {
		for (int i = 0; i < 4; i++)
			addresses += (__u64)p->fib->ipv6_src[i] + p->fib->ipv6_dst[i];
	} else {
		addresses = (__u64)p->src + p->dst;
	}
	return sum_right(p->ctx, p->l3 + header, p->l3_len - header, p->l4_proto, addresses);
}

#endif
