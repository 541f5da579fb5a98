/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Trees in an arena. */
#define SHUNT_ARENA
#include "harness.h"
#include "arena.h"
#include <shunt/tree.h>
#include "tree.h"

static __noinline __u64 alone_step(struct step *s)
{
	struct table SHUNT_MEM *t = (struct table SHUNT_MEM *)ARENA_BASE;

	SHUNT_ARENA_HERE(arena);
	t->other.id = 1;
	return operate(t, s->op, s->a, &s->b);
}

STEPS(tree_alone, alone_step)
