/* SPDX-License-Identifier: GPL-2.0 */
/*
 * verdicts: what an image of rules said to a flow's packet, remembered for those behind it.
 *
 * Problem: with hundreds of rules, as container engines and service proxies write them, a walk through them costs several times a lookup, and a flow's packets all take the same.
 * Mechanism: a direct-mapped table for each CPU, by everything that the image may ask of a packet; its answer is the verdict and the counters to move. An image that takes the
 * place of another has another number, and so have those of changed sets, devices and elements that expired: no entry outlasts what it came from. What Linux decides for each packet
 * anew (whether its connection lives, how that is translated, its route) is asked anew.
 * A walk that changed the packet is not remembered, nor is any where rules ask ipsets, or what differs among a flow's packets (TTL, length, addresses of frames …).
 * Where flows are more than places, some have one and the packets of the others walk; and where fewer packets are known than look in vain, the table is left alone for a while, since
 * looking there in vain costs as much as a short walk.
 * Invariant: what an entry answers is what the walk would answer now. Programs that ask differently have another table (internal/datapath: ruleStore).
 */
#ifndef SHUNT_NODE_VERDICTS_H
#define SHUNT_NODE_VERDICTS_H

#include "rule_step.h"

/* frozen.verdicts for each CPU; the daemon sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);	/* for its alignment */
	__type(key, __u32);
	__type(value, struct shunt_verdict);
} verdicts SEC(".maps");

/* Values that struct shunt_verdict has, or that are the same for all packets with those. */
#define VERDICT_VALUES (1 << SHUNT_V_TCP_FLAGS | 1 << SHUNT_V_ICMP | 1 << SHUNT_V_DS | 1 << SHUNT_V_MARK | 1 << SHUNT_V_PROTO | 1 << SHUNT_V_SPORT | 1 << SHUNT_V_DPORT |	\
			1 << SHUNT_V_SRC | 1 << SHUNT_V_DST | 1 << SHUNT_V_CT_STATE | 1 << SHUNT_V_CT_STATUS | 1 << SHUNT_V_CT_MARK | 1 << SHUNT_V_CT_DIR |			\
			1 << SHUNT_V_CT_ZONE | 1 << SHUNT_V_BACK | 1 << SHUNT_V_BACK_BY)
#define VERDICT_PORTS (1 << SHUNT_V_SPORT | 1 << SHUNT_V_DPORT)
#define VERDICT_MARKS (1 << SHUNT_V_MARK | 1 << SHUNT_V_CT_MARK)
#define VERDICT_CONN (1 << SHUNT_V_CT_STATUS | 1 << SHUNT_V_CT_DIR | 1 << SHUNT_V_CT_ZONE)
#define VERDICT_PHYS (1 << SHUNT_D_PHYS_IN | 1 << SHUNT_D_PHYS_OUT)
#define NO_PLACE (~0U)
#define VERDICT_CHANCE 8	/* about one of so many packets that find another flow's entry takes its place */
#define VERDICT_TAKEN 128	/* when so many more have looked in vain than were known, */
#define VERDICT_REST 4096	/* so many do not look */

/* Are a stage's verdicts such as can be remembered? */
always_inline int verdicts_known(__u32 stage)
{
	return frozen.verdicts && !(frozen.rules[stage].asks & (((1 << SHUNT_V_COUNT) - 1) | SHUNT_ASKS_SETS) & ~VERDICT_VALUES);
}

always_inline int verdicts_rest(struct rule_walk *w)
{
	if (!w->rest)
		return 0;
	w->rest--;
	return 1;
}

always_inline void verdict_in_vain(struct rule_walk *w)
{
	if (++w->taken < VERDICT_TAKEN)
		return;
	w->taken = 0;
	w->rest = VERDICT_REST;
}

