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
#include "../include/jhash.h"
#include "rule_step.h"

#define SET_TIMEOUT	1	/* IPSET_EXT_TIMEOUT and _COUNTER, include/linux/netfilter/ipset/ip_set.h */
#define SET_COUNTER	2
#define SET_KINDS	32	/* more than image.SetKinds */
#define SET_PAIRS	1089	/* pairs of prefix lengths that are tried: as many as IPv4 has. Each is a bucket to look into, for Linux as well */
#define SET_FILLED	1	/* MAC_FILLED, ip_set_bitmap_ipmac.c */
#define SET_PHYSDEV	0xff	/* `physdev` in the last word of the hashed part of struct hash_netiface4_elem */

#define SET_SIX		1	/* flags of a lookup */
#define SET_TAILED	2
#define SET_EXPIRES	4
#define SET_NETS	8
#define SET_TWO		16
#define SET_NAMED	32
#define SET_MAC		64
#define SET_BOTH	128	/* prefix lengths are of both addresses */
#define SET_LONGER	256	/* another word of the key comes behind that with the prefix lengths */

/* What a key is, a constant in what deals with it: an address and perhaps a word or two behind it, or two addresses (of IPv4: words) and a word. */
#define KEY_SIX		1
#define KEY_TWO		2

/* How far a lookup has come. Each step is a function of its own, none of which calls another: the stack has no room for more. */
enum set_state { SET_NEW, SET_OPENED, SET_KEYED, SET_TRIED, SET_SEEN, SET_IN_LIST };

#ifdef SHUNT_NO_SETS

always_inline int set_ask(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	return SET_UNKNOWN;
}

#else

/*
 * Memory of the kernel; 0 where there is none. With `how` SHUNT_PEEK_CAST all of it is behind one pointer to nowhere, to which addresses are added: a
 * load, where a call would cost the compiler half of the registers, even a call that the kernel replaces. Therefore whatever reads is compiled once
 * for each way, and `how` is a constant in it.
 */
#define SET_MEMORY(how) ((how) == SHUNT_PEEK_CAST ? bpf_rdonly_cast((void *)0, 0) : NULL)
#define SET_AT(memory, addr)							\
	({									\
		void *at_;							\
		asm("%0 = %1\n\t%0 += %2" : "=&r"(at_) : "r"(memory), "r"(addr));	\
		at_;								\
	})

always_inline __u64 set8(const int how, void *memory, __u64 addr, __u32 offset)
{
	__u64 v = 0;

	if (how == SHUNT_PEEK_CAST)
		return *(volatile __u64 *)(SET_AT(memory, addr) + offset);
	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr + offset);
	return v;
}

always_inline __u32 set4(const int how, void *memory, __u64 addr, __u32 offset)
{
	__u32 v = 0;

	if (how == SHUNT_PEEK_CAST)
		return *(volatile __u32 *)(SET_AT(memory, addr) + offset);
	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr + offset);
	return v;
}

/* A function for each way to read. */
#define SET_STEP(step, params, ...)										\
	static __attribute__((noinline)) int step##_cast params { return step(SHUNT_PEEK_CAST, __VA_ARGS__); }	\
	static __attribute__((noinline)) int step##_probe params { return step(SHUNT_PEEK_PROBE, __VA_ARGS__); }
#define SET_DO(step, ...) (frozen.peek == SHUNT_PEEK_CAST ? step##_cast(__VA_ARGS__) : step##_probe(__VA_ARGS__))

/* A member of the lookup, read anew wherever it is asked for: the stack has no room for copies of all of them. */
#define S(member) (*(volatile typeof(s->member) *)&s->member)

/* A member of four bytes; of two shorter ones in a word the first is the lower half. */
#define SET_KIND(w, member) rule4((w)->set.kind + offsetof(struct shunt_set_kind, member))

/* What comes behind is read behind it. */
#define SET_KEEP(a, b, c) asm volatile("" : "+r"(a), "+r"(b), "+r"(c))

/* Where a key has its last word, that of the ports and the prefix lengths. With one address of IPv6, or with two, there can be another behind it. */
#define KEY_LAST(key) ((key) == (KEY_SIX | KEY_TWO) ? 8 : (key) == KEY_SIX ? 4 : (key) == KEY_TWO ? 2 : 1)
#define KEY_END(key) (KEY_LAST(key) + ((key) != 0))

