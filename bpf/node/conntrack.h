/* SPDX-License-Identifier: GPL-2.0 */
/*
 * conntrack: the connection of a packet, where Linux tracks connections.
 *
 * Problem: with its hooks registered Linux makes an entry for each connection, gives each packet a state that rules ask for, and forgets
 * entries that see no packets. A packet that goes past Linux must not make any of this differ.
 * Mechanism: the entry is looked up in the kernel's own table, live, or read where it was found before, if it is still there. Only where nf_conntrack_in() would do nothing but
 * extend its timeout, the packet goes on, and the timeout is extended as Linux would. (What then still sends the packet to Linux has Linux extend it again.) What begins or ends a
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

	if ((void *)(port + 2) > packet_end_anew(p))
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

/* Finds the connection. The caller lets it go. */
always_inline struct nf_conn *find_conn(struct packet *p)
{
	struct { /* one variable: two take more of the stack */
		struct bpf_sock_tuple tuple;
		struct bpf_ct_opts___shunt opts;
	} by = { .opts = { .netns_id = CURRENT_NETNS, .l4proto = p->l4_proto } };
	struct nf_conn *ct;

	tuple_of(p, &by.tuple);
	by.opts.zone_id = rules_zone(p);
	by.opts.zone_dir = rules_zone(p) >> 16;
	ct = ct_lookup(p->ctx, &by.tuple, p->is6 ? sizeof(by.tuple.ipv6) : sizeof(by.tuple.ipv4), &by.opts,
		       frozen.rule_dims & SHUNT_RULES_ZONE ? sizeof(by.opts) : CT_OPTS_NO_ZONE);
	p->ct_dir = by.opts.dir;
	return ct;
}

/* For reading: where untrusted memory can be read a connection that was found and one that was noted are the same to the verifier. */
always_inline struct nf_conn *readable(struct nf_conn *ct)
{
	return frozen.peek == SHUNT_PEEK_CAST ? bpf_rdonly_cast(ct, 0) : ct;
}

/* The address of one, to the verifier a number and no pointer. */
always_inline __u64 number_of(struct nf_conn *conn)
{
	return (void *)conn - bpf_rdonly_cast((void *)0, 0);
}

#ifdef SHUNT_GENERIC	/* these look none up, but in tests */
#define notes() 0
#else
#define notes() (frozen.track == SHUNT_LOOK_NOTED && !(frozen.rule_dims & SHUNT_RULES_ZONE))
#endif

/*
 * Where connections were found. A lookup costs more than all that is read of a connection then, and a connection stays where it is. So its address is noted: the upper seven bits, which
 * are ones in all of the kernel's addresses, are crossed with bits of the hash that led to the place, and the lowest is the direction. Nothing else is noted, so that nothing can be out of date:
 * what is there is believed if it is this connection, alive (who takes one out of the table has it dying first), and its timeout has been set within the last second. No reference is held;
 * what has been read of it counts if it is still the same afterwards: still().
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_NOTED_CONNS);
	__type(key, __u32);
	__type(value, __u64);
} noted_conns SEC(".maps");

#define NOTED_TAG 57

#define CONN_AT(field) bpf_core_field_offset(struct nf_conn, field)
#define TUPLE_AT(field) bpf_core_field_offset(struct nf_conntrack_tuple, field)
#define WORD8(conn, at) (*(volatile __u64 *)((void *)(conn) + (at)))

#define NOTED_IP6	256	/* beside the protocol */
#define NOTED_TAKES	512	/* may take another's place */

/* What is looked for: a packet's addresses and ports, as they lie in a tuple in words of eight bytes, but for the direction in the last. */
struct noted {
	__u64 word[5];
	__u64 tag;
	volatile __u64 *place;
};

/* Does a tuple lie in memory as it is read here? */
always_inline int tuples_known(void)
{
	return !TUPLE_AT(src.u3) && TUPLE_AT(src.u) == 16 && TUPLE_AT(src.l3num) == 18 && TUPLE_AT(dst.u3) == 20 && TUPLE_AT(dst.u) == 36 &&
	       TUPLE_AT(dst.protonum) == 38 && TUPLE_AT(dst.dir) == 39 && bpf_core_field_exists(struct nf_conn, zone) &&
	       bpf_core_field_exists(struct nf_conn, ct_net);
}

always_inline __u32 tuple_at(__u32 dir)
{
	return dir ? CONN_AT(tuplehash[1].tuple) : CONN_AT(tuplehash[0].tuple);
}

/* The ports and a word of the receiver, which lie side by side. */
always_inline __u64 tuple_middle(__u32 family, __be16 sport, __be32 dst)
{
	return sport | family << 16 | (__u64)dst << 32;
}

