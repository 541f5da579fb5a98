/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Trees of kernel objects, searched. */
#define SHUNT_OBJECTS
#define SHUNT_OBJECTS_SEARCH
#include "harness.h"
#include <shunt/tree.h>
#include "tree.h"

ONE(struct table, table);

static __noinline __u64 alone_step(struct step *s)
{
	struct table *t = THE(table);

	return t ? operate(t, s->op, s->a, &s->b) : 0;
}

STEPS(tree_alone, alone_step)
