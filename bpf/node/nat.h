/* SPDX-License-Identifier: GPL-2.0 */
/*
 * nat: the packets of a connection that Linux translates, given the addresses and ports that nf_nat_packet() gives them.
 *
 * Problem: most of what crosses a gateway or comes from a container is translated. Linux decides by the first packet how; each packet after it
 * is only rewritten, once before the route is looked up and once behind it.
 * Mechanism: what the kernel's entry of the connection expects from the other side says what this side's packets become: the inverse of that tuple, for
 * masquerading, source and destination NAT, redirection and several of these at once. Rules before translation see the packet as it came, the route and
 * the rules behind it the new destination and the old source; all of it is written at the commit point, checksums by what changed.
 * Invariant: Linux's nat functions are registered (the graph sees to that, and the guard), no rule stands behind them where it would see what is translated, and the
 * connection is established, so that they would do nothing else. A masqueraded connection leaves by the device that it was masqueraded for, or Linux ends it.
 */
#ifndef SHUNT_NODE_NAT_H
#define SHUNT_NODE_NAT_H

#include "ip6.h"
#include "rules.h"
#include "rewrite.h"
#include "guard.h"
#include "shown.h"

/* enum ip_conntrack_status, include/uapi/linux/netfilter/nf_conntrack_common.h */
#define IPS_SRC_NAT	(1 << 4)
#define IPS_DST_NAT	(1 << 5)
#define IPS_NAT		(IPS_SRC_NAT | IPS_DST_NAT)

/* What the packet at hand becomes, in network order; an IPv4 address is the first word. */
struct translation {
	__be32 src[4], dst[4];
	__be16 sport, dport;
	__u32 only;	/* ifindex of the one device that it may leave by; 0: any */
	__u32 is6, udp;
	__u64 addrs;	/* by how much the sums of addresses and of ports change */
	__u64 ports;
	__be32 hop[4];	/* node/flowtable.h: the next hop, while `fib` has something else */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct translation);
} translations SEC(".maps");

/* Is the packet one that is translated here? Its connection has been judged. */
always_inline int translated(const struct packet *p)
{
	__u32 ct = p->ct;

	if (!frozen.nat)
		return 0;
	forget(ct, p->l3_len);	/* or all that comes behind is verified for both */
	return ct & CT_TRANSLATED;
}

always_inline struct translation *translation(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&translations, &zero);
}

always_inline void inverse(struct translation *t, struct nf_conntrack_tuple *other, int is6)
{
	t->src[0] = other->dst.u3.all[0];
	t->dst[0] = other->src.u3.all[0];
	if (is6) {
#pragma clang loop unroll(full)
		for (int i = 1; i < 4; i++) {
			t->src[i] = other->dst.u3.all[i];
			t->dst[i] = other->src.u3.all[i];
		}
	}
	t->sport = other->dst.u.all;
	t->dport = other->src.u.all;
}

/*
 * Which sorts hang on a connection: a byte for each, in the order of their numbers, that says where it lies, 0 for none. By words, where memory is read in such: for each read the kernel
 * checks the address. (For a pointer that is followed from one that it trusts, the verifier looks for the type by name among all of the kernel's, on each path that comes here, which was a
 * quarter of the time that a program with connections took to load; for a number it does not.)
 */
struct hung {
	__u64 at;
	__u64 low, high;	/* of the first eight sorts and of those behind */
};

#define EXT_PLACES bpf_core_field_offset(struct nf_ct_ext, offset)
#define EXT_EXISTS(id) bpf_core_enum_value_exists(enum nf_ct_ext_id, id)
#define EXT_NUMBER(id) bpf_core_enum_value(enum nf_ct_ext_id, id)

always_inline void hung_on(struct nf_conn *ct, struct hung *h)
{
	h->at = h->low = h->high = 0;
	if (frozen.peek != SHUNT_PEEK_CAST)
		return;
	h->at = (__u64)ct->ext;
	h->low = peek(h->at + EXT_PLACES, 8);	/* nothing where nothing hangs on it */
	h->high = peek(h->at + EXT_PLACES + 8, 8);
}

#define NO_DEVICE (~0U)	/* no device's index */

