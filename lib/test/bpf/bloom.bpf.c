/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* bloom: classic and blocked filters, from the smallest to some that hold 10,000 keys. */
#include "harness.h"
#include <shunt/bloom.h>

SHUNT_BLOOM(word, 6, 1)
SHUNT_BLOOM(classic, 17, 7)
SHUNT_BLOOM(many, 18, 16)
SHUNT_BLOOM_BLOCKED(line, 9, 3)
SHUNT_BLOOM_BLOCKED(blocked, 17, 7)

ONE(struct word, word);
ONE(struct classic, classic);
ONE(struct many, many);
ONE(struct line, line);
ONE(struct blocked, blocked);

#define DO(NAME, S)								\
	({									\
		struct NAME *f = THE(NAME);					\
		__u64 hash = shunt_hash_u64((S)->a, 1), out = 0;		\
		if (f)								\
			switch ((S)->op & 3) {					\
			case 0: NAME##_add(f, hash); break;			\
			case 1: NAME##_add_shared(f, hash); break;		\
			case 2: out = NAME##_test(f, hash); break;		\
			}							\
		out;								\
	})

static __always_inline __u64 bloom_step(struct step *s)
{
	switch (s->op >> 2) {
	case 0: return DO(word, s);
	case 1: return DO(classic, s);
	case 2: return DO(many, s);
	case 3: return DO(line, s);
	case 4: return DO(blocked, s);
	}
	return ~0ULL;
}

STEPS(bloom, bloom_step)