/* jhash2(), include/linux/jhash.h; where there is no last word, or none behind it, it is 0. Behind two addresses it begins another three words. */
always_inline __u32 set_hash(__u32 seed, volatile const __u32 *words, const int key, int longer)
{
	__u32 a = seed, b = seed, c = seed;

	if (key & KEY_SIX) {
		a += words[0];
		b += words[1];
		c += words[2];
		JHASH_MIX(a, b, c);
		SET_KEEP(a, b, c);
		words += 3;
	}
	if (key == (KEY_SIX | KEY_TWO)) {
		a += words[0];
		b += words[1];
		c += words[2];
		JHASH_MIX(a, b, c);
		SET_KEEP(a, b, c);
		words += 3;
	}
	a += words[0];
	b += words[1];
	if (key)
		c += words[2];
	if ((key & KEY_TWO) && longer) {
		JHASH_MIX(a, b, c);
		SET_KEEP(a, b, c);
		a += words[3];
	}
	JHASH_FINAL(a, b, c);
	SET_KEEP(a, b, c);
	return c;
}

/* Has the end passed that stands there? ip_set_timeout_expired(): 0 stands for never. */
always_inline int set_expired(const int how, void *memory, struct set_walk *s, __u64 addr)
{
	__u64 end = set8(how, memory, addr, 0);

	return end && (__s64)(end - s->now) < 0;
}

