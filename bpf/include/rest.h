/* SPDX-License-Identifier: GPL-2.0 */
/*
 * rest: a port where nothing can be won.
 *
 * Problem: a packet that Linux has to treat anyway pays for finding that out, and on some ports that is every packet.
 * Mechanism: after SHUNT_REST_AFTER packets in a row that went to Linux, on one CPU, the next go there without being looked at, but for one in
 * SHUNT_REST_PROBE. When the fast path decided one the rest is over. Such a packet has nothing to do for this: that some were is seen by their counters.
 * Invariant: a packet that is not looked at goes to Linux. `explain` always looks.
 *
 * The generic program has no rest: it serves a port for milliseconds.
 */
#ifndef SHUNT_REST_H
#define SHUNT_REST_H

#include "port.h"

#define SHUNT_REST_AFTER	4096
#define SHUNT_REST_PROBE	16	/* a power of two */

#ifdef SHUNT_GENERIC

always_inline int resting(ctx_t *ctx)
{
	return 0;
}

always_inline void went_slow(void) {}

#else

/* Beside the counters: packets are those in a row, bytes what the fast path had decided when it began. */
always_inline struct shunt_count *row(void)
{
	__u32 behind = SHUNT_R_COUNT;

	return bpf_map_lookup_elem(&stats, &behind);
}

/* Begins anew where the fast path decided packets meanwhile. */
always_inline void renew(struct shunt_count *in_row)
{
	__u32 fast = SHUNT_R_FAST, drop = SHUNT_R_RULE_DROP;
	struct shunt_count *forwarded = bpf_map_lookup_elem(&stats, &fast), *dropped = bpf_map_lookup_elem(&stats, &drop);
	__u64 decided;

	if (!forwarded || !dropped)
		return;
	decided = forwarded->packets + dropped->packets;
	if (in_row->bytes != decided) {
		in_row->bytes = decided;
		in_row->packets = 0;
	}
}

always_inline int resting(ctx_t *ctx)
{
	struct shunt_count *in_row = row();

	if (!in_row || in_row->packets < SHUNT_REST_AFTER || traced(ctx))
		return 0;
	if (++in_row->packets & (SHUNT_REST_PROBE - 1))
		return 1;
	renew(in_row);
	return 0;
}

always_inline void went_slow(void)
{
	struct shunt_count *in_row = row();

	if (!in_row || in_row->packets >= SHUNT_REST_AFTER)
		return;
	renew(in_row);
	in_row->packets++;
}

#endif
#endif
