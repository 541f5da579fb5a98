/* SPDX-License-Identifier: GPL-2.0 */
/*
 * conntrack: the connection of a packet, where Linux tracks connections.
 *
 * Problem: with its hooks registered Linux makes an entry for each connection, gives each packet a state that rules ask for, and forgets
 * entries that see no packets. A packet that goes past Linux must not make any of this differ.
 * Mechanism: the entry is looked up in the kernel's own table, live. Only where nf_conntrack_in() would do nothing but extend its
 * timeout, the packet goes on, and the timeout is extended as Linux would, once everything else has been checked too. What begins or ends a
 * connection, and what is not established on both sides, goes to Linux.
 * A connection that was reset and begins anew is ended here, as Linux would (begins_anew()).
 * Invariant: nothing is written to an entry but its timeout. TCP windows are not followed, so a connection must first be marked as one
 * whose windows Linux does not check either (IP_CT_TCP_FLAG_BE_LIBERAL); the daemon does that for those that are reported here.
 */
#ifndef SHUNT_NODE_CONNTRACK_H
#define SHUNT_NODE_CONNTRACK_H

#include "guard.h"
#include "checksum.h"
#include "nat.h"
#include "flowtable.h"

/* enum ip_conntrack_status, include/uapi/linux/netfilter/nf_conntrack_common.h */
#define IPS_SEEN_REPLY		(1 << 1)
#define IPS_ASSURED		(1 << 2)
#define IPS_CONFIRMED		(1 << 3)
#define IPS_SEQ_ADJUST		(1 << 6)
#define IPS_DYING		(1 << 9)
#define IPS_FIXED_TIMEOUT	(1 << 10)
#define IPS_TEMPLATE		(1 << 11)
#define IPS_HELPER		(1 << 13)
#define IPS_HW_OFFLOAD		(1 << 15)

/* Seen from both sides and past the point where Linux would change anything but the timeout. */
#define IPS_SETTLED		(IPS_SEEN_REPLY | IPS_ASSURED | IPS_CONFIRMED)
#define IPS_SPECIAL		(IPS_DYING | IPS_TEMPLATE | IPS_OFFLOAD | IPS_HW_OFFLOAD)

/* nf_conntrack_tcp.h, and get_conntrack_index() in nf_conntrack_proto_tcp.c */
#define TCP_CONNTRACK_ESTABLISHED	3
#define IP_CT_TCP_FLAG_BE_LIBERAL	0x08
#define IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED 0x10
#define TCP_ACK_SET			3
#define TCP_RST_SET			4

#define TCP_FLAGS	13	/* offset of the flags in the header */
#define TCP_DATA	12	/* its upper half is the header's length in words */
#define TCP_FIN		0x01
#define TCP_SYN		0x02
#define TCP_RST		0x04
#define TCP_ACK		0x10

#define CURRENT_NETNS	(-1)
#define LONGEST_MS	0x7fffffff	/* more is for ever to msecs_to_jiffies() */

/* TCP connections that would be fast if they were marked. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} unmarked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHUNT_TALLY_SLOTS);
	__type(key, __u32);
	__type(value, struct shunt_tally);
} tallies SEC(".maps");

always_inline int tracked(struct packet *p)
{
	return of_family(p, cfg.track4, cfg.track6);
}

#define BEGINS	(-2)	/* of transport(): a SYN */

