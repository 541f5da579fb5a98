/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Lists in a map's value: alone, and shared by two CPUs under a lock. */
#include "harness.h"
#include <shunt/list.h>
#include "list.h"

struct shared {
	struct table table;
	struct bpf_spin_lock lock;
};

ONE(struct table, table);
ONE(struct shared, shared);

static __noinline __u64 alone_step(struct step *s)
{
	struct table *t = THE(table);

	if (!t)
		return 0;
	t->other.id = 1;
	return operate(t, s->op, s->arg, s->a);
}

static __noinline __u64 shared_step(struct step *s)
{
	struct shared *t = THE(shared);
	struct step copy = *s;
	__u64 out;

	if (!t)
		return 0;
	bpf_spin_lock(&t->lock);
	t->table.other.id = 1;
	out = operate(&t->table, copy.op, copy.arg, copy.a);
	bpf_spin_unlock(&t->lock);
	return out;
}

STEPS(list_alone, alone_step)
STEPS(list_shared, shared_step)
