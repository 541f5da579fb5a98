/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* nitro: five rows of 4096 columns; the table and the step come from the test. */
#include "harness.h"
#include <shunt/nitro.h>

#define ROWS 5
#define LOG2COLS 12

struct sketch { __s32 counter[ROWS << LOG2COLS]; };
ONE(struct sketch, sketch);
ONE(struct shunt_geo, geo);
ONE(struct shunt_nitro, nitro);

static __always_inline __u64 nitro_step(struct step *s)
{
	struct sketch *k = THE(sketch);
	struct shunt_geo *table = THE(geo);
	struct shunt_nitro *n = THE(nitro);

	if (!k || !table || !n)
		return ~0ULL;
	switch (s->op) {
	case 0:
		if (!shunt_nitro_takes(n, ROWS))
			return 0;
		shunt_nitro_update(n, table, k->counter, ROWS, LOG2COLS, shunt_hash_u64(s->a, 3));
		return 1;
	case 1:
		return (__u32)shunt_nitro_get(k->counter, ROWS, LOG2COLS, shunt_hash_u64(s->a, 3));
	case 2: /* of four rows, whose median is a mean */
		return (__u32)shunt_nitro_get(k->counter, 4, LOG2COLS, shunt_hash_u64(s->a, 3));
	}
	return ~0ULL;
}

STEPS(nitro_steps, nitro_step)
