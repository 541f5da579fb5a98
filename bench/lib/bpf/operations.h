/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The single operations that are compared, each as OPERATION(name, body): x is a random word, other for other turns and the same for
 * every variant, sum and before what was found in this turn and the earlier ones; the body says in r what it found. The sum of all r is read back, so that variants that ought to agree have to.
 * operations.bpf.c makes XDP programs of them, native.c functions in user space.
 */
#include "common.h"
#include "best.h"
#include <shunt/bits.h>
#include <shunt/cms.h>
#include <shunt/crc32c.h>
#include <shunt/hash.h>
#include <shunt/hash8.h>
#include <shunt/match.h>
#include <shunt/rand.h>

#define LOG2COLS 12

/* What operations work on: one value of one map. */
struct bench_memory {
	__u64 x;	/* where the last run ended: words that came again would be known to the branch predictor */
	__u64 state;
	struct shunt_sampler sampler;
	struct shunt_geo geo;
	union shunt_prints bucket[256];
	__u32 counter[8 << LOG2COLS];
	struct best_sampler best;
};

#define KEY(x) { (__u32)(x), (__u32)((x) >> 32), (__u32)(x) ^ 0x5bd1e995, 17 }

OPERATION(empty, r = x)

/* One bit somewhere, as queues have it; the compiler must not know that it was shifted there. */
#define ONE_BIT(x) ({ __u64 __one = 1ULL << ((x) >> 58); SHUNT_HIDE(__one); __one; })
OPERATION(ctz_common, r = common_ctz64(ONE_BIT(x)))
OPERATION(ctz_builtin, r = __builtin_ctzll(ONE_BIT(x)))
OPERATION(ctz_best, r = best_ctz64(ONE_BIT(x)))
OPERATION(ctz_shunt, r = shunt_ctz64_of(ONE_BIT(x)))
/* The same where each waits for the one before. */
#define CHAINED (x + before + sum)
OPERATION(chain_ctz_builtin, r = __builtin_ctzll(ONE_BIT(CHAINED)))
OPERATION(chain_ctz_best, r = best_ctz64(ONE_BIT(CHAINED)))
OPERATION(chain_ctz_shunt, r = shunt_ctz64_of(ONE_BIT(CHAINED)))
/* A global function, which is verified once: in line, its branches are more than a verifier follows eight times over. */
__attribute__((noinline)) __u32 clz_by_branches(__u64 x);
__attribute__((noinline)) __u32 clz_by_branches(__u64 x) { return common_clz64(x); }
OPERATION(clz_common, r = clz_by_branches(ONE_BIT(x)))
OPERATION(clz_builtin, r = __builtin_clzll(ONE_BIT(x)))
OPERATION(clz_shunt, r = shunt_clz64(ONE_BIT(x)))
OPERATION(popcount_common, r = common_popcount64(x))
OPERATION(popcount_builtin, r = __builtin_popcountll(x))
OPERATION(popcount_shunt, r = shunt_popcount64(x))
/* By another distance in each turn. */
OPERATION(rotate_common, __u32 n = x & 63; SHUNT_HIDE(n); r = x << n | x >> (-n & 63))
OPERATION(rotate_shunt, __u32 n = x & 63; SHUNT_HIDE(n); r = shunt_rol64(x, n))

OPERATION(random_shunt, r = shunt_rand64(&m->state))
OPERATION(random_best, r = best_random(&m->state))
OPERATION(sample_shunt, r = shunt_sample(&m->sampler, &m->geo))
OPERATION(sample_best, r = best_sample(&m->best))
OPERATION(draw_shunt, r = shunt_geo_draw(&m->geo, &m->state))
OPERATION(draw_best, r = best_gap_draw(&m->best))

OPERATION(match_common, r = common_match16(m->bucket[SHUNT_MASK(x, 255)].one, x >> 56))
OPERATION(match_best, r = best_match16((const __u64 *)&m->bucket[SHUNT_MASK(x, 255)], x >> 56))
OPERATION(match_shunt, r = shunt_match16x16(m->bucket[SHUNT_MASK(x, 255)].word, x >> 56))
/* Of 15 bits, which those of the buckets are. */
OPERATION(match15_shunt, r = shunt_match15x16(m->bucket[SHUNT_MASK(x, 255)].word, x >> 56))

/* Hidden before it is compared: the compiler knows that the last steps of a good hash cannot make a 0, and would leave them out. */
#define NOT_0(hash) ({ __u64 __h = (hash); SHUNT_HIDE(__h); __h != 0; })
OPERATION(hash_common, __u32 key[4] = KEY(x); r = NOT_0(common_xxh32(key, 7)))
OPERATION(hash_best, __u32 key[4] = KEY(x); r = NOT_0(best_hash16(key)))
OPERATION(hash_shunt, __u32 key[4] __attribute__((aligned(8))) = KEY(x); r = NOT_0(shunt_hash64(key, 16, 7)))

/* Functions of their own: eight copies of eight hashes would not fit on the stack. */
static __attribute__((noinline)) __u64 hash8_one_by_one(__u64 x)
{
	__u32 key[4] = KEY(x);

	return common_hash8(key);
}

static __attribute__((noinline)) __u64 hash8_at_once(__u64 x)
{
	__u32 key[4] __attribute__((aligned(8))) = KEY(x);
	struct shunt_hash8 h;
	__u64 sum = 0;

	shunt_hash8(&h, key, 16, 7);
	for (int i = 0; i < 8; i++)
		sum += h.h[i];
	return sum;
}

OPERATION(hash8_common, r = hash8_one_by_one(x))
OPERATION(hash8_shunt, r = hash8_at_once(x))
OPERATION(crc32c_common, __u32 key[4] = KEY(x); r = common_crc32c(key))
OPERATION(crc32c_shunt, __u32 key[4] __attribute__((aligned(8))) = KEY(x); r = shunt_crc32c(key, 16, 0))

/* Count-min updates: what is read back is the sum of a row's counters, by user space. */
OPERATION(cms4_common, __u32 key[4] = KEY(x); common_cms_add(m->counter, 4, LOG2COLS, key); r = 0)
OPERATION(cms4_best, __u32 key[4] = KEY(x); best_cms_add(m->counter, 4, LOG2COLS, key); r = 0)
OPERATION(cms4_shunt, __u32 key[4] __attribute__((aligned(8))) = KEY(x); shunt_cms_add(m->counter, 4, LOG2COLS, shunt_hash64(key, 16, 7), 1); r = 0)
OPERATION(cms8_common, __u32 key[4] = KEY(x); common_cms_add(m->counter, 8, LOG2COLS, key); r = 0)
OPERATION(cms8_best, __u32 key[4] = KEY(x); best_cms_add(m->counter, 8, LOG2COLS, key); r = 0)
OPERATION(cms8_shunt, __u32 key[4] __attribute__((aligned(8))) = KEY(x); shunt_cms_add(m->counter, 8, LOG2COLS, shunt_hash64(key, 16, 7), 1); r = 0)
