/* SPDX-License-Identifier: GPL-2.0 */
/* Entry points at XDP: the stub that is attached, and the program that its slot holds. */
#include "../include/ctx_xdp.h"
#include "../include/exit.h"

always_inline __u32 fib_len(struct packet *p)
{
	return p->l3_len;
}

always_inline __u32 mtu_len(struct packet *p)
{
	return p->l3_len;
}

always_inline int is_gso(struct packet *p)
{
	return 0;
}

#include "../node/egress_xdp.h"
#include "../node/pipeline.h"
#include "../node/flows.h"
#include "../node/bridge.h"

SEC("xdp.frags")
int shunt_xdp(struct xdp_md *ctx)
{
	struct bpf_fib_lookup fib;
	struct packet packet = { .ctx = ctx, .fib = &fib, .data = ctx_data(ctx) }, *p = &packet;
	__u32 padded;
	int r, known;

	if (resting(ctx)) {
		count(p, SHUNT_R_RESTING, ctx_len(ctx));
		return XDP_PASS;
	}
	__builtin_memset(fib.ipv6_dst, 0, sizeof(fib.ipv6_dst));	/* older verifiers do not see that it is IPv6's alone */
	p->len = frame_len(ctx);
	known = configured(p);
	if (known)
		note_flow(p);
	if (!known) {
		r = SHUNT_R_WRONG_DEVICE;
	} else if (frozen.skb_born && cfg.skb_born && has_offload(ctx)) {
		r = SHUNT_R_SKB_OFFLOAD;
	} else if (at_bridge(p)) {
		r = bridge(p);
		if (r == NEXT && !is_shown(p)) {
			leave(p, SHUNT_R_FAST, p->out);
			return XDP_REDIRECT;	/* to where bridge_egress() said */
		}
		if (for_host(p, r))
			r = NEXT;
	} else {
		r = NEXT;
	}
	if (r == NEXT)
		r = pipeline(p);
	padded = p->len - p->l3;
	if (r == NEXT)
		r = !bridged(p) ? commit_xdp(p) : keeps_padding(p) ? NEXT : trim(p);
	if (r == NEXT || r == SHUNT_R_RULE_DROP)
		rules_count(p, padded);
	if (r != NEXT) {
		leave(p, r, 0);
		return r == SHUNT_R_RULE_DROP ? XDP_DROP : XDP_PASS;
	}
	leave(p, SHUNT_R_FAST, p->out);
	return XDP_REDIRECT;	/* to where node_egress() or bridge_egress() said */
}

char LICENSE[] SEC("license") = "GPL";
