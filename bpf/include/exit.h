/* SPDX-License-Identifier: GPL-2.0 */
/* The ways out: every one counts itself under its reason, and tells `explain` when it listens. */
#ifndef SHUNT_EXIT_H
#define SHUNT_EXIT_H

#include "rest.h"

always_inline void count(struct packet *p, __u32 reason, __u64 bytes)
{
	struct shunt_count *c = counter(p, reason);

	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

/* Every packet that is looked at passes here once, with the reason that it leaves by. egress is 0 unless it is forwarded. */
always_inline void leave(struct packet *p, __u32 reason, __u32 egress)
{
	count(p, reason, ctx_len(p->ctx));
	trace(p->ctx, reason, egress);
	if (reason != SHUNT_R_FAST && reason != SHUNT_R_RULE_DROP)
		went_slow();
}

#endif
