/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* crc32c and hash8 in plain BPF. */
#include "harness.h"
#include <shunt/crc32c.h>
#include <shunt/hash8.h>

static __always_inline __u64 crc32c_step(struct step *s)
{
	__u64 w[4] = { s->a, s->b, s->a ^ s->b, ~s->a };

	switch (s->op) {
	case 0: return shunt_crc32c(w, 0, s->arg);
	case 1: return shunt_crc32c(w, 4, s->arg);
	case 2: return shunt_crc32c(w, 8, s->arg);
	case 3: return shunt_crc32c(w, 13, s->arg);
	case 4: return shunt_crc32c(w, 16, s->arg);
	case 5: return shunt_crc32c(w, 32, s->arg);
	/* In pieces: as a whole. */
	case 6: return shunt_crc32c(&w[1], 15, shunt_crc32c(w, 8, s->arg));
	case 7: return shunt_xxh32(w, 0, s->arg);
	case 8: return shunt_xxh32(w, 3, s->arg);
	case 9: return shunt_xxh32(w, 31, s->arg);
	}
	return ~0ULL;
}

STEPS(crc32c, crc32c_step)