/* What tcp_error() and udp_error() ask of a header, and of TCP that it moves the connection nowhere. */
always_inline int transport(struct packet *p)
{
	__u32 len = p->l3_len - (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__u8 *l4 = network(p) + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__be16 *half = (void *)l4;

	if (p->l4_proto == PROTO_TCP) {
		__u32 doff;

		if (tracked(p) == SHUNT_TRACK_NO_TCP)
			return SHUNT_R_CONNTRACK_WINDOW;
		if (l4 + 20 > (__u8 *)packet_end(p))
			return SHUNT_R_TOO_SHORT;
		doff = (l4[TCP_DATA] >> 4) * 4;
		if (doff < 20 || doff > len)
			return SHUNT_R_CONNTRACK_FLAGS;
		switch (l4[TCP_FLAGS] & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) {
		case TCP_ACK:
			return NEXT;
		case TCP_SYN:
			return BEGINS;
		}
		return SHUNT_R_CONNTRACK_FLAGS;
	}
	if (p->l4_proto != PROTO_UDP)
		return SHUNT_R_CONNTRACK_PROTOCOL;
	if (len < 8 || l4 + 8 > (__u8 *)packet_end(p))
		return SHUNT_R_TOO_SHORT;
	if (bpf_ntohs(half[2]) < 8 || bpf_ntohs(half[2]) > len)
		return SHUNT_R_CONNTRACK_CHECKSUM;
	return NEXT;
}

/* Addresses and ports as the kernel's table has them. */
always_inline void tuple_of(struct packet *p, struct bpf_sock_tuple *t)
{
	__be16 *port = network(p) + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));

	if ((void *)(port + 2) > packet_end(p))
		return;
	if (p->is6) {
		__builtin_memcpy(t->ipv6.saddr, p->fib->ipv6_src, sizeof(t->ipv6.saddr));
		__builtin_memcpy(t->ipv6.daddr, p->fib->ipv6_dst, sizeof(t->ipv6.daddr));
		t->ipv6.sport = port[0];
		t->ipv6.dport = port[1];
	} else {
		t->ipv4.saddr = p->src;
		t->ipv4.daddr = p->dst;
		t->ipv4.sport = port[0];
		t->ipv4.dport = port[1];
	}
}

/* Finds the connection. The caller lets it go. Leave by what is stored at r, unless that is NEXT; it never is without a connection. */
always_inline struct nf_conn *find_conn(struct packet *p, int *r)
{
	struct { /* one variable: two take more of the stack */
		struct bpf_sock_tuple tuple;
		struct bpf_ct_opts___shunt opts;
	} by = { .opts = { .netns_id = CURRENT_NETNS, .l4proto = p->l4_proto } };
	struct nf_conn *ct;

	*r = SHUNT_R_CONNTRACK_NEW;
	if (!frozen.track)
		return NULL;
	*r = transport(p);
	if (*r != NEXT && *r != BEGINS)
		return NULL;
	tuple_of(p, &by.tuple);
	by.opts.zone_id = rules_zone(p);
	by.opts.zone_dir = rules_zone(p) >> 16;
	ct = ct_lookup(p->ctx, &by.tuple, p->is6 ? sizeof(by.tuple.ipv6) : sizeof(by.tuple.ipv4), &by.opts,
		       frozen.rule_dims & SHUNT_RULES_ZONE ? sizeof(by.opts) : CT_OPTS_NO_ZONE);
	p->ct_dir = by.opts.dir;
	if (*r == BEGINS)
		*r = SHUNT_R_CONNTRACK_FLAGS;
	else if (!ct)
		*r = SHUNT_R_CONNTRACK_NEW;
	return ct;
}

/* Does anything hang on the connection that has to see its packets? What does not: NAT, events, timestamps, labels. */
always_inline int extended(struct nf_conn *ct)
{
	struct nf_ct_ext *ext = extensions(ct);

	if (!ext)
		return 0;
#define EXT(id)												\
	(bpf_core_enum_value_exists(enum nf_ct_ext_id, id) &&						\
	 *((__u8 *)ext + bpf_core_field_offset(struct nf_ct_ext, offset) + bpf_core_enum_value(enum nf_ct_ext_id, id)))
	return EXT(NF_CT_EXT_HELPER) || EXT(NF_CT_EXT_SEQADJ) || EXT(NF_CT_EXT_ACCT) || EXT(NF_CT_EXT_TIMEOUT) ||
	       EXT(NF_CT_EXT_SYNPROXY) || EXT(NF_CT_EXT_ACT_CT);
#undef EXT
}

