/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* hkeeper and topk, each alone and as people use them together. */
#include "harness.h"
#include <shunt/hkeeper.h>
#include <shunt/topk.h>

#define ROWS 2
#define LOG2SLOTS 10

struct key { __u64 a, b; };
SHUNT_TOPK(heaviest, struct key, 64)
SHUNT_TOPK(few, struct key, 16)

struct keeper {
	struct shunt_hk_slot slot[ROWS << LOG2SLOTS];
	__u64 state;
};
ONE(struct keeper, keeper);
ONE(struct heaviest, heaviest);
ONE(struct few, few);

static __always_inline __u64 keeper_step(struct step *s)
{
	struct keeper *k = THE(keeper);
	struct heaviest *top = THE(heaviest);
	struct few *f = THE(few);
	struct key key = { s->a, s->b };
	__u64 hash = shunt_hash64(&key, sizeof(key), 11);
	__u32 count;

	if (!k || !top || !f)
		return ~0ULL;
	switch (s->op) {
	case 0:
		count = shunt_hk_add(k->slot, ROWS, LOG2SLOTS, &k->state, hash);
		heaviest_offer(top, &key, hash, count);
		return count;
	case 1: return shunt_hk_get(k->slot, ROWS, LOG2SLOTS, hash);
	case 2: return few_offer(f, &key, s->arg & 0x80000000 ? 1ULL << 48 : hash, s->arg & 0x7fffffff); /* all with one fingerprint, or not */
	}
	return ~0ULL;
}

STEPS(keeper_steps, keeper_step)
