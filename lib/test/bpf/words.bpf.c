/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* bits, hash and match: functions of words alone. */
#include "harness.h"
#include <shunt/bits.h>
#include <shunt/hash.h>
#include <shunt/match.h>

static __always_inline __u64 word_step(struct step *s)
{
	__u64 w[4] = { s->a, s->b, s->a ^ s->b, ~s->a }, hits;

	switch (s->op) {
	case 0: return shunt_popcount64(s->a);
	case 1: return shunt_popcount32(s->a);
	case 2: return shunt_ctz64(s->a);
	case 3: return shunt_ctz32(s->a);
	case 4: return shunt_ffs64(s->a);
	case 5: return shunt_clz64(s->a);
	case 6: return shunt_log2_64(s->a);
	case 7: return shunt_rol32(s->a, s->arg);
	case 8: return shunt_rol64(s->a, s->arg);
	case 9: return shunt_pow2_ceil(s->a);
	case 10: return shunt_hash_u64(s->a, s->b);
	case 11: return shunt_hash64(w, 4, s->b);
	case 12: return shunt_hash64(w, 13, s->arg);
	case 13: return shunt_hash64(w, 16, s->arg);
	case 14: return shunt_hash64(w, 32, s->arg);
	case 15: return shunt_hash_nth(s->a, s->arg);
	case 16: return shunt_match8x16(w, s->arg);
	case 17: return shunt_match16x16(w, s->arg);
	}
	/* Of 15 bits. */
	for (int i = 0; i < 4; i++)
		w[i] &= 0x7fff7fff7fff7fffULL;
	hits = shunt_hits15x16(w, s->arg & 0x7fff);
	switch (s->op) {
	case 18: return shunt_match15x16(w, s->arg & 0x7fff);
	case 19: return hits;
	case 20: return hits ? shunt_hit15(hits) : 16;
	}
	return ~0ULL;
}

STEPS(words, word_step)