/*
 * Has Linux stopped to look at the windows, at a moment when everything was acknowledged? What it thinks to be unacknowledged, repeated or
 * blocked then, it would think for ever, and forget the connection after minutes instead of days. The mark clears the first; the others
 * pass with the next packets.
 */
always_inline int unwatched(struct packet *p, struct nf_conn *ct)
{
	__u8 one = ct->proto.tcp.seen[0].flags, other = ct->proto.tcp.seen[1].flags;

	return (one & other & IP_CT_TCP_FLAG_BE_LIBERAL) && !((one | other) & IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED) && !ct->proto.tcp.retrans && ct->proto.tcp.last_win;
}

/*
 * A connection is reset and called again from the same port. Linux alone finds the entry closed by the RST, forgets it and takes the SYN for new, so that all rules and
 * translation are asked (tcp_packet(), case TCP_CONNTRACK_SYN_SENT). After fast packets the RST was not at the number that Linux had seen acknowledged, and the entry stands as if nothing
 * had been reset: the SYN would belong to it, and what follows. So it is made one that has expired, which Linux forgets as it looks it up.
 */
always_inline void begins_anew(struct packet *p, struct nf_conn *ct)
{
	if (!in_flowtable(ct->status) && ct->proto.tcp.state == TCP_CONNTRACK_ESTABLISHED && ct->proto.tcp.last_index == TCP_RST_SET && ct->proto.tcp.last_dir == p->ct_dir &&
	    (ct->proto.tcp.seen[0].flags & ct->proto.tcp.seen[1].flags & IP_CT_TCP_FLAG_BE_LIBERAL))
		bpf_ct_change_timeout(ct, 0);
}

/* Would Linux do nothing for this packet but extend the timeout? */
always_inline int judge_conn(struct packet *p, struct nf_conn *ct)
{
	__u32 status = ct->status, marked;
	int nat = 0;

	p->ct = CT_HELD;
	if (status & (IPS_SEQ_ADJUST | IPS_HELPER) || extended(ct))
		return SHUNT_R_CONNTRACK_EXTENSION;
	if (in_flowtable(status)) {	/* Linux does not wait until it is sure of one */
		if ((status & (IPS_SEEN_REPLY | IPS_CONFIRMED | IPS_SPECIAL)) != (IPS_SEEN_REPLY | IPS_CONFIRMED | IPS_OFFLOAD))
			return SHUNT_R_CONNTRACK_STATE;
	} else if ((status & (IPS_SETTLED | IPS_SPECIAL)) != IPS_SETTLED)
		return SHUNT_R_CONNTRACK_STATE;
	marked = CT_MARKED;
	if (p->l4_proto == PROTO_TCP) {
		/* After what begins or ends a connection Linux sees the next packet too, since what it makes of one depends on the last. */
		if (ct->proto.tcp.state != TCP_CONNTRACK_ESTABLISHED || ct->proto.tcp.last_index != TCP_ACK_SET)
			return SHUNT_R_CONNTRACK_STATE;
		marked = in_flowtable(status) ? CT_MARKED : unwatched(p, ct);	/* when it leaves the flow table Linux takes its windows as it finds them */
	}
	if (!in_flowtable(status) && (peek(cfg.ct_checksum, 4) & 0xff) && must_sum(p->ctx) && !checksum_right(p))
		return SHUNT_R_CONNTRACK_CHECKSUM;
	if (status & IPS_NAT) {
		nat = node_nat(p, ct);
		if (nat != NEXT)
			return nat;
		nat = CT_TRANSLATED;
	} else if (!in_flowtable(status) && masqueraded_as_it_is(p, ct)) {
		return SHUNT_R_CONNTRACK_NAT;
	}
	forget(marked, p->l3_len);
	forget(nat, p->l3_len);
	p->ct = CT_HELD | (marked & CT_MARKED) | (nat & CT_TRANSLATED) | (in_flowtable(status) ? CT_OFFLOADED : 0);
	forget(p->l4_proto, p->l3_len);
	p->ct_state = SHUNT_CT_ESTABLISHED;
	p->ct_status = status;
	p->ct_mark = ct->mark;
	if ((frozen.rule_asks & 1 << SHUNT_V_CT_ZONE) && p->rules)	/* another than it was looked up in, where that is for one direction */
		p->rules->value[SHUNT_V_CT_ZONE] = bpf_core_field_exists(struct nf_conn, zone) ? ct->zone.id : 0;
	if (frozen.rule_asks & RULE_ORIGINAL) {
		struct nf_conntrack_tuple *first = &ct->tuplehash[0].tuple;

		rules_original(p, first->src.u3.all, first->dst.u3.all, first->src.u.all, first->dst.u.all);
	}
	return NEXT;
}

