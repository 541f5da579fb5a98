/* SPDX-License-Identifier: GPL-2.0 */
/* One step of a packet through an image of rules: to the next rule that it satisfies, or an operation of that rule. See rules.h. */
#ifndef SHUNT_NODE_RULE_STEP_H
#define SHUNT_NODE_RULE_STEP_H

#include "packet.h"

#define RULE_STEPS	2048	/* behind these for one packet and stage; more than that: to Linux */
#define RULE_COUNTS	8	/* counters that one packet can move */
#define RULE_DEPTH	16	/* calls within calls, as many as nf_tables allows */

#define RULE_DIMS	16	/* offset of the dimensions in the header */
#define RULE_INNER	(1U << 31)
#define RULE_RECORD	16
#define RULE_NO_COUNT	0xffffffffU
#define RULE_OP_FAIL	0
#define RULE_OP_DONE	1
#define RULE_BACK_OUT	0xffffffffU
#define RULE_BACK_BASE	0xfffffffeU

enum rule_verdict { RULE_ACCEPT = 1, RULE_DROP, RULE_SLOW, RULE_LONG, RULE_DECIDED };

/* The images; the daemon makes the map as large as need be, and maps it. The first 64 bytes are a table for lowest_bit(). */
volatile __u8 rule_data[64] SEC(".data.rules");

#define SET_TRIES	8	/* buckets of an ipset that are looked at together; a power of two */

/* One bucket that may have the key. */
struct set_try {
	__u64 bucket;		/* its first slot that was not looked at yet */
	__u64 used;		/* a bit for each slot from there on */
	__u32 key[10];		/* what it holds, as it lies in an element; 0 where the key is shorter */
};

/* A lookup in an ipset, see ipset.h. */
struct set_walk {
	__u32 state;		/* enum set_state */
	__u32 index;		/* of the set */
	__u32 traits;		/* of its kind: family, method, dimensions, port */
	__u32 family, extensions;	/* its own */
	__u32 flags;		/* SET_* */
	__u64 next, head;	/* of a list of sets: links of the member that has its turn, and the list's own; 0 outside of lists */
	__u32 ends, end;	/* not 0: members of the list expire; where their end stands */
	__u64 set;		/* struct ip_set */
	__u64 data;		/* of the set */
	__u64 buckets;		/* of the hash table */
	__u64 now;		/* jiffies, if elements expire */
	__u64 net;		/* where the next of its prefix lengths stands */
	__u64 pair;		/* with lengths for two addresses: where that of the first stands */
	__u64 nets, nets_end;	/* and where their list begins and ends */
	__u32 lengths;		/* how many there can still be; 1 with a hash that has none */
	__u32 size;		/* of the hash table, less one */
	__u32 seed;		/* of the hash */
	__u32 dsize;		/* of an element */
	__u32 timeout;		/* where in an element its end stands, if elements expire */
	__u32 kind;		/* struct shunt_set_kind in `.data.rules` */
	__u32 key[16];		/* addresses and behind them protocol and port, as they lie in an element */
	__u32 tail;		/* protocol and port */
	__u64 first;		/* the bits of an element's first eight bytes that are part of the key */
	__u32 net_size, bias, shift, nomatch;	/* of its kind */
	__u64 except;		/* nomatch in the last two words of a key that has another one behind */
	__u32 multi;		/* an element with the packet's network was seen, of another interface */
	__u32 last;		/* of one that was found: the word with its prefix length */
	__u64 at;		/* and where it stands */
	__u64 name[2], named[2];	/* the interface's name, and the bits of it that count: as far as its end */
	__u32 n, turn;		/* tries, and which of them is looked at */
	struct set_try tries[SET_TRIES];
};

/*
 * A packet on its way through the rules; one for each CPU, since it would not fit on the stack. Next to nothing in it outlasts a packet, and what comes out
 * of a map is unknown to the verifier, which therefore need not follow the loop state by state.
 */
