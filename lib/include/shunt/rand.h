/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * rand: cheap random numbers, and how many packets to let pass until the next sample.
 *
 * bpf_get_prandom_u32() is a call. A generator whose state lies in a per-CPU map costs a small part of it. It is xorshift64* (Vigna, "An
 * experimental exploration of Marsaglia's xorshift generators", 2014); seed it with anything but zero, from user space or from
 * bpf_get_prandom_u32(). Not for secrets.
 *
 * Sampling with probability p asks for a random number per packet; the number of packets between two samples is geometric, so one draw
 * per sample does the same. The draw is Walker's alias method over a table that user space fills once per probability
 * (shunt_geo_fill() below, or lib/geo for Go): exact to 2^-32 per entry, one look into the table. The distribution's tail
 * beyond the table is exact too: it has no memory, so its entry says "255 and draw again".
 *
 * Cost: docs/bench-lib.md. A draw is a loop of up to SHUNT_GEO_TURNS, some 2,000 instructions to the verifier. Any kernel.
 */
#ifndef SHUNT_LIB_RAND_H
#define SHUNT_LIB_RAND_H

#include "def.h"

/* 64 random bits, the upper ones the better; *state must not be 0. */
SHUNT_FN __u64 shunt_rand64(__u64 *state)
{
	__u64 x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/* A random number below n, without a division; its bias is n / 2^32. */
SHUNT_FN __u32 shunt_rand_below(__u64 *state, __u32 n)
{
	return (shunt_rand64(state) >> 32) * n >> 32;
}

#define SHUNT_GEO_SIZE 256

/* Entry i of the table for probability p: a 32-bit draw below `keep` gives self, which is i, and else alias. */
struct shunt_geo {
	struct shunt_geo_entry {
		__u32 keep;
		__u8 alias, self;	/* chosen by a load, since a branch here would be a coin's throw */
		__u16 unused;
	} entry[SHUNT_GEO_SIZE];
};

/* How often the tail may follow itself: 64 * 255 packets. Below p = 1/4000 draws are cut there in one case of fifty. */
#define SHUNT_GEO_TURNS 64

/* Failures before the next success: geometric with the table's probability. */
SHUNT_FN __u32 shunt_geo_draw(const struct shunt_geo *geo, __u64 *state)
{
	__u32 skip = 0;

	for (int i = 0; i < SHUNT_GEO_TURNS; i++) {
		__u64 r = shunt_rand64(state);
		/* The entry's place in bytes at once: a shift less. */
		const struct shunt_geo_entry *e = (void *)geo->entry + SHUNT_MASK(r >> 53, (SHUNT_GEO_SIZE - 1) * sizeof(*e));
		__u64 less = (__u32)(r >> 24) - (__u64)e->keep;
		__u8 gap;

		SHUNT_HIDE(less);
		gap = (&e->alias)[less >> 63];
		skip += gap;
		if (__builtin_expect(gap != SHUNT_GEO_SIZE - 1, 1))
			break;
	}
	return skip;
}

/* A sampler: zeroed, its first packet is a sample. Keep one per CPU. */
struct shunt_sampler {
	__u64 state;
	__u32 skip;
	__u32 unused;
};

/* Whether this packet is a sample. */
SHUNT_FN int shunt_sample(struct shunt_sampler *s, const struct shunt_geo *geo)
{
	if (s->skip) {
		s->skip--;
		return 0;
	}
	s->skip = shunt_geo_draw(geo, &s->state);
	return 1;
}

#ifndef __bpf__
/* shunt_geo_fill fills a table for probability p, 0 < p <= 1, in user space (Vose's construction of Walker's table). */
static inline void shunt_geo_fill(struct shunt_geo *geo, double p)
{
	double weight[SHUNT_GEO_SIZE], left = 1;
	int small[SHUNT_GEO_SIZE], large[SHUNT_GEO_SIZE], ns = 0, nl = 0, i;

	for (i = 0; i < SHUNT_GEO_SIZE; i++) {
		double here = i == SHUNT_GEO_SIZE - 1 ? left : left * p;

		left -= here;
		weight[i] = here * SHUNT_GEO_SIZE;
		if (weight[i] < 1)
			small[ns++] = i;
		else
			large[nl++] = i;
	}
	while (ns && nl) {
		int s = small[--ns], l = large[nl - 1];

		geo->entry[s].keep = weight[s] * 4294967296.0;
		geo->entry[s].alias = l;
		weight[l] -= 1 - weight[s];
		if (weight[l] < 1) {
			nl--;
			small[ns++] = l;
		}
	}
	for (i = 0; i < SHUNT_GEO_SIZE; i++)
		geo->entry[i].self = i;
	while (nl)
		i = large[--nl], geo->entry[i].keep = 0xffffffff, geo->entry[i].alias = i;
	while (ns)
		i = small[--ns], geo->entry[i].keep = 0xffffffff, geo->entry[i].alias = i;
}
#endif

#endif