/* Count a packet that only waits for the mark, and tell the daemon of connections that carry more than a few; of those that share a slot, by chance. */
always_inline void report(struct packet *p)
{
	struct shunt_conn conn = { .is6 = p->is6 };
	struct bpf_sock_tuple tuple = {};
	struct shunt_tally *t;
	__u32 slot, zone, chosen = 0;
	__u64 key;

	tuple_of(p, &tuple);
	if (p->is6) {
		struct ip6 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return;
		__builtin_memcpy(conn.src, ip->src, sizeof(conn.src));
		__builtin_memcpy(conn.dst, ip->dst, sizeof(conn.dst));
		conn.sport = tuple.ipv6.sport;
		conn.dport = tuple.ipv6.dport;
	} else {
		struct ip4 *ip = network(p);

		if ((void *)(ip + 1) > packet_end(p))
			return;
		conn.src[0] = ip->src;
		conn.dst[0] = ip->dst;
		conn.sport = tuple.ipv4.sport;
		conn.dport = tuple.ipv4.dport;
	}
	zone = rules_zone(p);
	conn.zone = zone;
	conn.zone_dir = zone >> 16;
	key = ((__u64)conn.src[0] << 32 | conn.dst[0]) ^ ((__u64)conn.src[3] << 32 | conn.dst[3]) ^ ((__u64)conn.sport << 16 | conn.dport) ^ (__u64)zone << 32;
	key *= 0x9e3779b97f4a7c15ULL;
	slot = key >> (64 - SHUNT_TALLY_BITS);
	t = bpf_map_lookup_elem(&tallies, &slot);
	if (!t)
		return;
	if (t->conn != key) {
		t->conn = key;
		t->packets = 0;
		chosen = bpf_get_prandom_u32() % SHUNT_REPORT_BY_CHANCE == 0;
	}
	/* Again and again, as long as the connection is not marked: the daemon may have been busy, or not there. */
	if (++t->packets % SHUNT_REPORT_AFTER == 0 || chosen)
		bpf_ringbuf_output(&unmarked, &conn, sizeof(conn), 0);
}

/*
 * After every other check: the last reason against the packet, or the connection lives on, also where a rule then drops the packet. Linux
 * sets the timeout with every packet; here once a second is enough, or in a quarter of it, so that an entry may be forgotten so much early.
 */
always_inline int commit_conn(struct packet *p, struct nf_conn *ct, int verdict)
{
	__u64 full, slack, ms;
	__s32 off;

	if (verdict != NEXT && verdict != SHUNT_R_RULE_DROP)
		return verdict;
	if (offloaded(p))	/* its time is that of the flow table's entry */
		return node_flowtable(p);
	if (!(p->ct & CT_MARKED)) {
		report(p);
		return SHUNT_R_CONNTRACK_WINDOW;
	}
	full = peek(p->l4_proto == PROTO_TCP ? cfg.ct_established : cfg.ct_stream, 4);
	off = ct->timeout - ((__u32)bpf_jiffies64() + (__u32)full);
	slack = full / 4 < cfg.hz ? full / 4 : cfg.hz;
	if (off <= 0 && off >= -(__s32)slack)
		return verdict;
	ms = full * 1000 / cfg.hz;
	if (ms > LONGEST_MS)	/* the next packets are fast again */
		return SHUNT_R_CONNTRACK_EXTENSION;
	bpf_ct_change_timeout(ct, ms);
	return verdict;
}

#endif