struct rule_walk {
	__u64 word;			/* bits of the word at hand that are left */
	__u64 sum;			/* words that may have bits, of those that the summary at hand speaks of */
	__u32 base;			/* of the image */
	__u32 sums, records;		/* from its header */
	__u32 row[SHUNT_D_COUNT + 1];
	__u32 from;			/* the first entry that counts */
	__u32 at;			/* number of the word at hand */
	__u32 next;			/* number of the next summary */
	__u32 trees, nexts, devices;	/* of an image with trees: how many, and where it has what rule_tree.h says */
	__u32 leaf[4], first[4];	/* where each tree's leaf is read on, and where it begins */
	__u32 turn, best, past_from;	/* the tree that has its turn; the first entry found by now; from where the search before began */
	__u32 op, record;		/* operation to do next, 0 for none; of the entry with that record */
	__u32 end;			/* where the base chain of the outermost call ends */
	__u32 depth;
	__u32 back[RULE_DEPTH];
	__u32 verdict;			/* enum rule_verdict; 0 as long as there is none */
	__u32 n;
	__u32 count[RULE_COUNTS];	/* counters to move: slot, and above 24 bits what their bytes are */
	__u32 past;			/* the packet meets no rules any more: its connection is in a flow table */
	__u32 zone;			/* where rules say in which the connection is looked up: its number, and above 16 bits for which directions (1 original, 2 reply); 0: in zone 0 */
	__u32 acts;			/* the walk has changed something, or asked what may change by itself: it is not remembered (verdicts.h) */
	__u32 place, met;		/* where it is to be remembered; the counters to move before it */
	__u32 taken, rest;		/* how many more packets looked in vain than were known, and how many do not look: these two outlast a packet */
	__u32 mangled;			/* the TOS was last written by nf_tables, behind the route: see dsfield.h */

	/* The packet. */
	__u32 in, out;			/* ifindexes of its logical interfaces */
	__u32 phys_in, phys_out;	/* and of the bridge's ports, see shown.h */
	__u32 have;			/* 1 << enum shunt_value */
	__u32 value[32];		/* by enum shunt_value */
	__u64 src[2], dst[2];		/* IPv6, upper half first */
	__u64 orig[4];			/* and of the connection's first packet: source, destination */

	/* A search among 128-bit values. */
	__u64 hi, lo;
	__u32 keys, half, found;

	struct set_walk set;
};

/* A callback's context has to be on the stack. */
struct rule_context {
	struct rule_walk *w;
};

always_inline volatile void *rule_at(__u64 offset)
{
	volatile __u8 *p = rule_data;

	asm volatile("" : "+r"(p));	/* its size is not what the compiler sees */
	return p + offset;
}

always_inline __u32 rule4(__u32 offset)
{
	return *(volatile __u32 *)rule_at(offset & frozen.rule_mask & ~3ULL);
}

always_inline __u64 rule8(__u32 offset)
{
	return *(volatile __u64 *)rule_at(offset & frozen.rule_mask & ~7ULL);
}

/* There is no instruction for it before Linux 6.x and none in version 3 of the instruction set: de Bruijn's sequence. */
always_inline __u32 lowest_bit(__u64 x)
{
	return *(volatile __u8 *)rule_at(((x & -x) * 0x03f79d71b4cb0a89ULL) >> 58);
}

#include "rule_tree.h"

#define AND_ROW(dim)								\
	do {									\
		if (frozen.rule_dims & 1 << (dim))				\
			all &= rule8(w->base + w->row[dim] + offset);		\
	} while (0)