/* The first bits of a word of an address of which that many count. */
always_inline __be32 set_prefix_word(__u32 bits, __u32 word)
{
	bits = bits > word * 32 ? bits - word * 32 : 0;
	return bits >= 32 ? ~0U : bpf_htonl((__u32)(0xffffffff00000000ULL >> bits));
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

always_inline void set_address(struct rule_walk *w, __be32 *addr, int src, __u32 six)
{
	if (six) {
		__u64 hi = src ? w->src[0] : w->dst[0], lo = src ? w->src[1] : w->dst[1];

		addr[0] = bpf_htonl(hi >> 32);
		addr[1] = bpf_htonl(hi);
		addr[2] = bpf_htonl(lo >> 32);
		addr[3] = bpf_htonl(lo);
	} else {
		addr[0] = bpf_htonl(src ? w->value[SHUNT_V_SRC] : w->value[SHUNT_V_DST]);
	}
}

/*
 * hash:ip, hash:ip,port and hash:net,net can cut addresses to a network. One of zeros is Linux's: what it says of that differs between families and
 * versions.
 */
always_inline int set_mask(const int how, void *memory, struct rule_walk *w, __u32 offset, __u32 at)
{
	struct set_walk *s = &w->set;
	__u32 *key = s->key + at;
	int by_bits = (SET_KIND(w, mask_bits) & 0xffff) != 0;
	__u32 bits = by_bits ? set4(how, memory, s->data, offset) & 0xff : 0, any;

	any = key[0] &= by_bits ? set_prefix_word(bits, 0) : set4(how, memory, s->data, offset);
	if (s->flags & SET_SIX) {
		any |= key[1] &= by_bits ? set_prefix_word(bits, 1) : set4(how, memory, s->data, offset + 4);
		any |= key[2] &= by_bits ? set_prefix_word(bits, 2) : set4(how, memory, s->data, offset + 8);
		any |= key[3] &= by_bits ? set_prefix_word(bits, 3) : set4(how, memory, s->data, offset + 12);
	}
	return any != 0;
}

/* The frame's address: its first four bytes, or the other two, as they lie in an element. */
always_inline __u32 set_ether(struct rule_walk *w, int src, int rest)
{
	__u32 high = w->value[src ? SHUNT_V_MAC_HIGH : SHUNT_V_TO_HIGH], low = w->value[src ? SHUNT_V_MAC_LOW : SHUNT_V_TO_LOW];

	return rest ? bpf_htons(low & 0xffff) : bpf_htonl(high << 16 | low >> 16);
}

/* What is asked: the set's index, from bit 16 the directions (1: source), from bit 20 their number, from bit 24 the place of the expected kind. */
#define SET_INDEX(ask)		((ask) & 0xffff)
#define SET_SRC(ask, n)		((ask) >> (16 + (n)) & 1)
#define SET_DIRECTIONS(ask)	((ask) >> 20 & 15)
#define SET_EXPECTED(ask)	((ask) >> 24)

/* Find the set with that index, and how sets of its type and family are asked: in most cases as the rule expects. */
always_inline int set_find(const int how, struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u64 set = set8(how, memory, set8(how, memory, frozen.sets.inst, frozen.sets.list) + 8 * (__u64)s->index, 0), type;
	__u64 name0, name8;
	__u32 word;

	if (!frozen.sets.inst || !set)
		return SET_UNKNOWN;
	s->set = set;
	type = set8(how, memory, set, frozen.sets.type);
	name0 = set8(how, memory, type, frozen.sets.type_name);
	name8 = set8(how, memory, type, frozen.sets.type_name + 8);
	word = set4(how, memory, set, frozen.sets.family);
	s->family = word & 0xff;
	s->extensions = word >> ((frozen.sets.extensions - frozen.sets.family) * 8 & 24) & 0xff;	/* in the same word */
	kinds += w->base;
	s->kind = kinds + SET_EXPECTED(ask) * sizeof(struct shunt_set_kind);
	for (int i = 0; i < SET_KINDS; i++) {
		s->traits = rule4(s->kind + offsetof(struct shunt_set_kind, family));
		if (rule8(s->kind) == name0 && rule8(s->kind + 8) == name8 && (s->traits & 0xff) == s->family)
			return SET_MORE;
		s->kind = kinds + i * sizeof(struct shunt_set_kind);
		if (!rule8(s->kind))
			break;
	}
	return SET_UNKNOWN;
}

/* The name of the packet's interface, by which hash:net,iface asks; the image has it. In front of the kinds stands where. Where the way is not known yet there is none. */
always_inline int set_interface(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	__u32 table = rule4(w->base + kinds - 8), index = SET_SRC(ask, 1) ? w->in : w->out, at;

	if (!index)
		return SET_OUT;
	at = table ? rule_device(w->base, table, rule4(w->base + kinds - 4), index) : 0;
	if (!at)
		return SET_UNKNOWN;
	at += w->base;
	s->name[0] = rule8(at);
	s->name[1] = rule8(at + 8);
	s->named[0] = rule8(at + 16);
	s->named[1] = rule8(at + 24);
	return SET_MORE;
}

/* Open it, as ip_set_test() does; with a hash, take what to look for in it. */
always_inline int set_open(const int how, struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u32 six = w->have >> SHUNT_V_FLOW & 1, traits = s->traits, bits, words, offset, src;
	__u64 table;
	int answer;

	if ((s->family && s->family != (six ? AF_INET6 : AF_INET)) || (traits >> 16 & 0xff) > SET_DIRECTIONS(ask))
		return SET_OUT;
	s->data = set8(how, memory, s->set, frozen.sets.data);
	if (!s->data || (s->extensions & SET_COUNTER))
		return SET_UNKNOWN;
	s->dsize = set4(how, memory, s->set, frozen.sets.dsize);
	s->flags = six ? SET_SIX : 0;
	if (s->extensions & SET_TIMEOUT) {
		s->flags |= SET_EXPIRES;
		s->timeout = set4(how, memory, s->set, frozen.sets.timeout);
		s->now = bpf_jiffies64();
	}
	s->state = SET_OPENED;
	if ((traits >> 8 & 0xff) != SHUNT_SET_HASH)
		return SET_MORE;
	table = set8(how, memory, s->data, SET_KIND(w, table));
	bits = set4(how, memory, table, frozen.sets.bits) & 0xff;	/* never the last byte of its structure: three more can be read */
	if (!table || bits > 31)
		return SET_UNKNOWN;
	s->buckets = table + frozen.sets.bucket;
	s->size = (1U << (bits & 31)) - 1;
	s->seed = JHASH_INITVAL + set4(how, memory, s->data, SET_KIND(w, first));
	s->lengths = 1;
	s->nomatch = s->multi = 0;
	s->state = SET_KEYED;
	words = six ? 4 : 1;
	s->tail = 0;
	set_address(w, s->key, SET_SRC(ask, 0), six);
	if (SET_KIND(w, addresses) == 2) {
		s->flags |= SET_TWO;
		set_address(w, s->key + words, SET_SRC(ask, 2), six);
		words *= 2;
	}
	if (traits >> 24)
		s->flags |= SET_TAILED;
	switch (traits >> 24) {
	case SHUNT_TAIL_PORT:
		s->tail = set_service(w, SET_SRC(ask, 1));
		break;
	case SHUNT_TAIL_MARK:
		s->tail = w->value[SHUNT_V_MARK] & set4(how, memory, s->data, SET_KIND(w, last));
		break;
	case SHUNT_TAIL_IFACE:
		s->flags |= SET_NAMED;
		s->tail = 1 << 24;	/* `elem` */
		answer = set_interface(w, ask, kinds);
		if (answer != SET_MORE)
			return answer;
		break;
	case SHUNT_TAIL_MAC:
		if (!(w->have >> SHUNT_V_MAC_HIGH & 1))
			return SET_UNKNOWN;
		src = SET_SRC(ask, SET_KIND(w, addresses) & 1);
		if (!SET_KIND(w, addresses)) {
			s->flags &= ~SET_SIX;
			words = 0;
		} else if (six) {
			s->flags |= SET_MAC;
		} else {
			s->flags |= SET_TWO;
		}
		s->key[words & 15] = set_ether(w, src, 0);
		words++;
		s->tail = set_ether(w, src, 1);
		break;
	}
	if (SET_KIND(w, lengths)) {
		s->flags |= SET_TAILED | SET_NETS;
		s->lengths = SET_KIND(w, lengths);
		s->net = s->data + SET_KIND(w, nets);
		s->net_size = SET_KIND(w, net_size);
		s->bias = SET_KIND(w, mask_bits) >> 16;
		s->shift = SET_KIND(w, shift);
		s->nomatch = SET_KIND(w, nomatch);
		if (s->shift == 16)	/* the protocol comes behind the prefix length, not before it */
			s->tail = (s->tail & 0xffff) | (s->tail & 0xff0000) << 8;
		if (SET_KIND(w, pairs))
			s->state = SET_OPENED;	/* set_both() */
	} else {
		offset = SET_KIND(w, mask);
		if (offset && !set_mask(how, memory, w, offset, 0))
			return SET_UNKNOWN;
	}
	s->key[words & 15] = S(tail);
	s->key[(words + 1) & 15] = 0;
	s->seed += (words + (s->flags & SET_TAILED ? 1 : 0)) << 2;
	return SET_MORE;
}

/* What more there is to a hash of two networks: prefix lengths of both, and another word behind them: of the protocol, or to fill the element up. */
always_inline int set_both(const int how, struct rule_walk *w, __u32 ask)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u32 offset = SET_KIND(w, mask), at = s->flags & SET_SIX ? 8 : 2;

	s->state = SET_KEYED;
	s->flags |= SET_BOTH;
	s->pair = s->nets = s->net;
	s->nets_end = s->net + (__u64)s->lengths * s->net_size;
	s->lengths = SET_PAIRS + 1;
	if (!(s->traits >> 24)) {	/* no port: the second direction is that of an address */
		set_address(w, s->key + at / 2, SET_SRC(ask, 1), s->flags & SET_SIX);
		s->except = s->nomatch;
	} else {
		s->key[at + 1] = (s->key[at] & 0xff0000) << 8;
		s->key[at] &= 0xffff;
		s->except = (__u64)s->nomatch << 32;
	}
	if (SET_KIND(w, words) > at + 1) {
		s->flags |= SET_LONGER;
		s->seed += 1 << 2;
	}
	if (offset && (!set_mask(how, memory, w, offset, 0) || !set_mask(how, memory, w, offset, at / 2)))
		return SET_UNKNOWN;
	return SET_MORE;
}

