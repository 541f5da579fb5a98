/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The entries that a packet satisfies, found by trees: what rule_next() does by rows of bits, where an image has many entries.
 *
 * Problem: a row has a bit for each rule, so that with ten thousand of them each packet reads through kilobytes that no cache has.
 * Mechanism: entries are sorted into few trees by how closely they name addresses. A node cuts the values of one field into equal parts; a leaf has,
 * in their order, the few entries that a packet can still satisfy, each beside what it asks. What everyone satisfies is in no leaf:
 * for each entry an array has the next such one. internal/rules/image/tree.go makes them; the layout is described there.
 * Invariant: every packet finds the same entries in the same order as by rows.
 */
#ifndef SHUNT_NODE_RULE_TREE_H
#define SHUNT_NODE_RULE_TREE_H

#define RULE_TREE	96	/* offset of what an image says of its trees in the header */
#define RULE_TREES	4
#define RULE_LEVELS	12	/* of nodes above a leaf, at most */
#define RULE_LOOKS	16	/* records that one step looks at */
#define RULE_LEAF	32	/* size of a leaf's record */
#define RULE_ANEW	(~0U)

#define LEAF_PORTS	1	/* of a record: it asks for ports, which a packet may lack, */
#define LEAF_DEVICES	2	/* and for devices: what it says of them has the number above */

#define RULE_BY_TREE (frozen.rule_dims & SHUNT_RULES_TREE)

/* Find the packet's leaf in each tree; 0 if there is one. */
always_inline int rule_descend(struct rule_walk *w)
{
	__u32 base = w->base;

	w->nexts = base + rule4(base + RULE_TREE + 4);
	w->devices = base + rule4(base + RULE_TREE + 8);
	w->turn = RULE_ANEW;
	w->past_from = 0;
	_Pragma("clang loop unroll(disable)")
	for (__u32 t = 0; t < RULE_TREES; t++) {
		__u32 at = rule4(base + RULE_TREE + 16 + t * 4);

		if (t >= w->trees)
			break;
		_Pragma("clang loop unroll(disable)")
		for (int level = 0; level < RULE_LEVELS; level++) {
			__u64 node;
			__u32 part, parts;

			if (!(at & RULE_INNER))
				break;
			at = base + (at & ~RULE_INNER);
			node = rule8(at);
			parts = node >> 48;
			part = (w->value[node >> 40 & 31] - (__u32)node) >> (node >> 32 & 31);
			at = rule4(at + 8 + 4 * (part < parts ? part : parts));
		}
		if (at & RULE_INNER)
			return 1;
		w->leaf[t] = w->first[t] = base + at;
	}
	return 0;
}

/* 0 if the packet is in all of a record's ranges: what a range spans, less how far behind its beginning a value is, is negative where it is outside. */
always_inline __u64 leaf_differs(struct rule_walk *w, __u32 at, __u64 last)
{
	__u64 of, out;

	out = (last >> 8 & 0xff) - (__u8)(w->value[SHUNT_V_PROTO] - last);
	of = rule8(at);
	out |= (of >> 32) - (__u32)(w->value[SHUNT_V_SRC] - (__u32)of);
	of = rule8(at + 8);
	out |= (of >> 32) - (__u32)(w->value[SHUNT_V_DST] - (__u32)of);
	if (frozen.rule_dims & (1 << SHUNT_D_SPORT | 1 << SHUNT_D_DPORT)) {
		of = rule8(at + 16);
		out |= (of >> 48) - (__u16)(w->value[SHUNT_V_DPORT] - (of >> 32));
		out |= (of >> 16 & 0xffff) - (__u16)(w->value[SHUNT_V_SPORT] - of);
		out |= (__u64)(w->value[SHUNT_V_SPORT] >> 16 & last >> 16 & LEAF_PORTS) << 63;
	}
	out >>= 63;
	if ((frozen.rule_dims & (1 << SHUNT_D_IIF | 1 << SHUNT_D_OIF)) && (last >> 16 & LEAF_DEVICES)) {
		of = rule8(w->devices + (last >> 32 & 0xffff) * 8);
		if (frozen.rule_dims & 1 << SHUNT_D_IIF)
			out |= !(of & w->row[SHUNT_D_IIF]);
		if (frozen.rule_dims & 1 << SHUNT_D_OIF)
			out |= !(of >> 32 & w->row[SHUNT_D_OIF]);
	}
	return out;
}

/* As rule_next(). The smallest of what the trees have and what everyone satisfies. */
always_inline int rule_by_tree(struct rule_walk *w)
{
	if (w->turn == RULE_ANEW) {
		w->turn = 0;
		w->best = rule4(w->nexts + 4 * w->from);
		if (w->from < w->past_from) {
			w->leaf[0] = w->first[0];
			w->leaf[1] = w->first[1];
			w->leaf[2] = w->first[2];
			w->leaf[3] = w->first[3];
		}
		w->past_from = w->from;
	}
	_Pragma("clang loop unroll(disable)")
	for (int i = 0; i < RULE_LOOKS; i++) {
		__u32 turn = w->turn, at, entry;
		__u64 last;

		if (turn >= w->trees) {
			w->record = w->records + w->best * RULE_RECORD;
			w->from = w->best + 1;
			w->turn = RULE_ANEW;
			return 1;
		}
		at = w->leaf[turn & (RULE_TREES - 1)];
		last = rule8(at + 24);
		entry = last >> 48;
		if (entry >= w->best) {
			w->turn = turn + 1;
		} else if (entry < w->from || leaf_differs(w, at, last)) {
			w->leaf[turn & (RULE_TREES - 1)] = at + RULE_LEAF;
		} else {
			w->best = entry;
			w->turn = turn + 1;
		}
	}
	return 0;
}

#endif
