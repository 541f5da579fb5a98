/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * hkeeper: HeavyKeeper (Yang et al., USENIX ATC 2018). Finds the heaviest flows among very many with a few kilobytes: a slot counts for one
 * key, and others that fall on it wear its count down, the less likely the larger it is (1.08^-count). Small flows come and go, large
 * ones stay, and a count is almost never too high. Keep the heaviest keys themselves in a topk (topk.h).
 *
 * Memory is rows << log2slots slots of eight bytes, zeroed; `rows` (1 to 4, the paper takes 2) and `log2slots` (to 24) have to be constant
 * after inlining, or it does not compile. A key is known by 32 bits of its hash: of a million keys two share slot and fingerprint with probability 2^-32 each.
 * Counts stop at 2^32 - 1.
 *
 * Sharing: one per CPU, with a random state of its own. Ask each and add up.
 *
 * Cost: beside the hash of the key 60 instructions per row to count, 17 to ask; a key that finds another one's slot draws a random number
 * as well. 8 bytes per slot, and 1 KiB of .rodata (SHUNT_NO_TABLES: none). The verifier walks some 400 instructions to count in two
 * rows, and 8,000 more for a topk of 64 keys. Any kernel.
 */
#ifndef SHUNT_LIB_HKEEPER_H
#define SHUNT_LIB_HKEEPER_H

#include "def.h"
#include "hash.h"
#include "rand.h"

struct shunt_hk_slot {
	__u32 print;	/* of the key that the slot counts */
	__u32 count;	/* 0: free */
};

#ifdef SHUNT_NO_TABLES
/* In steps of nine, each of which halves it (1.08^9 is 2). */
#define SHUNT_HK_CHANCE(count) (0xffffffffU >> (count) / 9)
#else
#define SHUNT_HK_CHANCE(count) shunt_hk_decay[SHUNT_MASK(count, 255)]

/* 2^32 * 1.08^-count: how likely a strange key wears a count down. From 256 on it is below 3e-9 and taken for never. */
static const __u32 shunt_hk_decay[256] = {
	0xffffffff, 0xed097b42, 0xdb7a8e92, 0xcb3896f9, 0xbc2aea9b, 0xae3ab34d, 0xa152cbf2, 0x955fa065,
	0x8a4f0fc5, 0x801050f9, 0x7693d933, 0x6dcb445e, 0x65a93f4e, 0x5e217381, 0x5728746e, 0x50b3ae2d,
	0x4ab9556c, 0x45305893, 0x40105203, 0x3b517b58, 0x36eca19e, 0x32db1a63, 0x2f16b99e, 0x2b99c850,
	0x285efbd8, 0x25616dee, 0x229c9531, 0x200c3e4a, 0x1dac8587, 0x1b79d0f8, 0x1970caf9, 0x178e5d1f,
	0x15cfab8f, 0x143210a0, 0x12b318e0, 0x11507f54, 0x10082a0c, 0x0ed826ee, 0x0dbea8ca, 0x0cba0495,
	0x0bc8aee9, 0x0ae939a8, 0x0a1a51d4, 0x095abd8c, 0x08a95a2c, 0x08051a9a, 0x076d05ab, 0x06e034a8,
	0x065dd1f1, 0x05e517b9, 0x05754edb, 0x050dcdc1, 0x04adf767, 0x04553a69, 0x04031028, 0x03b6fbff,
	0x03708a84, 0x032f50d9, 0x02f2ec0b, 0x02bb007c, 0x02873956, 0x0257480e, 0x022ae3e7, 0x0201c98a,
	0x01dbba9c, 0x01b87d61, 0x0197dc63, 0x0179a623, 0x015daccb, 0x0143c5eb, 0x012bca39, 0x01159551,
	0x01010584, 0x00edfba0, 0x00dc5ac3, 0x00cc0830, 0x00bceb23, 0x00aeecaf, 0x00a1f798, 0x0095f838,
	0x008adc59, 0x00809323, 0x00770cfb, 0x006e3b6d, 0x00661119, 0x005e819c, 0x0057817d, 0x0051061f,
	0x004b05aa, 0x00457706, 0x004051c3, 0x003b8e14, 0x003724bd, 0x00330f0e, 0x002f46d4, 0x002bc652,
	0x00288839, 0x0025879d, 0x0022bff0, 0x00202cfb, 0x001dcad5, 0x001b95e2, 0x00198ac8, 0x0017a66d,
	0x0015e5f3, 0x001446b2, 0x0012c633, 0x0011622f, 0x0010188a, 0x000ee750, 0x000dccb3, 0x000cc704,
	0x000bd4b8, 0x000af45f, 0x000a24a3, 0x0009644b, 0x0008b233, 0x00080d4b, 0x0007749b, 0x0006e73a,
	0x00066452, 0x0005eb1d, 0x00057ae2, 0x000512f7, 0x0004b2bf, 0x000459a7, 0x00040729, 0x0003bac7,
	0x0003740e, 0x00033291, 0x0002f5ef, 0x0002bdca, 0x000289ce, 0x000259ac, 0x00022d1a, 0x000203d6,
	0x0001dda0, 0x0001ba3f, 0x0001997d, 0x00017b27, 0x00015f12, 0x00014510, 0x00012cfc, 0x000116b0,
	0x0001020c, 0x0000eeee, 0x0000dd3b, 0x0000ccd8, 0x0000bdac, 0x0000af9f, 0x0000a29d, 0x00009691,
	0x00008b6a, 0x00008116, 0x00007786, 0x00006eac, 0x00006679, 0x00005ee2, 0x000057da, 0x00005158,
	0x00004b52, 0x000045bd, 0x00004093, 0x00003bca, 0x0000375d, 0x00003343, 0x00002f77, 0x00002bf3,
	0x000028b1, 0x000025ad, 0x000022e3, 0x0000204d, 0x00001de9, 0x00001bb2, 0x000019a4, 0x000017be,
	0x000015fc, 0x0000145b, 0x000012d9, 0x00001173, 0x00001028, 0x00000ef6, 0x00000dda, 0x00000cd4,
	0x00000be0, 0x00000aff, 0x00000a2f, 0x0000096d, 0x000008bb, 0x00000815, 0x0000077c, 0x000006ee,
	0x0000066a, 0x000005f1, 0x00000580, 0x00000518, 0x000004b7, 0x0000045e, 0x0000040b, 0x000003be,
	0x00000377, 0x00000335, 0x000002f8, 0x000002c0, 0x0000028c, 0x0000025c, 0x0000022f, 0x00000205,
	0x000001df, 0x000001bc, 0x0000019b, 0x0000017c, 0x00000160, 0x00000146, 0x0000012e, 0x00000117,
	0x00000103, 0x000000ef, 0x000000de, 0x000000cd, 0x000000be, 0x000000b0, 0x000000a3, 0x00000097,
	0x0000008b, 0x00000081, 0x00000078, 0x0000006f, 0x00000066, 0x0000005f, 0x00000058, 0x00000051,
	0x0000004b, 0x00000046, 0x00000040, 0x0000003c, 0x00000037, 0x00000033, 0x0000002f, 0x0000002c,
	0x00000028, 0x00000025, 0x00000023, 0x00000020, 0x0000001e, 0x0000001b, 0x00000019, 0x00000017,
	0x00000016, 0x00000014, 0x00000012, 0x00000011, 0x00000010, 0x0000000f, 0x0000000d, 0x0000000c,
};
#endif

