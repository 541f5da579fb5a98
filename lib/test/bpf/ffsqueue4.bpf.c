/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ffsqueue: the largest, which takes 140 MB; the operations are those of ffsqueue.bpf.c. */
#include "harness.h"
#include <shunt/ffsqueue.h>

SHUNT_FFSQ(four, 4, 1024)
ONE(struct four, four);

static __always_inline __u64 four_step(struct step *s)
{
	struct four *q = THE(four);
	__u64 priority = 0;
	int got;

	if (!q)
		return ~0ULL;
	switch (s->op & 7) {
	case 0: return (__s64)four_push(q, s->arg, s->a);
	case 1: got = four_pop(q, &priority); break;
	case 2: got = four_peek(q, &priority); break;
	case 3: return (__s64)four_remove(q, s->arg);
	case 4: return q->q.above << 32 | (__u32)q->q.below;
	default: return ~0ULL;
	}
	return got < 0 ? (__u64)(__s64)got : (__u64)got << 40 | (priority & 0xffffffffffULL);
}

STEPS(ffsqueue4, four_step)