/* The verdict of an image, with its counters, as it is remembered; 0 if it is not, and then w->place says where it is to be, and its key is there. */
__attribute__((noinline)) __u32 verdict_recall(struct rule_walk *w, __u64 image)
{
	__u32 place, number = image >> 32, asks = frozen.rule_asks, answer;
	__u64 addr, ports, devices, marks = 0, conn = 0, phys = 0, icmp = 0, hash, differs;
	struct shunt_verdict *e;
	int six;

	if (!w)
		return 0;
	w->place = NO_PLACE;
	w->acts = 0;
	if (!frozen.verdicts || !number || (frozen.flowtable && w->past))
		return 0;
	ports = (__u64)w->value[SHUNT_V_PROTO] << 24 | w->value[SHUNT_V_CT_STATE] << 16;
	if ((asks & VERDICT_PORTS) || (frozen.rule_dims & (1 << SHUNT_D_SPORT | 1 << SHUNT_D_DPORT)))	/* which protocols have none is known by themselves */
		ports |= (__u64)w->value[SHUNT_V_SPORT] << 48 | (__u64)(__u16)w->value[SHUNT_V_DPORT] << 32;
	if (asks & 1 << SHUNT_V_DS)
		ports |= w->value[SHUNT_V_DS] << 8;
	if (asks & w->have & 1 << SHUNT_V_TCP_FLAGS)
		ports |= (__u8)w->value[SHUNT_V_TCP_FLAGS];
	devices = (__u64)w->in << 32 | w->out;
	if (asks & 1 << SHUNT_V_MARK)
		marks = (__u64)w->value[SHUNT_V_MARK] << 32;
	if (asks & w->have & 1 << SHUNT_V_CT_MARK)
		marks |= w->value[SHUNT_V_CT_MARK];
	if ((asks & VERDICT_CONN) && (w->have & 1 << SHUNT_V_CT_STATUS))	/* these come together */
		conn = (__u64)w->value[SHUNT_V_CT_STATUS] << 32 | w->value[SHUNT_V_CT_ZONE] << 16 | w->value[SHUNT_V_CT_DIR];
	if (frozen.rule_dims & VERDICT_PHYS)
		phys = (__u64)w->phys_in << 32 | w->phys_out;
	if (asks & w->have & 1 << SHUNT_V_ICMP)
		icmp = w->value[SHUNT_V_ICMP];
	six = w->have >> SHUNT_V_FLOW & 1;
	addr = six ? w->src[1] : (__u64)w->value[SHUNT_V_SRC] << 32 | w->value[SHUNT_V_DST];

	hash = (addr ^ number) * 0x9e3779b97f4a7c15ULL ^ (ports + devices) * 0xc2b2ae3d27d4eb4fULL;
	if (six)
		hash ^= (w->dst[1] ^ w->dst[0] << 1) * 0x9e3779b97f4a7c15ULL;
	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
	place = bpf_get_smp_processor_id() * frozen.verdicts + (hash >> 32 & (frozen.verdicts - 1));
	e = bpf_map_lookup_elem(&verdicts, &place);
	if (!e)
		return 0;
	differs = (e->image ^ number) | (e->have ^ w->have) | (e->addr ^ addr) | (e->ports ^ ports) | (e->devices ^ devices);
	if (asks & VERDICT_MARKS)
		differs |= e->marks ^ marks;
	if (asks & VERDICT_CONN)
		differs |= e->conn ^ conn;
	if (frozen.rule_dims & VERDICT_PHYS)
		differs |= e->ports_of_bridges ^ phys;
	if (asks & 1 << SHUNT_V_ICMP)
		differs |= e->icmp ^ icmp;
	if (six)
		differs |= (e->addr6[0] ^ w->src[0]) | (e->addr6[1] ^ w->dst[0]) | (e->addr6[2] ^ w->dst[1]);
	answer = e->answer;
	if (!differs && w->n + (answer >> 8) <= RULE_COUNTS) {
		__u32 n = w->n;

		_Pragma("clang loop unroll(disable)")
		for (__u32 i = 0; i < SHUNT_VERDICT_COUNTS; i++) {
			if (i >= answer >> 8)
				break;
			w->count[n & (RULE_COUNTS - 1)] = e->count[i];
			n++;
		}
		w->n = n;
		if (w->taken)
			w->taken--;
		return answer & 0xff;
	}
	if (e->image == number) {
		verdict_in_vain(w);
		if (w->taken % VERDICT_CHANCE)	/* whoever has the place keeps it for a while: of two that take turns none would be known else */
			return 0;
	}
	e->image = 0;
	barrier();
	e->have = w->have;
	e->addr = addr;
	e->ports = ports;
	e->devices = devices;
	/* What nobody asks for is not touched: it lies in another cache line. */
	if (asks & VERDICT_MARKS)
		e->marks = marks;
	if (asks & VERDICT_CONN)
		e->conn = conn;
	if (frozen.rule_dims & VERDICT_PHYS)
		e->ports_of_bridges = phys;
	if (asks & 1 << SHUNT_V_ICMP)
		e->icmp = icmp;
	if (six) {
		e->addr6[0] = w->src[0];
		e->addr6[1] = w->dst[0];
		e->addr6[2] = w->dst[1];
	}
	w->place = place;
	w->met = w->n;
	return 0;
}

/* Notes the answer of the walk that followed; 1 if it is one to be remembered. */
__attribute__((noinline)) int verdict_remember(struct rule_walk *w, __u64 image, __u32 verdict)
{
	struct shunt_verdict *e;
	__u32 place, n;

	if (!w || !frozen.verdicts)
		return 0;
	place = w->place;
	if (place == NO_PLACE)
		return 0;
	n = w->n - w->met;
	if (w->acts || verdict == RULE_LONG || n > SHUNT_VERDICT_COUNTS) {
		verdict_in_vain(w);
		return 0;
	}
	e = bpf_map_lookup_elem(&verdicts, &place);
	if (!e)
		return 0;
	_Pragma("clang loop unroll(disable)")
	for (__u32 i = 0; i < SHUNT_VERDICT_COUNTS; i++) {
		if (i >= n)
			break;
		e->count[i] = w->count[(w->met + i) & (RULE_COUNTS - 1)];
	}
	e->answer = verdict | n << 8;
	barrier();
	e->image = image >> 32;
	return 1;
}

#endif