/* The next pair of prefix lengths, each more by one, the second address's in the upper half; 0: there is none. For each of the first all of the second's are tried. */
always_inline __u32 set_pair(const int how, void *memory, struct set_walk *s)
{
	__u32 second = S(net) == S(nets_end) ? 0 : set4(how, memory, S(net), 0) & 0xff00, first;

	if (!second) {
		S(net) = S(nets);
		S(pair) += S(net_size);
		second = set4(how, memory, S(net), 0) & 0xff00;
	}
	first = S(pair) == S(nets_end) ? 0 : set4(how, memory, S(pair), 0) & 0xff;
	S(net) += S(net_size);
	return first && second ? first | second : 0;
}

/*
 * Where the key has to be: the buckets of the next prefix lengths in the set, longest first, as mtype_test_cidrs() has them, or the one bucket of
 * mtype_test(). All of them are found before any is looked into, so that the CPU waits for their memory once and not once for each.
 */
always_inline int set_try(const int how, struct rule_walk *w, const int key)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u32 n;

	for (n = 0; n < SET_TRIES; n++) {
		struct set_try *t = &s->tries[n];
		volatile __u32 *words;
		__u32 hash;

		asm volatile("" : "+r"(t));	/* one pointer, not one for each member */
		words = t->key;
		if (!S(lengths))
			break;
		S(lengths)--;
		_Pragma("clang loop unroll(full)")
		for (int i = 0; i <= KEY_END(key); i++)
			words[i] = S(key[i]);
		if (S(flags) & SET_NETS) {
			int both = (key & KEY_TWO) && (S(flags) & SET_BOTH);
			__u32 bits;

			if (both) {
				bits = set_pair(how, memory, s);
			} else {
				bits = set4(how, memory, S(net), 0) & 0xff;
				S(net) += S(net_size);
			}
			if (!bits) {
				S(lengths) = 0;
				break;
			}
			if (both) {
				if (!S(lengths))	/* more pairs than are tried */
					return SET_UNKNOWN;
				_Pragma("clang loop unroll(full)")
				for (int i = 0; i < (key & KEY_SIX ? 4 : 1); i++)
					words[i] &= set_prefix_word((bits & 0xff) - 1, i);
				words[KEY_LAST(key)] |= ((bits & 0xff) - 1) << ((S(shift) - 8) & 31);
				bits >>= 8;
			}
			bits--;
			_Pragma("clang loop unroll(full)")
			for (int i = 0; i < (key & KEY_SIX ? 4 : 1); i++)	/* the address before the last word */
				words[KEY_LAST(key) - (key & KEY_SIX ? 4 : 1) + i] &= set_prefix_word(bits, i);
			words[KEY_LAST(key)] |= (bits - S(bias)) << (S(shift) & 31);
		}
		hash = set_hash(S(seed), words, key, S(flags) & SET_LONGER);
		t->bucket = set8(how, memory, S(buckets) + 8 * (__u64)(hash & S(size)), 0);
	}
	s->n = n;
	s->turn = 0;
	s->state = SET_TRIED;
	for (int i = 0; i < SET_TRIES; i++) {
		struct set_try *t = &s->tries[i];

		if (i >= S(n))
			break;
		t->used = set8(how, memory, t->bucket, frozen.sets.used);	/* 0 where there is no bucket */
		t->bucket += frozen.sets.value;
	}
	return SET_MORE;
}

