/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* chain: eight lists of 256 handles; which are empty is known by a bitmap, as their owners do it. */
#include "harness.h"
#include <shunt/chain.h>

#define LISTS 8
#define HANDLES 256

struct chains {
	__u64 filled;	/* a bit per list */
	SHUNT_CHAIN(link, HANDLES, LISTS);
};
ONE(struct chains, chains);

static __always_inline __u64 chain_step(struct step *s)
{
	struct chains *c = THE(chains);
	__u32 list = s->arg & (LISTS - 1), handle = s->a & (HANDLES - 1);
	int in;

	if (!c)
		return ~0ULL;
	in = shunt_chain_in(c->link, HANDLES, LISTS, handle);
	switch (s->op) {
	case 0:
		if (in)
			return 1;
		shunt_chain_append(c->link, HANDLES, LISTS, list, handle);
		c->filled |= 1ULL << list;
		return 0;
	case 1:
		if (!in)
			return 0;
		if (!shunt_chain_remove(c->link, HANDLES, LISTS, handle, &list))
			return 1;
		c->filled &= ~(1ULL << list);
		return 2 + list;
	case 2:
		return c->filled >> list & 1 ? shunt_chain_first(c->link, HANDLES, LISTS, list) : ~0ULL;
	}
	return ~0ULL;
}

STEPS(chain, chain_step)
