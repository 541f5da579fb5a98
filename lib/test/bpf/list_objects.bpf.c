/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Lists of kernel objects. */
#define SHUNT_OBJECTS
#include "harness.h"
#include <shunt/list.h>
#include "list.h"

ONE(struct table, table);

static __noinline __u64 alone_step(struct step *s)
{
	struct table *t = THE(table);

	return t ? operate(t, s->op, s->arg, s->a) : 0;
}

STEPS(list_alone, alone_step)
