/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ipset: is the packet in a set of ipset? Asked live, in the kernel's own tables.
 *
 * Problem: sets change without any event that could be heard, and may have a million elements that expire by themselves.
 * Mechanism: what ip_set_test() reads is read here, in its order: the namespace's list of sets, the set, its hash table, its bucket, with the offsets
 * that the kernel's own type information gives. A change is therefore in force with the next packet, by whatever command: add, del, flush,
 * swap, and the clock.
 *
 * Why it is sound: programs run under rcu_read_lock(), as xt_set does; ipset publishes lists, sets, tables and buckets by rcu_assign_pointer() and frees
 * them a grace period later (ip_set_hash_gen.h: resizing, growing a bucket, flushing; ip_set_core.c: swapping, destroying). Each pointer is read
 * once and followed, so what is read is what Linux could read at the same moment. A set cannot be destroyed while a rule asks for its index; when
 * the rules change first, the guard, which comes last, sees that.
 * Invariant: a type, family or extension that is not in the image's table, and everything that does not look as expected, is Linux's.
 */
#ifndef SHUNT_NODE_IPSET_H
#define SHUNT_NODE_IPSET_H

#include <stddef.h>
#include "rule_step.h"

#define SET_TIMEOUT	1	/* IPSET_EXT_TIMEOUT and _COUNTER, include/linux/netfilter/ipset/ip_set.h */
#define SET_COUNTER	2
#define SET_SLOTS	64	/* of a bucket, AHASH_MAX_TUNED */
#define SET_KINDS	16	/* image.SetKinds, rounded up */

#define SET_SIX		1	/* flags of a lookup */
#define SET_TAILED	2
#define SET_EXPIRES	4
#define SET_NETS	8

/* How far a lookup has come. Each step is a function of its own, none of which calls another: the stack has no room for more. */
enum set_state { SET_NEW, SET_OPENED, SET_KEYED, SET_IN_BUCKET, SET_IN_LIST };

#ifdef SHUNT_NO_SETS

always_inline int set_ask(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	return SET_UNKNOWN;
}

#else

/* Memory of the kernel; 0 where there is none. */
always_inline __u64 set8(__u64 addr)
{
	__u64 v = 0;

	if (frozen.peek == SHUNT_PEEK_CAST)
		return *(__u64 *)bpf_rdonly_cast((void *)addr, 0);
	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr);
	return v;
}

always_inline __u32 set4(__u64 addr)
{
	__u32 v = 0;

	if (frozen.peek == SHUNT_PEEK_CAST)
		return *(__u32 *)bpf_rdonly_cast((void *)addr, 0);
	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr);
	return v;
}

/* A byte, which is never the last of its structure: three more can be read. */
always_inline __u32 set1(__u64 addr)
{
	return set4(addr) & 0xff;
}

/* A member of four bytes; of two shorter ones in a word the first is the lower half. */
#define SET_KIND(w, member) rule4((w)->set.kind + offsetof(struct shunt_set_kind, member))
#define SET_BIAS(w) (SET_KIND(w, mask_bits) >> 16)

#define ROL(x, n) ((x) << (n) | (x) >> (32 - (n)))

/* jhash2() of the key, include/linux/jhash.h. */
always_inline __u32 set_hash(struct set_walk *s)
{
	__u32 words = (s->flags & SET_SIX ? 4 : 1) + (s->flags & SET_TAILED ? 1 : 0);
	__u32 a = 0xdeadbeef + (words << 2) + s->initval, b = a, c = a;

	if (s->flags & SET_SIX) {
		a += s->addr[0];
		b += s->addr[1];
		c += s->addr[2];
		a -= c; a ^= ROL(c, 4); c += b;
		b -= a; b ^= ROL(a, 6); a += c;
		c -= b; c ^= ROL(b, 8); b += a;
		a -= c; a ^= ROL(c, 16); c += b;
		b -= a; b ^= ROL(a, 19); a += c;
		c -= b; c ^= ROL(b, 4); b += a;
		a += s->addr[3];
	} else {
		a += s->addr[0];
	}
	if (s->flags & SET_TAILED)
		b += s->tail;
	c ^= b; c -= ROL(b, 14);
	a ^= c; a -= ROL(c, 11);
	b ^= a; b -= ROL(a, 25);
	c ^= b; c -= ROL(b, 16);
	a ^= c; a -= ROL(c, 4);
	b ^= a; b -= ROL(a, 14);
	c ^= b; c -= ROL(b, 24);
	return c;
}

/* ip_set_timeout_expired(): 0 stands for never. */
always_inline int set_expired(__u64 addr)
{
	__u64 end = set8(addr);

	return end && (__s64)(end - bpf_jiffies64()) < 0;
}