/* The bytes of eight before the first that is zero: all ones. */
always_inline __u64 set_text(__u64 x)
{
	__u64 ends = (x - 0x0101010101010101ULL) & ~x & 0x8080808080808080ULL;

	return ((ends & -ends) >> 7) - 1;
}

/*
 * An element of hash:net,iface has the packet's network. Is it for its interface, too, hash_netiface4_data_equal()? Behind the network stands whether a name is only how
 * names begin, and then the name. No packet asks for elements with physdev.
 */
always_inline int set_named(const int how, struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u64 at = s->at + (s->flags & SET_SIX ? 20 : 8), x, of;

	s->state = SET_TRIED;
	s->multi = 1;
	if (s->last & SET_PHYSDEV)
		return SET_MORE;
	x = set8(how, memory, at, 1);
	of = set4(how, memory, at, 0) & 0xff ? set_text(x) : s->named[0];
	if ((x ^ s->name[0]) & of)
		return SET_MORE;
	if (!~of) {
		x = set8(how, memory, at, 9);
		of = set4(how, memory, at, 0) & 0xff ? set_text(x) : s->named[1];
		if ((x ^ s->name[1]) & of)
			return SET_MORE;
	}
	if ((s->flags & SET_EXPIRES) && set_expired(how, memory, s, s->at + s->timeout)) {
		s->multi = 0;
		return SET_MORE;
	}
	return s->last & s->nomatch ? SET_EXCEPT : SET_IN;
}