/* The device that a connection was masqueraded for, nf_nat_oif_changed(); 0 for none, NO_DEVICE where the kernel does not tell how it is kept. */
always_inline __u32 masqueraded_for(struct nf_conn *ct, struct hung *h)
{
	struct nf_ct_ext *ext;
	__u32 at;

	if (!EXT_EXISTS(NF_CT_EXT_NAT) || !bpf_core_type_exists(struct nf_conn_nat))
		return NO_DEVICE;
	if (!bpf_core_field_exists(struct nf_conn_nat, masq_index))	/* a kernel that does not masquerade */
		return 0;
	asm volatile("");	/* extended() says why */
	if (frozen.peek == SHUNT_PEEK_CAST) {
		at = (EXT_NUMBER(NF_CT_EXT_NAT) < 8 ? h->low : h->high) >> (EXT_NUMBER(NF_CT_EXT_NAT) & 7) * 8 & 0xff;
	} else {	/* read anew, or all between is verified for connections with and without */
		ext = ct->ext;
		h->at = (__u64)ext;
		at = ext ? *((__u8 *)ext + EXT_PLACES + EXT_NUMBER(NF_CT_EXT_NAT)) : 0;
	}
	return at ? peek(h->at + at + bpf_core_field_offset(struct nf_conn_nat, masq_index), 4) : 0;
}

/*
 * Is a connection that is not translated masqueraded all the same, for the address that it has anyway? Linux lets it leave by no other device either. Who
 * sends from the router's own address is seldom enough for Linux to have all of it.
 */
always_inline int masqueraded_as_it_is(struct packet *p, struct nf_conn *ct, struct hung *h)
{
	return (frozen.nat & (p->is6 ? SHUNT_NAT_IP6 : SHUNT_NAT_IP4)) && !p->ct_dir && masqueraded_for(ct, h);
}

/* Programs that translate what goes from port to port. */
#if defined(HOOK_TC) && !defined(SHUNT_GENERIC)
#define TRANSLATES_BRIDGED 1
#else
#define TRANSLATES_BRIDGED 0
#endif

/*
 * A frame between ports gets a new sender behind all rules, and goes where it went. With another receiver the bridge would send it elsewhere, or the router; and chains of
 * family bridge stand before and behind.
 */
always_inline int nat_bridged(struct packet *p, struct translation *t)
{
	__be16 *port = network(p) + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));

	if ((p->shown & SHUNT_SHOWN_FRAMES) || (t->only && t->only != p->in->ifindex))
		return SHUNT_R_CONNTRACK_NAT;
	if ((void *)(port + 2) > packet_end(p) || port[1] != t->dport)
		return SHUNT_R_CONNTRACK_NAT;
	if (!p->is6)
		return p->dst == t->dst[0] ? NEXT : SHUNT_R_CONNTRACK_NAT;
	return (p->fib->ipv6_dst[0] ^ t->dst[0]) | (p->fib->ipv6_dst[1] ^ t->dst[1]) | (p->fib->ipv6_dst[2] ^ t->dst[2]) | (p->fib->ipv6_dst[3] ^ t->dst[3]) ?
	       SHUNT_R_CONNTRACK_NAT : NEXT;
}

/* While the connection is held: note what becomes of its packet. */
always_inline int node_nat(struct packet *p, struct nf_conn *ct, struct hung *h)
{
	struct translation *t;

	if (!(frozen.nat & (p->is6 ? SHUNT_NAT_IP6 : SHUNT_NAT_IP4)) || (bridged(p) && !TRANSLATES_BRIDGED))
		return SHUNT_R_CONNTRACK_NAT;
	t = translation();
	if (!t)
		return SHUNT_R_CONNTRACK_NAT;
	if (p->ct_dir)
		inverse(t, &ct->tuplehash[0].tuple, p->is6);
	else
		inverse(t, &ct->tuplehash[1].tuple, p->is6);
	t->is6 = p->is6;
	t->udp = p->l4_proto == PROTO_UDP;
	t->only = p->ct_dir ? 0 : masqueraded_for(ct, h);
	return TRANSLATES_BRIDGED && bridged(p) ? nat_bridged(p, t) : NEXT;
}

