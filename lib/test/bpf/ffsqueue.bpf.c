/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ffsqueue: queues of one, two and three levels; the one of two levels also under a lock. */
#include "harness.h"
#include <shunt/ffsqueue.h>

SHUNT_FFSQ(one, 1, 64)
SHUNT_FFSQ(two, 2, 1024)
SHUNT_FFSQ(three, 3, 4096)

struct shared {
	struct two queue;
	struct bpf_spin_lock lock;
};

ONE(struct one, one);
ONE(struct two, two);
ONE(struct three, three);
ONE(struct shared, shared);

/* What pop and peek found: the handle above, the lower half of the priority below; or the error alone. */
static __always_inline __u64 found(int handle, __u64 priority)
{
	return handle < 0 ? (__u64)(__s64)handle : (__u64)handle << 40 | (priority & 0xffffffffffULL);
}

#define DO(NAME, Q, S)										\
	({											\
		__u64 priority = 0, out = ~0ULL;						\
		int got;									\
		switch ((S)->op & 7) {								\
		case 0: out = (__s64)NAME##_push(Q, (S)->arg, (S)->a); break;			\
		case 1: got = NAME##_pop(Q, &priority); out = found(got, priority); break;	\
		case 2: got = NAME##_peek(Q, &priority); out = found(got, priority); break;	\
		case 3: out = (__s64)NAME##_remove(Q, (S)->arg); break;				\
		case 4: out = (Q)->q.above << 32 | (__u32)(Q)->q.below; break;			\
		}										\
		out;										\
	})

static __always_inline __u64 queue_step(struct step *s)
{
	struct one *a = THE(one);
	struct two *b = THE(two);
	struct three *c = THE(three);

	if (!a || !b || !c)
		return ~0ULL;
	switch (s->op >> 3) {
	case 1: return DO(one, a, s);
	case 2: return DO(two, b, s);
	case 3: return DO(three, c, s);
	}
	return ~0ULL;
}

STEPS(ffsqueue, queue_step)

static __always_inline __u64 locked_step(struct step *s)
{
	struct shared *q = THE(shared);
	__u64 priority = 0;
	int got = 0;

	if (!q)
		return ~0ULL;
	bpf_spin_lock(&q->lock);
	switch (s->op) {
	case 0: got = two_push(&q->queue, s->arg, s->a); break;
	case 1: got = two_pop(&q->queue, &priority); break;
	case 3: got = two_remove(&q->queue, s->arg); break;
	}
	bpf_spin_unlock(&q->lock);
	s->b = priority;
	return (__s64)got;
}

STEPS(locked, locked_step)