/* The element there begins like the key. Is it that? One that has expired is not there. SET_EXCEPT: it says `nomatch`. SET_MORE: it depends on the interface. */
always_inline int set_element(const int how, void *memory, struct set_walk *s, struct set_try *t, __u64 at, __u64 begin, const int key)
{
	__u32 last = begin >> 32;

	_Pragma("clang loop unroll(full)")
	for (int i = 2; i < KEY_LAST(key); i += 2)
		if (set8(how, memory, at, 4 * i) != *(volatile __u64 *)&t->key[i])
			return SET_OUT;
	if (key) {
		if ((key & KEY_TWO) && (S(flags) & SET_LONGER)) {
			__u64 both = set8(how, memory, at, 4 * KEY_LAST(key));

			if ((both & ~S(except)) != *(volatile __u64 *)&t->key[KEY_LAST(key)])
				return SET_OUT;
			last = both & S(except) ? S(nomatch) : 0;
		} else {
			last = S(flags) & SET_TAILED ? set4(how, memory, at, 4 * KEY_LAST(key)) : 0;
			if ((last & ~S(nomatch)) != *(volatile __u32 *)&t->key[KEY_LAST(key)])
				return SET_OUT;
		}
	}
	if (key == KEY_SIX && (S(flags) & SET_MAC) && set4(how, memory, at, 4 * KEY_END(key)) != *(volatile __u32 *)&t->key[KEY_END(key)])
		return SET_OUT;
	if (!(key & KEY_TWO) && (S(flags) & SET_NAMED)) {
		s->at = at;
		s->last = last;
		s->state = SET_SEEN;
		return SET_MORE;
	}
	if ((S(flags) & SET_EXPIRES) && set_expired(how, memory, s, at + S(timeout)))
		return SET_OUT;
	return last & S(nomatch) ? SET_EXCEPT : SET_IN;
}

/*
 * Is the key in one of the buckets? Four slots at a time, whether they are used or not: memory behind a bucket's end can be read too, and that costs
 * less than a loop of which nobody can foresee the end. But not where each read is a call.
 */
#define SET_AT_ONCE(how) ((how) == SHUNT_PEEK_CAST ? 4 : 1)

always_inline int set_match(const int how, struct rule_walk *w, const int key)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);

	s->first = key ? ~0ULL : ~((__u64)s->nomatch << 32);
	for (int i = 0; i < 4 * SET_TRIES / SET_AT_ONCE(how); i++) {
		struct set_try *t = &s->tries[S(turn) & (SET_TRIES - 1)];
		__u64 at, used;

		if (S(turn) >= S(n)) {
			s->state = SET_KEYED;
			return S(lengths) ? SET_MORE : SET_OUT;
		}
		at = t->bucket;
		used = t->used;
		_Pragma("clang loop unroll(disable)")
		for (int j = 0; j < SET_AT_ONCE(how); j++) {
			if (how == SHUNT_PEEK_CAST || (used & 1)) {
				__u64 begin = key || (S(flags) & SET_TAILED) ? set8(how, memory, at, 0) : set4(how, memory, at, 0);

				if ((begin & S(first)) == *(volatile __u64 *)t->key && (used & 1)) {
					int answer = set_element(how, memory, s, t, at, begin, key);

					if (!(key & KEY_TWO) && answer == SET_MORE) {
						t->used = used >> 1;
						t->bucket = at + S(dsize);
					}
					if (answer != SET_OUT)
						return answer;
				}
			}
			used >>= 1;
			at += S(dsize);
		}
		t->used = used;
		t->bucket = at;
		if (!used) {
			if (S(multi))	/* mtype_test_cidrs(): shorter prefixes are not asked then */
				return SET_OUT;
			S(turn)++;
		}
	}
	return SET_MORE;
}