/* The first bits of a word of an address of which that many count. */
always_inline __be32 set_prefix_word(__u32 bits, __u32 word)
{
	bits = bits > word * 32 ? bits - word * 32 : 0;
	return bits >= 32 ? ~0U : bpf_htonl((__u32)~(0xffffffffU >> bits));
}

always_inline void set_cut(struct set_walk *s, __u32 bits)
{
	s->addr[0] = s->whole[0] & set_prefix_word(bits, 0);
	if (s->flags & SET_SIX) {
		s->addr[1] = s->whole[1] & set_prefix_word(bits, 1);
		s->addr[2] = s->whole[2] & set_prefix_word(bits, 2);
		s->addr[3] = s->whole[3] & set_prefix_word(bits, 3);
	}
}

/* Where the key has to be: its bucket, by mtype_test(). */
static __attribute__((noinline)) int set_bucket(struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	__u32 pos;

	if (s->flags & SET_NETS) {	/* one of the prefix lengths in the set, longest first: mtype_test_cidrs() */
		__u32 bits;

		if (s->length >= SET_KIND(w, lengths))
			return SET_OUT;
		bits = set1(s->data + SET_KIND(w, nets) + (__u64)s->length * SET_KIND(w, net_size));
		if (!bits)
			return SET_OUT;
		s->length++;
		bits--;
		set_cut(s, bits);
		s->tail = s->service | (bits - SET_BIAS(w)) << 24;
	}
	s->bucket = set8(s->buckets + 8 * (__u64)(set_hash(s) & s->size));
	s->used = 0;
	if (s->bucket) {
		s->used = set8(s->bucket + frozen.sets.used);
		pos = set1(s->bucket + frozen.sets.pos);
		if (pos < SET_SLOTS)
			s->used &= (1ULL << (pos & 63)) - 1;
	}
	s->state = SET_IN_BUCKET;
	return SET_MORE;
}

/* Is the key in the next slot that is used? An element that has expired is not there. SET_EXCEPT: it says `nomatch`. */
always_inline int set_slot(struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	__u64 at = s->bucket + frozen.sets.value + lowest_bit(s->used) * (__u64)s->dsize, last = at;
	__u32 tail = 0, nomatch;

	s->used &= s->used - 1;
	if (set4(at) != s->addr[0])
		return SET_OUT;
	if (s->flags & SET_SIX) {
		if (set4(at + 4) != s->addr[1] || set4(at + 8) != s->addr[2] || set4(at + 12) != s->addr[3])
			return SET_OUT;
		last += 12;
	}
	nomatch = SET_KIND(w, nomatch);
	if (s->flags & SET_TAILED) {
		tail = set4(last + 4);
		if ((tail & ~nomatch) != s->tail)
			return SET_OUT;
	}
	if ((s->flags & SET_EXPIRES) && set_expired(at + s->timeout))
		return SET_OUT;
	return tail & nomatch ? SET_EXCEPT : SET_IN;
}

/* Some slots of the bucket; then, where there are more prefix lengths, it is their turn. */
static __attribute__((noinline)) int set_slots(struct rule_walk *w)
{
	struct set_walk *s = &w->set;

	for (int i = 0; i < 4; i++) {
		int answer;

		if (!s->used)
			break;
		answer = set_slot(w);
		if (answer != SET_OUT)
			return answer;
	}
	if (s->used)
		return SET_MORE;
	if (!(s->flags & SET_NETS))
		return SET_OUT;
	s->state = SET_KEYED;
	return SET_MORE;
}

/* What a packet's port is for ipset, and its protocol, as they lie in an element; ip_set_getport.c. */
always_inline __u32 set_service(struct rule_walk *w, int src)
{
	__u32 proto = w->value[SHUNT_V_PROTO] & 0xff, port = 0;

	switch (proto) {
	case PROTO_TCP:
	case PROTO_UDP:
	case PROTO_SCTP:
	case PROTO_UDPLITE:
		port = src ? w->value[SHUNT_V_SPORT] : w->value[SHUNT_V_DPORT];
		break;
	case PROTO_ICMP:
	case PROTO_ICMP6:
		port = w->value[SHUNT_V_ICMP];
	}
	return bpf_htons(port) | proto << 16;
}

always_inline void set_address(struct rule_walk *w, int src)
{
	struct set_walk *s = &w->set;

	if (s->flags & SET_SIX) {
		__u64 hi = src ? w->src[0] : w->dst[0], lo = src ? w->src[1] : w->dst[1];

		s->whole[0] = bpf_htonl(hi >> 32);
		s->whole[1] = bpf_htonl(hi);
		s->whole[2] = bpf_htonl(lo >> 32);
		s->whole[3] = bpf_htonl(lo);
	} else {
		s->whole[0] = bpf_htonl(src ? w->value[SHUNT_V_SRC] : w->value[SHUNT_V_DST]);
	}
}

