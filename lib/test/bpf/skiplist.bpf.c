/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* A skip list alone, and one that two CPUs share under a lock. */
#include "harness.h"
#include <shunt/skiplist.h>

#define NODES 4096

SHUNT_SKIPLIST(table, NODES);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct table);
} table SEC(".maps");

struct shared {
	struct table table;
	struct bpf_spin_lock lock;
};

ONE(struct shared, shared);

static __always_inline __u64 operate(struct table *t, struct step *s)
{
	struct shunt_skip *list = &t->head;
	__u64 value = ~0ULL;
	__u32 ref;
	int err;

	switch (s->op) {
	case 0:
		err = shunt_skip_get(list, NODES, s->a, &value);
		return err ? err : value;
	case 1:
		return shunt_skip_set(list, NODES, s->a, s->b);
	case 2:
		return shunt_skip_delete(list, NODES, s->a);
	case 3: /* the first key from a on, with the one after it */
		ref = shunt_skip_lower(list, NODES, s->a);
		if (!ref)
			return ~0ULL;
		value = shunt_skip_at(list, NODES, ref)->key;
		ref = shunt_skip_next(list, NODES, ref);
		s->b = ref ? shunt_skip_at(list, NODES, ref)->key : 0;
		return value;
	case 4: /* the sum of the first keys, in order */
		ref = 0;
		value = 0;
		for (int i = 0; i < 64; i++) {
			ref = shunt_skip_next(list, NODES, ref);
			if (!ref)
				break;
			value = value * 3 + shunt_skip_at(list, NODES, ref)->key;
		}
		return value;
	}
	return ~0ULL;
}

static __noinline __u64 alone_step(struct step *s)
{
	struct table *t = THE(table);

	return t ? operate(t, s) : 0;
}

static __noinline __u64 shared_step(struct step *s)
{
	struct shared *t = THE(shared);
	struct step copy = *s;
	__u64 out;

	if (!t)
		return 0;
	bpf_spin_lock(&t->lock);
	out = operate(&t->table, &copy);
	bpf_spin_unlock(&t->lock);
	return out;
}

STEPS(skip_alone, alone_step)
STEPS(skip_shared, shared_step)
