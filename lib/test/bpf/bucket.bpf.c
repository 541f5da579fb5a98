/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* List buckets alone, and some that two CPUs share under a lock. */
#include "harness.h"
#include <shunt/bucket.h>

#define LISTS 64
#define NODES 1024

SHUNT_BUCKETS(wheel, LISTS, NODES);

struct shared {
	struct wheel wheel;
	struct bpf_spin_lock lock;
};

ONE(struct wheel, wheel);
ONE(struct shared, shared);

static __always_inline __u64 operate(struct wheel *w, struct step *s)
{
	struct shunt_buckets *b = &w->head;
	__u64 value = ~0ULL;

	switch (s->op) {
	case 0:
		return shunt_bucket_push(b, LISTS, NODES, s->arg, s->a);
	case 1:
		s->b = shunt_bucket_pop(b, LISTS, NODES, s->arg, &value);
		return s->b ? s->b : value;
	case 2:
		s->b = shunt_bucket_peek(b, LISTS, NODES, s->arg, &value);
		return s->b ? s->b : value;
	case 3:
		return shunt_bucket_empty(b, LISTS, s->arg);
	case 4:
		shunt_bucket_splice(b, LISTS, NODES, s->arg, s->a);
		return 0;
	}
	return ~0ULL;
}

static __noinline __u64 alone_step(struct step *s)
{
	struct wheel *w = THE(wheel);

	return w ? operate(w, s) : 0;
}

static __noinline __u64 shared_step(struct step *s)
{
	struct shared *w = THE(shared);
	struct step copy = *s;
	__u64 out;

	if (!w)
		return 0;
	bpf_spin_lock(&w->lock);
	out = operate(&w->wheel, &copy);
	bpf_spin_unlock(&w->lock);
	return out;
}

STEPS(bucket_alone, alone_step)
STEPS(bucket_shared, shared_step)