/* The bit of a value, bitmap_*_do_test() and mtype_test() of ip_set_bitmap_gen.h. */
always_inline int set_bit_of(const int how, void *memory, struct set_walk *s, __u32 id, __u64 bits, __u32 extensions)
{
	if (!(set8(how, memory, bits + (__u64)(id >> 6) * 8, 0) >> (id & 63) & 1))
		return SET_OUT;
	if ((s->flags & SET_EXPIRES) && set_expired(how, memory, s, s->data + extensions + (__u64)id * s->dsize + s->timeout))
		return SET_OUT;
	return SET_IN;
}

always_inline int set_by_address(const int how, void *memory, struct rule_walk *w, int src)
{
	struct set_walk *s = &w->set;
	__u32 ip = src ? w->value[SHUNT_V_SRC] : w->value[SHUNT_V_DST];
	__u32 first = set4(how, memory, s->data, SET_KIND(w, first)), hosts = set4(how, memory, s->data, SET_KIND(w, hosts));

	if (ip < first || ip > set4(how, memory, s->data, SET_KIND(w, last)))
		return SET_OUT;
	ip &= bpf_ntohl(set_prefix_word(set4(how, memory, s->data, SET_KIND(w, mask)) & 0xff, 0));
	if (!hosts)
		return SET_UNKNOWN;
	return set_bit_of(how, memory, s, (ip - first) / hosts, set8(how, memory, s->data, SET_KIND(w, table)), SET_KIND(w, extensions));
}

always_inline int set_by_port(const int how, void *memory, struct rule_walk *w, int src)
{
	struct set_walk *s = &w->set;
	__u32 proto = w->value[SHUNT_V_PROTO], port = src ? w->value[SHUNT_V_SPORT] : w->value[SHUNT_V_DPORT];
	__u32 first = set4(how, memory, s->data, SET_KIND(w, first)) & 0xffff;

	if (proto != PROTO_TCP && proto != PROTO_UDP)
		return SET_OUT;
	if (port < first || port > (set4(how, memory, s->data, SET_KIND(w, last)) & 0xffff))
		return SET_OUT;
	return set_bit_of(how, memory, s, port - first, set8(how, memory, s->data, SET_KIND(w, table)), SET_KIND(w, extensions));
}

/* bitmap_ipmac_do_test(). An element without an address gets that of the first packet, from Linux. */
always_inline int set_by_frame(const int how, struct rule_walk *w, __u32 ask)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u32 ip = SET_SRC(ask, 0) ? w->value[SHUNT_V_SRC] : w->value[SHUNT_V_DST], src = SET_SRC(ask, 1);
	__u64 ether;

	if (!(w->have >> SHUNT_V_MAC_HIGH & 1))
		return SET_UNKNOWN;
	s->turn = ip - set4(how, memory, s->data, SET_KIND(w, first));	/* kept there and not on the stack */
	if (set4(how, memory, s->data, SET_KIND(w, first)) > ip || ip > set4(how, memory, s->data, SET_KIND(w, last)))
		return SET_OUT;
	if (!(set_ether(w, src, 0) | set_ether(w, src, 1)))	/* bitmap_ipmac_kadt() */
		return SET_OUT;
	if (!(set8(how, memory, set8(how, memory, s->data, SET_KIND(w, table)) + (__u64)(S(turn) >> 6) * 8, 0) >> (S(turn) & 63) & 1))
		return SET_OUT;
	ether = set8(how, memory, s->data + SET_KIND(w, extensions) + (__u64)S(turn) * s->dsize, 0);
	if ((ether >> 48 & 0xff) != SET_FILLED)
		return SET_UNKNOWN;
	if ((ether & 0xffffffffffffULL) != ((__u64)set_ether(w, src, 1) << 32 | set_ether(w, src, 0)))
		return SET_OUT;
	return set_bit_of(how, memory, s, S(turn), set8(how, memory, s->data, SET_KIND(w, table)), SET_KIND(w, extensions));
}

/* Other sets that are no hashes. */
always_inline int set_other(const int how, struct rule_walk *w, __u32 ask)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);

	switch (s->traits >> 8 & 0xff) {
	case SHUNT_SET_BITMAP_IP:
		return set_by_address(how, memory, w, SET_SRC(ask, 0));
	case SHUNT_SET_BITMAP_PORT:
		return set_by_port(how, memory, w, SET_SRC(ask, 0));
	case SHUNT_SET_LIST:
		if (s->head)
			return SET_UNKNOWN;	/* the kernel has no lists in lists */
		s->head = s->data + SET_KIND(w, table);
		s->next = set8(how, memory, s->head, 0);
		s->ends = s->flags & SET_EXPIRES;
		s->end = s->timeout;
		s->state = SET_IN_LIST;
		return SET_MORE;
	}
	return SET_UNKNOWN;
}

