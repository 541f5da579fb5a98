/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One packet on its way through the nodes.
 *
 * Problem: nodes must neither parse again what an earlier one found nor depend on the hook that they run at.
 * Mechanism: one structure, which after inlining lives in registers; nodes read it and fill the fields that they own.
 * Invariant: no node before `rewrite` writes to the packet, so every earlier exit hands Linux an untouched frame.
 */
#ifndef SHUNT_PACKET_H
#define SHUNT_PACKET_H

#include "headers.h"

#define CT_FOUND	2	/* there is a connection, and Linux would do nothing for the packet but extend its timeout */
#define CT_MARKED	1	/* Linux checks its windows no more */
#define CT_TRANSLATED	4	/* and translates its packets: node/nat.h */
#define CT_OFFLOADED	8	/* and has it in a flow table: node/flowtable.h */

struct packet {
	ctx_t *ctx;
	const volatile struct shunt_config *conf;	/* of its port, in the generic program; see common.h */
	void *data;			/* of the linear part, which ends at packet_end() */
	const volatile struct shunt_input *in;
	__u32 l3;			/* offset of the IP header: 14 plus 4 for each tag in the frame */
	__u32 l3_len;			/* bytes from the IP header on, as the IP header says */
	__u32 len;			/* bytes of the whole frame, all buffers */
	__u32 gso;			/* bytes of each segment, 0 where there are none (TC) */
	__be16 proto;			/* innermost ethertype */
	__u8 is6;
	__u8 l4_proto;
	__u8 tos;			/* or traffic class, by which the route is looked up */
	__be16 sport, dport;		/* only where policy rules need them, else 0 */
	__u8 ct_state;			/* of the connection, where Linux tracks them: a bit of enum shunt_ct_state */
	__u8 ct_dir;			/* 0 original, 1 reply */
	__u8 ct;			/* CT_* */
	__u8 by_peer;			/* into the other end of a veth */
	__u8 shown;			/* bridged, and to be shown to rules: enum shunt_shown, node/shown.h */
	__u32 ct_status;		/* IPS_* */
	__u32 ct_mark;
	struct bpf_fib_lookup *fib;	/* the route lookup, only where there is one or IPv6; apart, since its address escapes and would keep all of this in memory */
	union {				/* of IPv4 */
		struct {
			__be32 src, dst;
		};
		__u64 pair;
	};
	__u32 out;			/* logical egress ifindex */
	__u64 to;			/* of a bridged frame: the port's struct net_device */
	struct shunt_pair *known;	/* and what is remembered of its two stations; NULL: nothing */
	__u32 slow;			/* reason by which nothing may leave there; 0: it may; SHUNT_ONTO: it is a bridge (TC) */
	__u32 onto;			/* of a packet routed to a bridge: its port, which is entered at once; 0: none (TC) */
	__u16 vlan_how;			/* of a frame of a bridge that filters by VLAN: TAGGED_IN, TAGGED_OUT; of what is routed to one: TAGGED_OUT */
	__u16 vlan_id;
	__u8 next_family;
	__be32 next4;			/* next hop, where that is IPv4; else it is in `fib` */
	__u32 macs[3];			/* destination and source address, as in a frame */
	__u32 hash, cpu;		/* where to remember the lookup */
	struct shunt_dests4 *dests4;
	struct shunt_route6 *route6;
	__u64 *noted;			/* in what is remembered; NULL if it is not */
	__u32 genid;			/* from before the lookup */
	struct rule_walk *rules;	/* node/rules.h */
	struct shunt_tags tags;		/* to push at XDP */
};

/* What bridges do not show to IP keeps what lies behind the packet; what they do is not fast where chains of family bridge are asked, and there is something. */
always_inline int keeps_padding(const struct packet *p)
{
	return p->shown & SHUNT_SHOWN_FRAMES;
}

/* The IP header; the place of it is masked because the verifier may know nothing of it, see depth_forgotten(). To be compared with packet_end() before it is read. */
always_inline void *network(const struct packet *p)
{
#ifdef HOOK_TC
	return p->data + sizeof(struct eth);
#else
	return p->data + (p->l3 & 0x7f);
#endif
}

/*
 * What of two values is for the packet's family. Both are there before it is chosen: where the compiler is left to choose between two places of `frozen` to read from,
 * neither can be folded away.
 */
always_inline __u32 of_family(const struct packet *p, __u32 ip4, __u32 ip6)
{
	return p->is6 ? ip6 : ip4;
}

/*
 * The same, for where the compiler would remember 32 bits of it from another block: to the kernel the context has 32 bits there and gives all 64, of which the compiler
 * would then cut off the upper half.
 */
always_inline void *packet_end_anew(const struct packet *p)
{
	void *end;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(end) : "r"(p->ctx), "i"(__builtin_offsetof(ctx_t, data_end)));
	return end;
}

/* Where the linear part ends, exclusive. Read anew each time: kept beside `data` it would take room of the stack, and cost as much. */
always_inline void *packet_end(const struct packet *p)
{
	return ctx_end(p->ctx);
}

#endif
