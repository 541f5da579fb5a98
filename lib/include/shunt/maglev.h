/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * maglev: consistent hashing by a table: which of some backends takes this flow? Every backend gets its share to within a few percent,
 * and when one comes or goes few flows of the others move. The hash of Google's Maglev (Eisenbud et al., NSDI 2016), with weights.
 *
 * A program looks up: shunt_maglev(table, 65537, hash) is one multiplication and one load, for any good 64-bit hash of the flow (hash.h).
 * User space fills the table: shunt_maglev_fill() below in C, package lib/maglev in Go, with the same result. Fill a new table and put it
 * in its place as a whole (a map in a map, or two halves and a word that says which), so that no packet sees half of each.
 *
 * The table's size is a prime; shares are even to 1 % if it is 100 times the number of backends. Entries are indexes into the caller's
 * list of backends. They are chosen by the backends' identifiers, not by their order: tables of machines whose lists are ordered
 * differently send a flow to the same backend.
 *
 * Sharing: the table is only read. Cost: 3 ns; 2 bytes per entry, one cache line per lookup. Any kernel.
 */
#ifndef SHUNT_LIB_MAGLEV_H
#define SHUNT_LIB_MAGLEV_H

#include "def.h"
#include "hash.h"

/* Every entry of a table without backends. */
#define SHUNT_MAGLEV_NONE 0xffff

/* The index of the backend for a hash. The size, at most 2^24, has to be constant after inlining. */
SHUNT_FN __u16 shunt_maglev(const __u16 *table, __u32 size, __u64 hash)
{
	/* The upper half scaled to the size: no division, and other bits than tables of powers of two use. */
	__u64 at = (hash >> 32) * size >> 32;

	SHUNT_CHECK(size >= 3 && size <= 1 << 24, "a table has 3 to 2^24 entries, known when it is compiled");
	SHUNT_HIDE(at);	/* the compiler knows that it is below, the verifier does not */
	return at < size ? table[at] : SHUNT_MAGLEV_NONE;
}

#ifndef __bpf__
#include <stdlib.h>

enum {
	SHUNT_MAGLEV_SIZE = -1,		/* the size is no prime from 3 to 2^24 */
	SHUNT_MAGLEV_MANY = -2,		/* more backends than entries, or more than 65534 */
	SHUNT_MAGLEV_TWICE = -3,	/* two backends have one identifier */
	SHUNT_MAGLEV_MEMORY = -4,
};

/* A backend; weight 0 takes nothing. The identifier has to stay the same for ever: a hash of its name. */
struct shunt_maglev_backend {
	__u64 id;
	__u32 weight;
};

struct shunt_maglev_turn {
	__u64 id, credit;
	__u32 weight, skip, at, index;
};

static inline int shunt_maglev_by_id(const void *a, const void *b)
{
	__u64 x = ((const struct shunt_maglev_turn *)a)->id, y = ((const struct shunt_maglev_turn *)b)->id;

	return (x > y) - (x < y);
}

/*
 * Fill a table for n backends: 0, or one of the errors above, and then the table is as it was. Each backend walks over the table on a
 * way of its own; in turns, each takes the next entry of its way that is free. One of half the greatest weight has every other turn.
 */
static inline int shunt_maglev_fill(__u16 *table, __u32 size, const struct shunt_maglev_backend *backends, __u32 n)
{
	struct shunt_maglev_turn *turns;
	__u32 i, left = size;
	__u64 most = 0;

	if (size < 3 || size > 1 << 24)
		return SHUNT_MAGLEV_SIZE;
	for (i = 2; i * i <= size; i++)
		if (size % i == 0)
			return SHUNT_MAGLEV_SIZE;
	if (n > size || n >= SHUNT_MAGLEV_NONE)
		return SHUNT_MAGLEV_MANY;
	turns = malloc((n + 1) * sizeof(*turns));
	if (!turns)
		return SHUNT_MAGLEV_MEMORY;
	for (i = 0; i < n; i++) {
		turns[i] = (struct shunt_maglev_turn){
			.id = backends[i].id, .weight = backends[i].weight, .index = i,
			.at = shunt_hash_u64(backends[i].id, 1) % size,
			.skip = shunt_hash_u64(backends[i].id, 2) % (size - 1) + 1,
		};
		if (backends[i].weight > most)
			most = backends[i].weight;
	}
	qsort(turns, n, sizeof(*turns), shunt_maglev_by_id);
	for (i = 1; i < n; i++)
		if (turns[i].id == turns[i - 1].id) {
			free(turns);
			return SHUNT_MAGLEV_TWICE;
		}
	for (i = 0; i < size; i++)
		table[i] = SHUNT_MAGLEV_NONE;
	while (most && left)
		for (i = 0; i < n && left; i++) {
			struct shunt_maglev_turn *t = &turns[i];

			t->credit += t->weight;
			if (t->credit < most)
				continue;
			t->credit -= most;
			while (table[t->at] != SHUNT_MAGLEV_NONE)
				t->at = (t->at + t->skip) % size;
			table[t->at] = t->index;
			left--;
		}
	free(turns);
	return 0;
}
#endif

#endif
