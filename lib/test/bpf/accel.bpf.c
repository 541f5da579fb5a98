/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* accel: what the module may do instead, from XDP and from TC. */
#include "harness.h"
#include <shunt/accel.h>

/* One of the eight hashes, and all of them in one number. */
#define HASH8(len) ({										\
	struct shunt_hash8 out = {};								\
	__u64 all = 0;										\
	shunt_hash8_any(&out, w, len, s->arg);							\
	for (int i = 0; i < 8; i++)								\
		all = (all ^ out.h[i]) * SHUNT_HASH8_FOLD;					\
	all;											\
})
#define SHUNT_HASH8_FOLD 0x9e3779b97f4a7c15ULL

static __always_inline __u64 accel_step(struct step *s)
{
	__u64 w[4] = { s->a, s->b, s->a ^ s->b, ~s->a };

	switch (s->op) {
	case 0: return shunt_crc32c_any(w, 4, s->arg);
	case 1: return shunt_crc32c_any(w, 8, s->arg);
	case 2: return shunt_crc32c_any(w, 13, s->arg);
	case 3: return shunt_crc32c_any(w, 16, s->arg);
	case 4: return shunt_crc32c_any(w, 32, s->arg);
	case 5: return shunt_match16x16_any(w, s->arg);
	case 6: return HASH8(4);
	case 7: return HASH8(13);
	case 8: return HASH8(16);
	case 9: return HASH8(31);
	}
	return ~0ULL;
}

STEPS(accel, accel_step)

/* The same from TC. It returns what the XDP program does, since the test asks both the same way. */
SEC("tc") int accel_tc(struct __sk_buff *skb)
{
	struct span span = {};

	if (bpf_skb_load_bytes(skb, 0, &span, sizeof(span)))
		return XDP_ABORTED;
	return bpf_loop(span.count & (2 * MAX_STEPS - 1), accel_turn, &span, 0) == span.count ? XDP_PASS : XDP_ABORTED;
}