/* hash:ip and hash:ip,port can cut addresses to a network. A network of zeros is Linux's: what it says of that differs between families and versions. */
always_inline int set_mask(struct rule_walk *w, __u32 offset)
{
	struct set_walk *s = &w->set;
	__u64 at = s->data + offset;

	if (SET_KIND(w, mask_bits) & 0xffff) {
		set_cut(s, set1(at));
	} else {
		s->addr[0] = s->whole[0] & set4(at);
		if (s->flags & SET_SIX) {
			s->addr[1] = s->whole[1] & set4(at + 4);
			s->addr[2] = s->whole[2] & set4(at + 8);
			s->addr[3] = s->whole[3] & set4(at + 12);
		}
	}
	return s->addr[0] || ((s->flags & SET_SIX) && (s->addr[1] || s->addr[2] || s->addr[3]));
}

always_inline int set_by_hash(struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	__u64 table = set8(s->data + SET_KIND(w, table));
	__u32 bits = set1(table + frozen.sets.bits), offset;

	if (!table || bits > 31)
		return SET_UNKNOWN;
	s->buckets = table + frozen.sets.bucket;
	s->size = (1U << (bits & 31)) - 1;
	s->initval = set4(s->data + SET_KIND(w, first));
	s->tail = s->service;
	s->length = 0;
	s->state = SET_KEYED;
	if (s->flags & SET_NETS)
		return SET_MORE;
	offset = SET_KIND(w, mask);
	set_cut(s, 128);
	return offset && !set_mask(w, offset) ? SET_UNKNOWN : SET_MORE;
}

/* The bit of a value, bitmap_*_do_test() and mtype_test() of ip_set_bitmap_gen.h. */
always_inline int set_bit_of(struct set_walk *s, __u32 id, __u64 bits, __u32 extensions)
{
	if (!(set8(bits + (__u64)(id >> 6) * 8) >> (id & 63) & 1))
		return SET_OUT;
	if ((s->flags & SET_EXPIRES) && set_expired(s->data + extensions + (__u64)id * s->dsize + s->timeout))
		return SET_OUT;
	return SET_IN;
}

always_inline int set_by_address(struct rule_walk *w, int src)
{
	struct set_walk *s = &w->set;
	__u32 ip = src ? w->value[SHUNT_V_SRC] : w->value[SHUNT_V_DST];
	__u32 first = set4(s->data + SET_KIND(w, first)), hosts = set4(s->data + SET_KIND(w, hosts));

	if (ip < first || ip > set4(s->data + SET_KIND(w, last)))
		return SET_OUT;
	ip &= bpf_ntohl(set_prefix_word(set1(s->data + SET_KIND(w, mask)), 0));
	return hosts ? set_bit_of(s, (ip - first) / hosts, set8(s->data + SET_KIND(w, table)), SET_KIND(w, extensions)) : SET_UNKNOWN;
}

always_inline int set_by_port(struct rule_walk *w, int src)
{
	struct set_walk *s = &w->set;
	__u32 proto = w->value[SHUNT_V_PROTO], port = src ? w->value[SHUNT_V_SPORT] : w->value[SHUNT_V_DPORT];
	__u32 first = set4(s->data + SET_KIND(w, first)) & 0xffff;

	if (proto != PROTO_TCP && proto != PROTO_UDP)
		return SET_OUT;
	if (port < first || port > (set4(s->data + SET_KIND(w, last)) & 0xffff))
		return SET_OUT;
	return set_bit_of(s, port - first, set8(s->data + SET_KIND(w, table)), SET_KIND(w, extensions));
}

/* What is asked: the set's index, from bit 16 the directions (1: source), from bit 20 their number, from bit 24 the place of the expected kind. */
#define SET_INDEX(ask)		((ask) & 0xffff)
#define SET_SRC(ask, n)		((ask) >> (16 + (n)) & 1)
#define SET_DIRECTIONS(ask)	((ask) >> 20 & 15)
#define SET_EXPECTED(ask)	((ask) >> 24)

