/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* htss: a table of 4096 entries, and one of a single bucket; the larger one also under a lock. Hashes come as they are from the script. */
#include "harness.h"
#include <shunt/htss.h>

SHUNT_HTSS(table, 8)
SHUNT_HTSS(single, 0)

struct shared {
	struct table table;
	struct bpf_spin_lock lock;
};

ONE(struct table, table);
ONE(struct single, single);
ONE(struct shared, shared);

#define DO(NAME, T, S)								\
	({									\
		__u64 out = ~0ULL;						\
		switch ((S)->op & 3) {						\
		case 0: out = (__s64)NAME##_add(T, (S)->a, (S)->arg); break;	\
		case 1: out = (__s64)NAME##_put(T, (S)->a, (S)->arg); break;	\
		case 2: out = NAME##_lookup(T, (S)->a); break;			\
		case 3: out = NAME##_delete(T, (S)->a, (S)->arg); break;	\
		}								\
		out;								\
	})

static __always_inline __u64 htss_step(struct step *s)
{
	struct table *t = THE(table);
	struct single *one = THE(single);

	if (!t || !one)
		return ~0ULL;
	return s->op >> 2 ? DO(single, one, s) : DO(table, t, s);
}

STEPS(htss, htss_step)

/* Writes under the lock, lookups without it. */
static __always_inline __u64 locked_step(struct step *s)
{
	struct shared *t = THE(shared);
	int got = 0;

	if (!t)
		return ~0ULL;
	if (s->op == 2)
		return table_lookup(&t->table, s->a);
	bpf_spin_lock(&t->lock);
	switch (s->op) {
	case 0: got = table_add(&t->table, s->a, s->arg); break;
	case 3: got = table_delete(&t->table, s->a, s->arg); break;
	}
	bpf_spin_unlock(&t->lock);
	return (__s64)got;
}

STEPS(locked, locked_step)
