/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cuckoofilter: a filter of 4096 places, and one of a single bucket; the larger one also under a lock. */
#include "harness.h"
#include <shunt/cuckoofilter.h>

SHUNT_CUCKOOFILTER(filter, 10)
SHUNT_CUCKOOFILTER(single, 0)

struct shared {
	struct filter filter;
	struct bpf_spin_lock lock;
};

ONE(struct filter, filter);
ONE(struct single, single);
ONE(struct shared, shared);

#define DO(NAME, F, S)								\
	({									\
		__u64 out = ~0ULL;						\
		switch ((S)->op & 3) {						\
		case 0: out = (__s64)NAME##_insert(F, (S)->a); break;		\
		case 1: out = NAME##_lookup(F, (S)->a); break;			\
		case 2: out = NAME##_delete(F, (S)->a); break;			\
		case 3: out = (F)->f.count; break;				\
		}								\
		out;								\
	})

static __always_inline __u64 filter_step(struct step *s)
{
	struct filter *f = THE(filter);
	struct single *one = THE(single);

	if (!f || !one)
		return ~0ULL;
	return s->op >> 2 ? DO(single, one, s) : DO(filter, f, s);
}

STEPS(cuckoofilter, filter_step)

static __always_inline __u64 locked_step(struct step *s)
{
	struct shared *f = THE(shared);
	int got = 0;

	if (!f)
		return ~0ULL;
	bpf_spin_lock(&f->lock);
	switch (s->op) {
	case 0: got = filter_insert(&f->filter, s->a); break;
	case 1: got = filter_lookup(&f->filter, s->a); break;
	case 2: got = filter_delete(&f->filter, s->a); break;
	}
	bpf_spin_unlock(&f->lock);
	return (__s64)got;
}

STEPS(locked, locked_step)
