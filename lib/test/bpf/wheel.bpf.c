/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* wheel: the smallest, one in between and the largest; the one in between also under a lock. */
#include "harness.h"
#include <shunt/wheel.h>

SHUNT_WHEEL(small, 6, 10, 64)
SHUNT_WHEEL(middle, 9, 0, 1024)
SHUNT_WHEEL(large, 12, 14, 4096)

struct shared {
	struct middle wheel;
	struct bpf_spin_lock lock;
};

ONE(struct small, small);
ONE(struct middle, middle);
ONE(struct large, large);
ONE(struct shared, shared);

#define DO(NAME, W, S)										\
	({											\
		__u64 when = 0, out = ~0ULL;							\
		switch ((S)->op & 7) {								\
		case 0: out = (__s64)NAME##_add(W, (S)->arg, (S)->a, (S)->b); break;		\
		case 1: out = (__s64)NAME##_next(W, (S)->b, &when); (S)->a = when; break;	\
		case 2: out = (__s64)NAME##_cancel(W, (S)->arg); break;				\
		case 3: out = (W)->w.beyond; break;						\
		}										\
		out;										\
	})

static __always_inline __u64 wheel_step(struct step *s)
{
	struct small *a = THE(small);
	struct middle *b = THE(middle);
	struct large *c = THE(large);

	if (!a || !b || !c)
		return ~0ULL;
	switch (s->op >> 3) {
	case 1: return DO(small, a, s);
	case 2: return DO(middle, b, s);
	case 3: return DO(large, c, s);
	}
	return ~0ULL;
}

STEPS(wheel, wheel_step)

static __always_inline __u64 locked_step(struct step *s)
{
	struct shared *w = THE(shared);
	__u64 when = 0;
	int got = 0;

	if (!w)
		return ~0ULL;
	bpf_spin_lock(&w->lock);
	switch (s->op) {
	case 0: got = middle_add(&w->wheel, s->arg, s->a, s->b); break;
	case 1: got = middle_next(&w->wheel, s->b, &when); break;
	case 2: got = middle_cancel(&w->wheel, s->arg); break;
	}
	bpf_spin_unlock(&w->lock);
	return (__s64)got;
}

STEPS(locked, locked_step)