/* The bits that all rows have at an offset. */
always_inline __u64 rule_and(struct rule_walk *w, __u32 offset)
{
	__u64 all = ~0ULL;

	if (!(frozen.rule_dims & SHUNT_RULES_ROWS))
		return rule8(w->base + w->row[0] + offset);
	AND_ROW(SHUNT_D_SRC);
	AND_ROW(SHUNT_D_DST);
	AND_ROW(SHUNT_D_DPORT);
	AND_ROW(SHUNT_D_SPORT);
	AND_ROW(SHUNT_D_PROTO);
	AND_ROW(SHUNT_D_IIF);
	AND_ROW(SHUNT_D_OIF);
	AND_ROW(SHUNT_D_PHYS_IN);
	AND_ROW(SHUNT_D_PHYS_OUT);
	return all;
}

/* Go on with that entry. */
always_inline int rule_go(struct rule_walk *w, __u32 to)
{
	w->from = to;
	w->next = to >> 12;
	w->word = w->sum = 0;
	w->turn = RULE_ANEW;
	return 0;
}

/* A row by a device's index; 0 for a device that the image does not know. */
/* A device that is in no table has the row of all those of which rules say nothing. */
always_inline __u32 rule_device(__u32 base, __u32 table, __u32 factor, __u32 index)
{
	__u32 at = base + table + 8 + 8 * (index * factor >> (rule4(base + table) & 31));

	return rule4(at) == index ? rule4(at + 4) : rule4(base + table + 4);
}

always_inline int rule_end(struct rule_walk *w, enum rule_verdict v)
{
	w->verdict = v;
	return 1;
}

always_inline int rule_count(struct rule_walk *w, __u32 count)
{
	if (w->n >= RULE_COUNTS)
		return rule_end(w, RULE_LONG);
	w->count[w->n & (RULE_COUNTS - 1)] = count;
	w->n++;
	return 0;
}

/* To where the list was called. */
always_inline int rule_back(struct rule_walk *w)
{
	__u32 depth = w->depth - 1;

	if (depth >= RULE_DEPTH)
		return rule_end(w, RULE_SLOW);
	w->depth = depth;
	return rule_go(w, w->back[depth & (RULE_DEPTH - 1)]);
}

/* What a record says, once all of its conditions hold. */
always_inline int rule_done(struct rule_walk *w)
{
	__u32 count = rule4(w->record + 8);

	w->op = 0;
	if (count != RULE_NO_COUNT && rule_count(w, count))
		return 1;
	switch (rule4(w->record)) {
	case SHUNT_T_NEXT:
	case SHUNT_T_CALL:	/* an operation has done it */
		return 0;
	case SHUNT_T_SKIP:
		return rule_go(w, rule4(w->record + 4));
	case SHUNT_T_DROP:
		return rule_end(w, RULE_DROP);
	case SHUNT_T_BACK:
		return rule_back(w);
	case SHUNT_T_ACCEPT:
		return rule_end(w, RULE_ACCEPT);
	case SHUNT_T_END_BASE:
		w->depth = 0;
		return rule_go(w, w->end);
	case SHUNT_T_DECIDED:
		return rule_end(w, RULE_DECIDED);
	}
	return rule_end(w, RULE_SLOW);
}

always_inline int rule_call(struct rule_walk *w, __u32 list, __u32 back, __u32 end)
{
	__u32 depth = w->depth;

	if (!depth)
		w->end = end;
	if (back == RULE_BACK_BASE) {
		depth = 0;
		back = w->end;
	}
	if (back != RULE_BACK_OUT) {
		if (depth >= RULE_DEPTH)
			return rule_end(w, RULE_LONG);
		w->back[depth & (RULE_DEPTH - 1)] = back;
		w->depth = depth + 1;
	}
	return rule_go(w, list);
}

enum set_answer { SET_OUT, SET_IN, SET_EXCEPT, SET_UNKNOWN, SET_MORE };
always_inline int set_ask(struct rule_walk *w, __u32 ask, __u32 kinds);	/* ipset.h */