/* The next member of a list, list_set_ktest(). */
always_inline int set_member(const int how, struct rule_walk *w)
{
	struct set_walk *s = &w->set;
	void *memory = SET_MEMORY(how);
	__u64 link = s->next, member = link - frozen.sets.member;

	if (!link)
		return SET_UNKNOWN;
	if (link == s->head) {
		s->head = 0;
		return SET_OUT;
	}
	s->next = set8(how, memory, link, 0);
	s->index = set4(how, memory, member, frozen.sets.member_id) & 0xffff;
	if (!s->ends || !set_expired(how, memory, s, member + s->end))
		s->state = SET_NEW;
	return SET_MORE;
}

SET_STEP(set_find, (struct rule_walk *w, __u32 ask, __u32 kinds), w, ask, kinds)
SET_STEP(set_open, (struct rule_walk *w, __u32 ask, __u32 kinds), w, ask, kinds)
/* Apart: with their callers' these are all frames that fit on the stack (shunt_xdp, rule_run, rule_step), and none may take more than 32 bytes. */
SET_STEP(set_by_frame, (struct rule_walk *w, __u32 ask), w, ask)
SET_STEP(set_other, (struct rule_walk *w, __u32 ask), w, ask)
SET_STEP(set_both, (struct rule_walk *w, __u32 ask), w, ask)
SET_STEP(set_named, (struct rule_walk *w), w)
SET_STEP(set_member, (struct rule_walk *w), w)

#define SET_KEYS(x) x(4, 0) x(6, KEY_SIX) x(44, KEY_TWO) x(66, KEY_SIX | KEY_TWO)
#define SET_FOR_KEY(name, key)												\
	always_inline int set_try##name(const int how, struct rule_walk *w) { return set_try(how, w, key); }		\
	always_inline int set_match##name(const int how, struct rule_walk *w) { return set_match(how, w, key); }	\
	SET_STEP(set_try##name, (struct rule_walk *w), w)								\
	SET_STEP(set_match##name, (struct rule_walk *w), w)
SET_KEYS(SET_FOR_KEY)

#define SET_BY_KEY(step, w)								\
	((w)->set.flags & SET_TWO ? (w)->set.flags & SET_SIX ? SET_DO(step##66, w) : SET_DO(step##44, w)	\
				  : (w)->set.flags & SET_SIX ? SET_DO(step##6, w) : SET_DO(step##4, w))

/* Is the packet in the set that a rule asks? SET_MORE: ask again. */
always_inline int set_ask(struct rule_walk *w, __u32 ask, __u32 kinds)
{
	struct set_walk *s = &w->set;
	int answer = SET_MORE;

	if (s->state == SET_IN_LIST)
		answer = SET_DO(set_member, w);
	else if (!s->head)
		s->index = SET_INDEX(ask);
	if (answer == SET_MORE && s->state == SET_NEW) {
		answer = SET_DO(set_find, w, ask, kinds);
		if (answer == SET_MORE)
			answer = SET_DO(set_open, w, ask, kinds);
	}
	if (answer == SET_MORE && s->state == SET_OPENED) {
		switch (s->traits >> 8 & 0xff) {
		case SHUNT_SET_HASH:
			answer = SET_DO(set_both, w, ask);
			break;
		case SHUNT_SET_BITMAP_MAC:
			answer = SET_DO(set_by_frame, w, ask);
			break;
		default:
			answer = SET_DO(set_other, w, ask);
		}
	}
	if (answer == SET_MORE && s->state == SET_KEYED)
		answer = SET_BY_KEY(set_try, w);
	if (answer == SET_MORE && s->state == SET_SEEN)
		answer = SET_DO(set_named, w);
	if (answer == SET_MORE && s->state == SET_TRIED)
		answer = SET_BY_KEY(set_match, w);
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
