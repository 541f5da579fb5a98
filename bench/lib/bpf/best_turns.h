/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The turns of structures.h on the best plain way's structures. */
#ifndef BENCH_LIB_BEST_TURNS_H
#define BENCH_LIB_BEST_TURNS_H

#include "best_structures.h"
#include "elements.h"

#define bench_skip best_skip
#define bench_queue best_line
#define bench_wheel best_line
#define bench_table best_table
#define bench_htss best_htss
#define bench_heavy best_heavy

SHUNT_FN int bench_skip_fill(struct best_skip *s, __u32 i) { return best_skip_set(s, bench_key_of(i), i + 1) >= 0; }
SHUNT_FN __u64 bench_skip_update(struct best_skip *s, __u32 i) { return best_skip_set(s, bench_key_of(i), i + 1) >= 0 ? i + 1 : 0; }

SHUNT_FN __u64 bench_skip_get(struct best_skip *s, __u32 i)
{
	__u32 at = best_skip_find(s, bench_key_of(i));

	return at ? s->value[at] : 0;
}

SHUNT_FN int bench_queue_fill(struct best_line *q, __u32 i, __u64 x)
{
	best_queue_push(q, i, x & 4095);
	return 1;
}

SHUNT_FN __u64 bench_queue_turn(struct best_line *q, __u64 x)
{
	__u64 priority = 0;
	int handle = best_queue_pop(q, &priority);

	if (handle < 0)
		return 0;
	best_queue_push(q, handle, priority + (x & 4095));
	return handle + 1;
}

SHUNT_FN int bench_wheel_fill(struct best_line *w, __u32 i, __u64 x)
{
	best_wheel_add(w, i, x & 0x3ffffff, 0);
	return 1;
}

SHUNT_FN __u64 bench_wheel_turn(struct best_line *w, __u64 x, __u64 *now)
{
	__u64 when = 0;
	int handle = best_wheel_next(w, *now, &when);

	if (handle < 0) {
		*now = when;
		handle = best_wheel_next(w, *now, &when);
	}
	if (handle < 0)
		return 0;
	best_wheel_add(w, handle, *now + (x & 0x3ffffff), *now);
	return handle + 1;
}

SHUNT_FN __u64 bench_table_get(struct best_table *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);
	__u64 *value = best_table_lookup(t, (__u64 *)&key);

	return value ? *value : 0;
}

SHUNT_FN int bench_table_fill(struct best_table *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return best_table_set(t, (__u64 *)&key, i + 1) == 1;
}

SHUNT_FN __u64 bench_htss_get(struct best_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return best_htss_lookup(t, (__u64 *)&key);
}

SHUNT_FN int bench_htss_fill(struct best_htss *t, __u32 i)
{
	struct bench_key key = bench_flow_of(i);

	return best_htss_add(t, (__u64 *)&key, BENCH_SET(i));
}

SHUNT_FN __u64 bench_heavy_add(struct best_heavy *h, __u32 i)
{
	struct bench_key key = bench_flow_of(bench_skewed(i));

	best_heavy_add(h, (__u64 *)&key);
	return 1;
}

SHUNT_FN __u32 bench_heavy_count(struct best_heavy *h, __u32 i, __u32 step)
{
	struct bench_key key = bench_flow_of(i);
	__u64 *k = (__u64 *)&key;

	step &= 2047;
	return h->key[step].word[0] == k[0] && h->key[step].word[1] == k[1] ? h->seen[step].count : 0;
}
#define BENCH_HEAVY_STEPS 2048

#endif
