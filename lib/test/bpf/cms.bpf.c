/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cms: a sketch as people use it, and one so small that its counters are soon full. */
#include "harness.h"
#include <shunt/cms.h>

struct usual { __u32 counter[SHUNT_CMS_COUNTERS(4, 10)]; };
struct careful { __u32 counter[SHUNT_CMS_COUNTERS(4, 10)]; };
struct tiny { __u32 counter[SHUNT_CMS_COUNTERS(8, 2)]; };
ONE(struct usual, usual);
ONE(struct careful, careful);
ONE(struct tiny, tiny);

static __always_inline __u64 cms_step(struct step *s)
{
	struct usual *u = THE(usual);
	struct careful *c = THE(careful);
	struct tiny *t = THE(tiny);
	__u64 hash = shunt_hash_u64(s->a, 7);

	if (!u || !c || !t)
		return ~0ULL;
	switch (s->op) {
	case 0: shunt_cms_add(u->counter, 4, 10, hash, s->arg); return 0;
	case 1: return shunt_cms_get(u->counter, 4, 10, hash);
	case 2: return shunt_cms_add_conservative(c->counter, 4, 10, hash, s->arg);
	case 3: return shunt_cms_get(c->counter, 4, 10, hash);
	case 4: shunt_cms_add(t->counter, 8, 2, hash, s->arg); return 0;
	case 5: return shunt_cms_get(t->counter, 8, 2, hash);
	}
	return ~0ULL;
}

STEPS(cms_steps, cms_step)
