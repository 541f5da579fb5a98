/* SPDX-License-Identifier: GPL-2.0 */
/* Entry point at TC ingress. */
#include "../include/ctx_skb.h"
#include "../include/exit.h"

#define TCP_DOFF 12	/* offset of the byte whose upper half is the header length in words */
#define UDP_HEADER 8

always_inline int is_gso(struct packet *p)
{
	__u32 gso = p->gso;

	forget(gso, p->len);	/* or all that comes behind is verified for both */
	return gso != 0;
}

/* Length of one packet on the wire, for the mtu of notable routes. */
always_inline __u32 mtu_len(struct packet *p)
{
	__u32 l4 = p->l3 + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__u8 doff = 0;

	if (!is_gso(p))
		return p->l3_len;
	if (p->l4_proto != PROTO_TCP || bpf_skb_load_bytes(p->ctx, l4 + TCP_DOFF, &doff, 1))
		return p->l3_len;
	return l4 - p->l3 + (doff >> 4) * 4 + p->gso;
}

/*
 * Segments are checked by bpf_check_mtu() at the end, which knows the device's MTU alone. To the lookup they matter where Linux learned something about the
 * destination: a small path MTU of IPv4 binds forwarded packets too (fnhe_mtu_locked), and a redirect of IPv6 looks like a path MTU of 0. With a length of 0
 * it would leave a GSO packet's length alone.
 */
always_inline __u32 fib_len(struct packet *p)
{
	__u32 l3_header = p->is6 ? sizeof(struct ip6) : sizeof(struct ip4);

	if (!is_gso(p) || p->l4_proto == PROTO_TCP)
		return mtu_len(p);
	return p->l4_proto == PROTO_UDP ? l3_header + UDP_HEADER + p->gso : 0;
}

#include "../node/egress_tc.h"
#include "../node/pipeline.h"
#include "../node/flows.h"
#include "../node/bridge.h"
#include "../node/onto.h"

SEC("tc")
int shunt_tc(struct __sk_buff *ctx)
{
	struct bpf_fib_lookup fib;
	struct packet packet = { .ctx = ctx, .fib = &fib }, *p = &packet;
	int r, known;
	/* Ethernet, IP, and ports or, where connections are tracked, TCP. What a local socket sends has no more than its own headers in one piece. */
	__u32 headers = sizeof(struct eth) + (ctx->protocol == bpf_htons(ETH_P_IP) ? sizeof(struct ip4) : sizeof(struct ip6)) + (frozen.track ? 20 : 4);

	if (resting(ctx)) {
		count(p, SHUNT_R_RESTING, ctx->len);
		return TCX_NEXT_;
	}
	__builtin_memset(fib.ipv6_dst, 0, sizeof(fib.ipv6_dst));	/* older verifiers do not see that it is IPv6's alone */
	if (ctx_end(ctx) - ctx_data(ctx) < headers)
		bpf_skb_pull_data(ctx, ctx->len < headers ? ctx->len : headers);
	p->data = ctx_data(ctx);
	p->len = ctx->len;
	p->gso = ctx->gso_size;
	known = configured(p);
	if (known)
		note_flow(p);
	if (!known) {
		r = SHUNT_R_WRONG_DEVICE;
	} else if (at_bridge(p)) {
		r = bridge(p);
		if (r == NEXT && !is_shown(p)) {
			leave(p, SHUNT_R_FAST, p->out);
			return redirect_bridged(p);
		}
		if (for_host(p, r))
			r = NEXT;
	} else {
		r = ctx->pkt_type == PACKET_HOST ? NEXT : SHUNT_R_PACKET_TYPE;
	}
	if (r == NEXT && cfg.marks && !bridged(p) && ctx->mark)
		r = SHUNT_R_SKB_MARK;
	if (r == NEXT)
		r = pipeline(p);
	if (r == NEXT && cfg.onto && !bridged(p))
		onto(p);
	if (r == NEXT)
		r = bridged(p) ? commit_bridged(p) : commit_tc(p);
	if (r == NEXT || r == SHUNT_R_RULE_DROP)
		rules_count(p, p->len - p->l3);
	if (r != NEXT) {
		leave(p, r, 0);
		return r == SHUNT_R_RULE_DROP ? TCX_DROP_ : TCX_NEXT_;
	}
	if (bridged(p)) {
		leave(p, SHUNT_R_FAST, p->out);
		return redirect_bridged(p);
	}
	if (at_bridge(p) && ctx->pkt_type != PACKET_HOST)	/* as br_handle_frame() does for the bridge's own address */
		bpf_skb_change_type(ctx, PACKET_HOST);
	leave(p, SHUNT_R_FAST, p->out);
	return cfg.onto && p->onto ? redirect_onto(p) : redirect_tc(p);
}

char LICENSE[] SEC("license") = "GPL";