/* Find the set with that index, and how sets of its type and family are asked: in most cases as the rule expects. */
static __attribute__((noinline)) int set_find(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	__u64 name;

	s->set = set8(set8(frozen.sets.inst + frozen.sets.list) + 8 * (__u64)s->index);
	if (!frozen.sets.inst || !s->set)
		return SET_UNKNOWN;
	name = set8(s->set + frozen.sets.type) + frozen.sets.type_name;
	s->name[0] = set8(name);
	s->name[1] = set8(name + 8);
	s->family = set1(s->set + frozen.sets.family);
	kinds += w->base;
	s->kind = kinds + SET_EXPECTED(ask) * sizeof(struct shunt_set_kind);
	for (int i = 0; i < SET_KINDS; i++) {
		s->traits = rule4(s->kind + offsetof(struct shunt_set_kind, family));
		if (rule8(s->kind) == s->name[0] && rule8(s->kind + 8) == s->name[1] && (s->traits & 0xff) == s->family)
			return SET_MORE;
		s->kind = kinds + i * sizeof(struct shunt_set_kind);
		if (!rule8(s->kind))
			break;
	}
	return SET_UNKNOWN;
}

/* Open it, as ip_set_test() does. */
static __attribute__((noinline)) int set_open(struct rule_walk *w, __u32 ask)
{
	struct set_walk *s = &w->set;
	__u32 six = w->have >> SHUNT_V_FLOW & 1, extensions;

	if ((s->family && s->family != (six ? AF_INET6 : AF_INET)) || (s->traits >> 16 & 0xff) > SET_DIRECTIONS(ask))
		return SET_OUT;
	extensions = set1(s->set + frozen.sets.extensions);
	s->data = set8(s->set + frozen.sets.data);
	if (!s->data || (extensions & SET_COUNTER))
		return SET_UNKNOWN;
	s->dsize = set4(s->set + frozen.sets.dsize);
	s->timeout = set4(s->set + frozen.sets.timeout);
	s->flags = (six ? SET_SIX : 0) | (extensions & SET_TIMEOUT ? SET_EXPIRES : 0);
	s->state = SET_OPENED;
	return SET_MORE;
}

/* What to look for in it. */
static __attribute__((noinline)) int set_key(struct rule_walk *w, __u32 ask)
{
	struct set_walk *s = &w->set;

	switch (s->traits >> 8 & 0xff) {
	case SHUNT_SET_HASH:
		s->service = s->traits >> 24 ? set_service(w, SET_SRC(ask, 1)) : 0;
		if (SET_KIND(w, lengths))
			s->flags |= SET_TAILED | SET_NETS;
		if (s->traits >> 24)
			s->flags |= SET_TAILED;
		set_address(w, SET_SRC(ask, 0));
		return set_by_hash(w);
	case SHUNT_SET_BITMAP_IP:
		return set_by_address(w, SET_SRC(ask, 0));
	case SHUNT_SET_BITMAP_PORT:
		return set_by_port(w, SET_SRC(ask, 0));
	case SHUNT_SET_LIST:
		if (s->head)
			return SET_UNKNOWN;	/* the kernel has no lists in lists */
		s->head = s->data + SET_KIND(w, table);
		s->next = set8(s->head);
		s->ends = s->flags & SET_EXPIRES;
		s->end = s->timeout;
		s->state = SET_IN_LIST;
		return SET_MORE;
	}
	return SET_UNKNOWN;
}

/* The next member of a list, list_set_ktest(). */
static __attribute__((noinline)) int set_member(struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	__u64 link = s->next, member = link - frozen.sets.member;

	if (!link)
		return SET_UNKNOWN;
	if (link == s->head) {
		s->head = 0;
		return SET_OUT;
	}
	s->next = set8(link);
	s->index = set4(member + frozen.sets.member_id) & 0xffff;
	if (!s->ends || !set_expired(member + s->end))
		s->state = SET_NEW;
	return SET_MORE;
}

/* Is the packet in the set that a rule asks? SET_MORE: ask again. */
always_inline int set_ask(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	int answer = SET_MORE;

	if (s->state == SET_IN_LIST)
		answer = set_member(w);
	else if (!s->head)
		s->index = SET_INDEX(ask);
	if (answer == SET_MORE && s->state == SET_NEW) {
		answer = set_find(w, ask, kinds);
		if (answer == SET_MORE)
			answer = set_open(w, ask);
	}
	if (answer == SET_MORE && s->state == SET_OPENED)
		answer = set_key(w, ask);
	if (answer == SET_MORE && s->state == SET_KEYED)
		answer = set_bucket(w);
	if (answer == SET_MORE && s->state == SET_IN_BUCKET)
		answer = set_slots(w);
	if ((answer == SET_OUT || answer == SET_EXCEPT) && s->head) {
		s->state = SET_IN_LIST;
		return SET_MORE;
	}
	if (answer != SET_MORE) {
		s->state = SET_NEW;
		s->head = 0;
	}
	return answer;
}

#endif
#endif
