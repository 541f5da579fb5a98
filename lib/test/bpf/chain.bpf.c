/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* chain: eight lists of 256 handles; which are empty is known by a bitmap, as their owners do it. */
#include "harness.h"
#include <shunt/chain.h>

#define LISTS 8
#define HANDLES 256

struct chains {
	__u64 filled;	/* a bit per list */
	__u32 head[LISTS];
	struct shunt_chain_link link[HANDLES];
};
ONE(struct chains, chains);

static __always_inline __u64 chain_step(struct step *s)
{
	struct chains *c = THE(chains);
	__u32 list = s->arg & (LISTS - 1), handle = s->a & (HANDLES - 1), where;
	__u64 bit;

	if (!c)
		return ~0ULL;
	where = shunt_chain_at(c->link, HANDLES, handle)->where;
	switch (s->op) {
	case 0:
		if (where)
			return where;
		bit = 1ULL << list;
		shunt_chain_append(c->link, HANDLES, &c->head[list], !(c->filled & bit), list, handle);
		c->filled |= bit;
		return 0;
	case 1:
		if (!where)
			return 0;
		list = (where - 1) & (LISTS - 1);
		if (shunt_chain_remove(c->link, HANDLES, &c->head[list], handle))
			c->filled &= ~(1ULL << list);
		return where;
	case 2:
		return c->filled >> list & 1 ? c->head[list] : ~0ULL;
	}
	return ~0ULL;
}

STEPS(chain, chain_step)