/* Before the route: where to. ip_route_input() looks at the new address as it would at any. */
always_inline int nat_destination(struct packet *p)
{
	struct translation *t = translation();
	struct rule_walk *w = p->rules;

	if (!t)
		return SHUNT_R_CONNTRACK_NAT;
	if (p->is6) {
		if (ip6_special(t->dst))
			return SHUNT_R_CONNTRACK_NAT;
		__builtin_memcpy(p->fib->ipv6_dst, t->dst, sizeof(t->dst));
	} else {
		if (ip4_martian(t->dst[0]))
			return SHUNT_R_CONNTRACK_NAT;
		p->dst = t->dst[0];
	}
	if (cfg.ports)
		p->dport = t->dport;
	if (!rules_on() || !w)
		return NEXT;
	w->value[SHUNT_V_DPORT] = bpf_ntohs(t->dport);
	if (p->is6) {
		w->dst[0] = (__u64)bpf_ntohl(t->dst[0]) << 32 | bpf_ntohl(t->dst[1]);
		w->dst[1] = (__u64)bpf_ntohl(t->dst[2]) << 32 | bpf_ntohl(t->dst[3]);
	} else {
		w->value[SHUNT_V_DST] = bpf_ntohl(t->dst[0]);
	}
	return NEXT;
}

/* Behind the route: may it leave there? Linux drops what may not, and forgets the connection. */
always_inline int nat_device(struct packet *p)
{
	struct translation *t = translation();

	return !t || (t->only && t->only != p->out) ? SHUNT_R_CONNTRACK_NAT : NEXT;
}

always_inline __u64 new4(struct ip4 *ip, __be32 *addr, __be32 new)
{
	__u64 diff = differ(*addr, new);

	if (*addr == new)
		return 0;
	ip->check = recheck(ip->check, diff);
	*addr = new;
	return diff;
}

always_inline __u64 new6(__be32 *addr, const __be32 *new)
{
	__u64 diff = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < 4; i++) {
		diff += differ(addr[i], new[i]);
		addr[i] = new[i];
		barrier();	/* not all at once: registers are few */
	}
	return diff;
}

/*
 * The transport checksum at an offset, after what it covers has changed. At TC helpers know of those that are still to be filled in. In what a device has added up
 * over the whole packet (CHECKSUM_COMPLETE) a changed port and its checksum cancel each other, and an address of IPv4 and its header's checksum; an address of
 * IPv6 and the transport's do too, which that helper does not know of.
 */
always_inline void new_check(ctx_t *ctx, struct translation *t, __u32 at, __u16 *check)
{
#ifdef HOOK_XDP
	__u16 sum = *check;

	if (t->udp && !sum)	/* there is none */
		return;
	sum = recheck(sum, t->addrs + t->ports);
	*check = t->udp && !sum ? 0xffff : sum;
#else
	__u64 flags = t->udp ? BPF_F_MARK_MANGLED_0 : 0;

	bpf_l4_csum_replace(ctx, at, 0, folded(t->addrs), flags | BPF_F_PSEUDO_HDR);
	bpf_l4_csum_replace(ctx, at, 0, folded(t->ports), flags);
	if (t->is6)
		bpf_csum_update(ctx, folded(t->addrs));
#endif
}

/*
 * Writes it into the packet's headers: 1, or 0 if there is no room for them, and nothing is written. A function of its own, since its variables need no room in the frame of
 * its caller. Linux writes the source last, and its checksum with it: what nf_tables has made of that before is not seen then (dsfield.h).
 */
__attribute__((noinline)) int nat_write(ctx_t *ctx, __u32 l3)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	struct translation *t = translation();
	__u32 l4, check, zero = 0;
	__be16 *port;

	if (!t || !frozen.nat)
		return 0;
	l3 &= 0x1f;
	l4 = l3 + (t->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	check = t->udp ? 6 : 16;
	port = data + l4;
	if (data + l4 + 8 > end || data + l4 + check + 2 > end)
		return 0;
	if (t->is6) {
		struct ip6 *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return 0;
		t->addrs = new6(ip->src, t->src);
		barrier();
		t->addrs += new6(ip->dst, t->dst);
	} else {
		struct ip4 *ip = data + l3;
		struct rule_walk *w = bpf_map_lookup_elem(&rule_walks, &zero);

		if ((void *)(ip + 1) > end)
			return 0;
		if (w && ip->src != t->src[0])
			w->mangled = 0;
		t->addrs = new4(ip, &ip->dst, t->dst[0]);
		t->addrs += new4(ip, &ip->src, t->src[0]);
	}
	barrier();
	t->ports = differ(port[0], t->sport) + differ(port[1], t->dport);
	port[0] = t->sport;
	port[1] = t->dport;
	new_check(ctx, t, l4 + check, (void *)port + check);
	return 1;
}

#endif