#define SHUNT_CHECK_HK(rows, log2slots)								\
	SHUNT_CHECK((rows) >= 1 && (rows) <= 4 && (log2slots) <= 24,				\
		    "a HeavyKeeper has 1 to 4 rows of up to 2^24 slots, both known when it is compiled")

SHUNT_FN struct shunt_hk_slot *shunt_hk_at(struct shunt_hk_slot *slots, __u32 i, __u32 log2slots, __u64 hash)
{
	return slots + ((__u64)i << log2slots) + SHUNT_MASK(shunt_hash_nth(hash, i), (1U << log2slots) - 1);
}

/* The fingerprint: bits that neither the first slot's index nor the step between rows is made of alone. */
SHUNT_FN __u32 shunt_hk_print(__u64 hash)
{
	return shunt_hash_mix(hash) >> 32;
}

/* Count one more of the key and return what is known of it: an estimate, 0 if no slot counts for it. */
SHUNT_FN __u32 shunt_hk_add(struct shunt_hk_slot *slots, __u32 rows, __u32 log2slots, __u64 *state, __u64 hash)
{
	__u32 print = shunt_hk_print(hash), best = 0;

	SHUNT_CHECK_HK(rows, log2slots);
#pragma unroll
	for (__u32 i = 0; i < rows; i++) {
		struct shunt_hk_slot *s = shunt_hk_at(slots, i, log2slots, hash);
		__u32 count = s->count;

		if (s->print == print && count) {
			count += count != ~0U;
		} else if (!count) {
			s->print = print;
			count = 1;
		} else {
			if (count < 256 && (__u32)(shunt_rand64(state) >> 32) < SHUNT_HK_CHANCE(count)) {
				s->count = --count;
				if (!count) {
					s->print = print;
					s->count = count = 1;
					if (best < count)
						best = count;
				}
			}
			continue;
		}
		s->count = count;
		if (best < count)
			best = count;
	}
	return best;
}

/* The estimate for a key, 0 if no slot counts for it. */
SHUNT_FN __u32 shunt_hk_get(struct shunt_hk_slot *slots, __u32 rows, __u32 log2slots, __u64 hash)
{
	__u32 print = shunt_hk_print(hash), best = 0;

	SHUNT_CHECK_HK(rows, log2slots);
#pragma unroll
	for (__u32 i = 0; i < rows; i++) {
		struct shunt_hk_slot *s = shunt_hk_at(slots, i, log2slots, hash);

		if (s->print == print && s->count > best)
			best = s->count;
	}
	return best;
}

#endif
