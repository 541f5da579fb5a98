/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Sketches that each CPU has for itself, to be added up by user space; and one count-min sketch that all have, under a lock. */
#include "harness.h"
#include <shunt/cms.h>
#include <shunt/hkeeper.h>
#include <shunt/nitro.h>
#include <shunt/topk.h>

#define EACH(TYPE, NAME)					\
	struct {						\
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);	\
		__uint(max_entries, 1);				\
		__type(key, __u32);				\
		__type(value, TYPE);				\
	} NAME SEC(".maps")

struct counts { __u32 counter[SHUNT_CMS_COUNTERS(4, 10)]; };
struct shared_counts {
	struct counts c;
	struct bpf_spin_lock lock;
};

struct key { __u64 a, b; };
SHUNT_TOPK(heaviest, struct key, 64)
struct keeper {
	__u64 state;
	struct shunt_hk_slot slot[2 << 10];
	struct heaviest top;
};

struct sampled {
	struct shunt_nitro nitro;
	__s32 counter[5 << 10];
};

EACH(struct counts, usual);
EACH(struct counts, careful);
EACH(struct keeper, keeper);
EACH(struct sampled, sampled);
ONE(struct shared_counts, shared);
ONE(struct shunt_geo, geo);

static __always_inline __u64 percpu_step(struct step *s)
{
	struct counts *u = THE(usual), *c = THE(careful);
	struct shared_counts *all = THE(shared);
	struct keeper *k = THE(keeper);
	struct sampled *n = THE(sampled);
	struct shunt_geo *table = THE(geo);
	struct key key = { s->a, s->b };
	__u64 hash = shunt_hash64(&key, sizeof(key), 11);
	__u32 count, more = s->arg;

	if (!u || !c || !all || !k || !n || !table)
		return ~0ULL;
	switch (s->op) {
	case 0: shunt_cms_add(u->counter, 4, 10, hash, more); return 0;
	case 1: return shunt_cms_add_conservative(c->counter, 4, 10, hash, more);
	case 2:
		bpf_spin_lock(&all->lock);
		shunt_cms_add(all->c.counter, 4, 10, hash, more);
		bpf_spin_unlock(&all->lock);
		return 0;
	case 3:
		count = shunt_hk_add(k->slot, 2, 10, &k->state, hash);
		heaviest_offer(&k->top, &key, hash, count);
		return count;
	case 4:
		if (!shunt_nitro_takes(&n->nitro, 5))
			return 0;
		shunt_nitro_update(&n->nitro, table, n->counter, 5, 10, hash);
		return 1;
	}
	return ~0ULL;
}

STEPS(percpu, percpu_step)
