/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rand: the generator, draws and the sampler. */
#include "harness.h"
#include <shunt/rand.h>

ONE(struct shunt_geo, geo);
ONE(struct shunt_sampler, sampler);

static __always_inline __u64 rand_step(struct step *s)
{
	struct shunt_sampler *one = THE(sampler);
	struct shunt_geo *table = THE(geo);

	if (!one || !table)
		return ~0ULL;
	switch (s->op) {
	case 0: return shunt_rand64(&s->a);
	case 1: return shunt_rand_below(&s->a, s->arg);
	case 2: return shunt_geo_draw(table, &s->a);
	case 3: return shunt_sample(one, table);
	}
	return ~0ULL;
}

STEPS(rand_steps, rand_step)