/* 1 if there is such a place. */
always_inline int noted_at(ctx_t *ctx, __u32 l3, __u32 how, struct noted *n)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	struct ip6 *ip6 = data + (l3 & 0x7f);
	struct ip4 *ip = (void *)ip6;
	__be16 *port;
	__u64 hash;
	__u32 slot;

	if (how & NOTED_IP6) {
		port = (void *)(ip6 + 1);
		if ((void *)(port + 2) > end)
			return 0;
		n->word[0] = ip6->src[0] | (__u64)ip6->src[1] << 32;
		n->word[1] = ip6->src[2] | (__u64)ip6->src[3] << 32;
		n->word[2] = tuple_middle(AF_INET6, port[0], ip6->dst[0]);
		n->word[3] = ip6->dst[1] | (__u64)ip6->dst[2] << 32;
		n->word[4] = ip6->dst[3];
		hash = (n->word[0] ^ n->word[1] ^ n->word[3]) * 0x9e3779b97f4a7c15ULL ^ n->word[4];
	} else {
		port = (void *)(ip + 1);
		if ((void *)(port + 2) > end)
			return 0;
		n->word[0] = ip->src;
		n->word[2] = tuple_middle(AF_INET, port[0], ip->dst);
		n->word[4] = 0;
		hash = n->word[0] * 0x9e3779b97f4a7c15ULL;
	}
	n->word[4] |= (__u64)port[1] << 32 | (__u64)(how & 0xff) << 48;
	hash = (hash ^ n->word[2] ^ port[1]) * 0x9e3779b97f4a7c15ULL;
	hash = (hash ^ hash >> 32) * 0xc2b2ae3d27d4eb4fULL;
	n->tag = hash >> NOTED_TAG << NOTED_TAG;
	slot = hash >> 32 & (SHUNT_NOTED_CONNS - 1);
	n->place = bpf_map_lookup_elem(&noted_conns, &slot);
	return n->place != NULL;
}

/* How long a connection lives without packets, in jiffies; of the two addresses the one for its protocol is read. */
always_inline __u64 full_life(__u32 proto, __u64 established, __u64 stream)
{
	return peek(proto == PROTO_TCP ? established : stream, 4);
}

/* Linux sets the timeout with every packet; here once a second is enough, or in a quarter of it, so that an entry may be forgotten so much early. */
always_inline int fresh(__u32 timeout, __u64 full, __u32 hz)
{
	__s32 early = (__u32)bpf_jiffies64() + (__u32)full - timeout;
	__s32 slack = full / 4 < hz ? full / 4 : hz;

	return early >= 0 && early <= slack;
}

/*
 * The packet's connection, if it is where it was found before, settled, and nothing is to be written to it: its address, and in the lowest bit the direction. 0: it is to be looked up.
 * A function of its own, since its variables need no room in the frame of its caller.
 */
__attribute__((noinline)) __u64 conn_noted(ctx_t *ctx, __u32 l3, __u32 how)
{
	struct nf_conn *conn;
	__u64 word, full;
	__u32 tuple, dir;
	struct noted n;

	if (!notes() || !tuples_known() || !noted_at(ctx, l3, how, &n))
		return 0;
	word = *n.place ^ n.tag;
	if (~word >> NOTED_TAG)
		return 0;
	dir = word & 1;
	conn = bpf_rdonly_cast((void *)(word & ~1ULL), 0);
	tuple = tuple_at(dir);
	if (WORD8(conn, tuple) != n.word[0] || WORD8(conn, tuple + 16) != n.word[2] || WORD8(conn, tuple + 32) != (n.word[4] | (__u64)dir << 56))
		return 0;
	if ((how & NOTED_IP6) && (WORD8(conn, tuple + 8) != n.word[1] || WORD8(conn, tuple + 24) != n.word[3]))
		return 0;
	if ((__u64)conn->ct_net.net != frozen.net || conn->zone.id || (conn->status & (IPS_SETTLED | IPS_SPECIAL)) != IPS_SETTLED)
		return 0;
	full = full_life(how & 0xff, frozen.ct_established, frozen.ct_stream);
	return full && fresh(conn->timeout, full, frozen.hz) ? word : 0;
}

/* Notes where a connection was found. It takes another's place once a second at most: where connections are more than places, they would else write with each packet what other CPUs read. */
__attribute__((noinline)) int note_conn(ctx_t *ctx, __u32 l3, __u32 how, __u64 word)
{
	struct noted n;

	if (!notes() || !tuples_known() || !noted_at(ctx, l3, how, &n) || (*n.place && !(how & NOTED_TAKES)))
		return 0;
	*n.place = word ^ n.tag;
	return 1;
}

always_inline __u32 noted_how(struct packet *p)
{
	return p->l4_proto | (p->is6 ? NOTED_IP6 : 0);
}

/* Is what was read by a note still of the connection that it was of at first? */
always_inline int still(struct packet *p, struct nf_conn *conn)
{
	__be16 *port = network(p) + (p->is6 ? sizeof(struct ip6) : sizeof(struct ip4));

	barrier();
	return (void *)(port + 2) <= packet_end_anew(p) && (conn->status & (IPS_SETTLED | IPS_SPECIAL)) == IPS_SETTLED &&
	       WORD8(conn, tuple_at(p->ct_dir) + 16) == (p->is6 ? tuple_middle(AF_INET6, port[0], p->fib->ipv6_dst[0]) : tuple_middle(AF_INET, port[0], p->dst));
}