/* Operations whose outcome is more than a verdict and counters, or hangs on more than struct shunt_verdict knows. */
#define RULE_ACTS (1 << SHUNT_O_MARK | 1 << SHUNT_O_DS | 1 << SHUNT_O_NOTRACK | 1 << SHUNT_O_RESTORE | 1 << SHUNT_O_SAVE | 1 << SHUNT_O_SET | 1 << SHUNT_O_ZONE)

/*
 * 32 bits of an IPv6 packet's addresses: four words of the source, then those of the destination, then both of the connection's first packet, uppermost first. Of each half the
 * lower ones come first in memory.
 */
always_inline __u32 rule_word6(struct rule_walk *w, __u32 n)
{
	volatile __u32 *words = (void *)w->src;

	asm volatile("" : "+r"(words));	/* to the compiler the destination is beyond it */
	return words[(n ^ 1) & 15];
}

#define RULE_LATER 2	/* of a move: it asks what only the steps behind the first moves can, as an ipset */

/* sets: 0 in the first moves, where ipsets are not asked. */
always_inline int rule_operation(struct rule_walk *w, const int sets)
{
	__u32 at = w->op, head = rule4(at), to = rule4(at + 4), v = head >> 8 & 31, x;

	if (frozen.verdicts)
		w->acts |= RULE_ACTS >> (head & 31) & 1;
	switch (head & 0xff) {
	case SHUNT_O_TEST:
		x = w->value[v] & rule4(at + 12);
		if (!(w->have >> v & 1) || x < rule4(at + 16) || x > rule4(at + 20))
			to = rule4(at + 8);
		break;
	case SHUNT_O_WORD6:	/* the frame of rule_begin() has no room for it */
		if (!sets)
			return RULE_LATER;
		x = rule_word6(w, v) & rule4(at + 12);
		if (x < rule4(at + 16) || x > rule4(at + 20))
			to = rule4(at + 8);
		break;
	case SHUNT_O_HAS:
		if (!(w->have >> v & 1))
			to = rule4(at + 8);
		break;
	case SHUNT_O_COUNT:
		if (rule_count(w, rule4(at + 16)))
			return 1;
		break;
	case SHUNT_O_MARK:
		w->value[v] = (w->value[v] & rule4(at + 16)) ^ rule4(at + 20);
		if (frozen.rule_dims & SHUNT_RULES_PRIORITY)
			w->have |= 1U << v;
		break;
	case SHUNT_O_DS:
		x = (w->value[SHUNT_V_DS] & rule4(at + 16)) ^ rule4(at + 20);
		if (x != w->value[SHUNT_V_DS])
			w->mangled = 0;
		w->mangled |= rule4(at + 12);
		w->value[SHUNT_V_DS] = x;
		break;
	case SHUNT_O_NOTRACK:	/* who has a connection keeps it */
		if (w->value[SHUNT_V_CT_STATE] == SHUNT_CT_INVALID)
			w->value[SHUNT_V_CT_STATE] = SHUNT_CT_UNTRACKED;
		break;
	case SHUNT_O_ZONE:	/* the first counts; that of nf_tables for what is kept out, too, which it is no more. Linux has a connection of state new stand for it */
		if (!(w->value[SHUNT_V_CT_STATE] & rule4(at + 12)))
			break;
		w->value[SHUNT_V_CT_STATE] = SHUNT_CT_NEW;
		w->zone = rule4(at + 16);
		break;
	case SHUNT_O_RESTORE:
		if (w->have >> SHUNT_V_CT_MARK & 1)
			w->value[SHUNT_V_MARK] = (w->value[SHUNT_V_MARK] & rule4(at + 16)) ^ rule4(at + 20) ^ (w->value[SHUNT_V_CT_MARK] & rule4(at + 12));
		break;
	case SHUNT_O_SAVE:	/* what changes nothing */
		x = w->value[SHUNT_V_CT_MARK];
		if ((w->have >> SHUNT_V_CT_MARK & 1) && ((x & rule4(at + 16)) ^ rule4(at + 20) ^ (w->value[SHUNT_V_MARK] & rule4(at + 12))) != x)
			return rule_end(w, RULE_SLOW);
		break;
	case SHUNT_O_CALL:
		if (rule_call(w, rule4(at + 12), rule4(at + 16), rule4(at + 20)))
			return 1;
		break;
	case SHUNT_O_SET:
		if (!sets)
			return RULE_LATER;
		x = frozen.rule_asks & SHUNT_ASKS_SETS ? set_ask(w, rule4(at + 12), rule4(at + 16)) : SET_UNKNOWN;
		if (x == SET_UNKNOWN)
			return rule_end(w, RULE_SLOW);
		if (x == SET_MORE)
			return 0;	/* the same operation again, for the next member of a list */
		if (x != SET_IN)
			to = rule4(at + 8);
		break;
	default:
		return rule_end(w, RULE_SLOW);
	}
	if (to == RULE_OP_DONE)
		return rule_done(w);
	w->op = to == RULE_OP_FAIL ? 0 : to + w->base;
	return 0;
}

