/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* maglev: looks a hash up in tables that user space filled. */
#include "harness.h"
#include <shunt/maglev.h>

struct tables {
	__u16 small[251];
	__u16 large[65537];
};
ONE(struct tables, tables);

static __always_inline __u64 maglev_step(struct step *s)
{
	struct tables *t = THE(tables);

	if (!t)
		return ~0ULL;
	return s->op ? shunt_maglev(t->large, 65537, s->a) : shunt_maglev(t->small, 251, s->a);
}

STEPS(maglev, maglev_step)