/* Does anything hang on the connection that has to see its packets? What does not: NAT, events, timestamps, labels. */
always_inline int extended(struct nf_conn *ct, struct hung *h)
{
	struct nf_ct_ext *ext = NULL;
	__u64 low = 0, high = 0;

	if (frozen.peek != SHUNT_PEEK_CAST) {
		ext = ct->ext;
		if (!ext)
			return 0;
	}
	/* A number that the kernel does not have must not be worked with, not even ahead of the question whether it has it. */
#define EXT(id)												\
	do {												\
		if (EXT_EXISTS(id)) {									\
			asm volatile("");								\
			if (frozen.peek != SHUNT_PEEK_CAST) {						\
				if (*((__u8 *)ext + EXT_PLACES + EXT_NUMBER(id)))			\
					return 1;							\
			} else if (EXT_NUMBER(id) < 8) {						\
				low |= 0xffULL << EXT_NUMBER(id) * 8;					\
			} else {									\
				high |= 0xffULL << (EXT_NUMBER(id) & 7) * 8;				\
			}										\
		}											\
	} while (0)
	EXT(NF_CT_EXT_HELPER);
	EXT(NF_CT_EXT_SEQADJ);
	EXT(NF_CT_EXT_ACCT);
	EXT(NF_CT_EXT_TIMEOUT);
	EXT(NF_CT_EXT_SYNPROXY);
	EXT(NF_CT_EXT_ACT_CT);
#undef EXT
	return ((h->low & low) | (h->high & high)) != 0;
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
	struct hung h;
	int nat = 0;

	hung_on(ct, &h);
	if (status & (IPS_SEQ_ADJUST | IPS_HELPER) || extended(ct, &h))
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
		nat = node_nat(p, ct, &h);
		if (nat != NEXT)
			return nat;
		nat = CT_TRANSLATED;
	} else if (!in_flowtable(status) && masqueraded_as_it_is(p, ct, &h)) {
		return SHUNT_R_CONNTRACK_NAT;
	}
	forget(marked, p->l3_len);
	forget(nat, p->l3_len);
	p->ct = CT_FOUND | (marked & CT_MARKED) | (nat & CT_TRANSLATED) | (in_flowtable(status) ? CT_OFFLOADED : 0);
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

/* The connection lives on. `how` is how it may be noted. */
always_inline int extend(struct packet *p, struct nf_conn *ct, __u32 *how)
{
	__u64 full = full_life(p->l4_proto, cfg.ct_established, cfg.ct_stream), ms;

	*how = noted_how(p);
	if (fresh(ct->timeout, full, cfg.hz))
		return NEXT;
	if (!right_device(p))	/* the guard says so of all others, but it comes later */
		return SHUNT_R_WRONG_DEVICE;
	*how |= NOTED_TAKES;
	ms = full * 1000 / cfg.hz;
	if (ms > LONGEST_MS)	/* the next packets are fast again */
		return SHUNT_R_CONNTRACK_EXTENSION;
	bpf_ct_change_timeout(ct, ms);
	return NEXT;
}

/* NEXT: the packet has a connection, of which p->ct, p->ct_dir and what rules ask say what it is. Any other reason: to leave by. */
always_inline int node_conntrack(struct packet *p)
{
	struct nf_conn *ct, *conn;
	__u64 word = 0;
	__u32 how = 0;
	int r;

	if (!frozen.track)
		return SHUNT_R_CONNTRACK_NEW;
	r = transport(p);
	if (r != NEXT && r != BEGINS)
		return r;
	if (notes() && r == NEXT) {
		word = conn_noted(p->ctx, p->l3, noted_how(p));
		if (word) {
			conn = bpf_rdonly_cast((void *)(word & ~1ULL), 0);
			word &= 1;
			forget(word, p->l3_len);	/* or what is behind is verified once for this way and once for the other */
			p->ct_dir = word;
			r = judge_conn(p, conn);
			return r == NEXT && !still(p, conn) ? SHUNT_R_CONNTRACK_STATE : r;
		}
	}
	ct = find_conn(p);
	if (!ct)
		return r == BEGINS ? SHUNT_R_CONNTRACK_FLAGS : SHUNT_R_CONNTRACK_NEW;
	if (r == BEGINS) {
		begins_anew(p, ct);
		bpf_ct_release(ct);
		return SHUNT_R_CONNTRACK_FLAGS;
	}
	conn = readable(ct);
	r = judge_conn(p, conn);
	if (r == NEXT && (p->ct & CT_MARKED) && !offloaded(p)) {
		r = extend(p, ct, &how);
		if (notes() && r == NEXT)
			note_conn(p->ctx, p->l3, how, number_of(conn) | p->ct_dir);
	}
	bpf_ct_release(ct);
	return r;
}

/* After every other check: the last reason against the packet. */
always_inline int commit_conn(struct packet *p, int verdict)
{
	if (verdict != NEXT && verdict != SHUNT_R_RULE_DROP)
		return verdict;
	if (offloaded(p))	/* its time is that of the flow table's entry */
		return node_flowtable(p);
	if (!(p->ct & CT_MARKED)) {
		report(p);
		return SHUNT_R_CONNTRACK_WINDOW;
	}
	return verdict;
}

#endif