/* Look at the next word of those that the summaries promise. */
always_inline void rule_look(struct rule_walk *w)
{
	__u64 sum = w->sum, word;
	__u32 at;

	if (w->word)
		return;
	if (!sum) {
		if (w->next >= w->sums)
			return;
		sum = rule_and(w, w->next * 8);
		if (w->next == w->from >> 12)
			sum &= ~0ULL << (w->from >> 6 & 63);
		w->next++;
		if (!sum)
			return;
	}
	at = (w->next - 1) * 64 + lowest_bit(sum);
	w->sum = sum & (sum - 1);
	word = rule_and(w, (w->sums + at) * 8);
	if (at == w->from >> 6)
		word &= ~0ULL << (w->from & 63);
	w->word = word;
	w->at = at;
}

/*
 * The next entry whose rows all have a bit. Returns 0 when it is not found yet, and the search goes on with the next step. A step is a call, which
 * costs as much as several words.
 */
always_inline int rule_next(struct rule_walk *w)
{
	if (RULE_BY_TREE && w->trees)
		return rule_by_tree(w);
	rule_look(w);
	rule_look(w);
	rule_look(w);
	rule_look(w);
	if (!w->word)
		return 0;
	w->record = w->records + (w->at * 64 + lowest_bit(w->word)) * RULE_RECORD;
	w->word &= w->word - 1;
	return 1;
}

always_inline int rule_move(struct rule_walk *w, const int sets)
{
	__u32 op;

	if (w->op)
		return rule_operation(w, sets);
	if (!rule_next(w))
		return 0;
	op = rule4(w->record + 12);
	if (!op)
		return rule_done(w);
	w->op = op + w->base;
	return 0;
}

/*
 * The beginning of the walk, which is most of it: as many moves as most packets need, at once. Where returning from a function costs much (AMD's "safe RET"), a
 * step for each of them would be most of what rules cost. Sets are left to the steps behind: this frame and theirs would not fit on the stack together.
 */
#define RULE_BEGIN(name, moves)									\
static __attribute__((noinline)) int name(struct rule_walk *w)						\
{													\
	if (RULE_BY_TREE && w->trees && rule_descend(w))						\
		return rule_end(w, RULE_LONG);								\
	_Pragma("clang loop unroll(disable)")								\
	for (int n = 0; n < (moves); n++) {								\
		int r = rule_move(w, 0);								\
													\
		if (r)											\
			return r != RULE_LATER;								\
	}												\
	return 0;											\
}

RULE_BEGIN(rule_begin, SHUNT_RULE_MOVES)

/* For verifiers that walk each move by itself: Linux 6.1's comes to a million instructions by twelve. Two functions, since a number that is no constant takes room on the stack. */
RULE_BEGIN(rule_begin_few, SHUNT_RULE_MOVES_FEW)

static int rule_step(__u32 i, struct rule_context *ctx)
{
	return rule_move(ctx->w, 1);
}

#endif
