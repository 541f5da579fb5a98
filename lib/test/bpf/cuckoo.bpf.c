/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cuckoo: a table of 4096 places, one of a single bucket, and one for two CPUs with a lock. */
#include "harness.h"
#include <shunt/cuckoo.h>

struct key { __u64 a, b; };
SHUNT_CUCKOO(table, struct key, __u64, 8)
SHUNT_CUCKOO(single, struct key, __u64, 0)

struct shared {
	struct table table;
	struct bpf_spin_lock lock;
};

ONE(struct table, table);
ONE(struct single, single);
ONE(struct shared, shared);

/*
 * arg: whether bits of the hash are lost, so that keys collide. By way of the script, so that the verifier takes both for any hash, as it would
 * one that was computed: it walks an insert half as long again when it knows which bits are missing.
 */
static __always_inline __u64 hash_of(struct step *s, const struct key *key)
{
	__u64 hash = shunt_hash64(key, sizeof(*key), 5);

	*(volatile __u64 *)&s->out = s->arg ? hash & 0x0001000000000003ULL : hash;
	return *(volatile __u64 *)&s->out;
}

static __always_inline __u64 cuckoo_step(struct step *s)
{
	struct table *t = THE(table);
	struct key key = { s->a, ~s->a };
	__u64 hash = hash_of(s, &key), *value;

	if (!t)
		return ~0ULL;
	switch (s->op) {
	case 0: return (__u32)table_insert(t, &key, hash, &s->b);
	case 1: value = table_lookup(t, &key, hash); return value ? *value : ~0ULL;
	case 2: return table_delete(t, &key, hash);
	}
	return ~0ULL;
}

STEPS(cuckoo_steps, cuckoo_step)

static __always_inline __u64 single_step(struct step *s)
{
	struct single *one = THE(single);
	struct key key = { s->a, ~s->a };
	__u64 hash = hash_of(s, &key), *value;

	if (!one)
		return ~0ULL;
	switch (s->op) {
	case 0: return (__u32)single_insert(one, &key, hash, &s->b);
	case 1: value = single_lookup(one, &key, hash); return value ? *value : ~0ULL;
	case 2: return single_delete(one, &key, hash);
	}
	return ~0ULL;
}

STEPS(cuckoo_single, single_step)

static __always_inline __u64 locked_step(struct step *s)
{
	struct shared *t = THE(shared);
	struct key key = { s->a, ~s->a };
	__u64 hash = hash_of(s, &key), *value, give = s->b, got = ~0ULL;

	if (!t)
		return ~0ULL;
	bpf_spin_lock(&t->lock);
	switch (s->op) {
	case 0: got = (__u32)table_insert(&t->table, &key, hash, &give); break;
	case 1: value = table_lookup(&t->table, &key, hash); got = value ? *value : ~0ULL; break;
	case 2: got = table_delete(&t->table, &key, hash); break;
	}
	bpf_spin_unlock(&t->lock);
	return got;
}

STEPS(cuckoo_locked, locked_step)
