/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Network functions as whole XDP programs, the common way, the best plain way and with the library, which read a packet's flow, do their work and drop it.
 * `bare` does all of this but the work.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include "common.h"
#include "best.h"
#include <shunt/cms.h>
#include <shunt/nitro.h>

#define LOG2COLS 12

struct counts { __u64 packets, done; };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* The functions run on one CPU here: what users would have per CPU lies in plain maps, of any size. */
struct memory {
	struct shunt_nitro nitro;
	__u32 counter[8 << LOG2COLS];
	struct best_sampler best;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct memory);
} memory SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_geo);
} geo SEC(".maps");

volatile const __u32 threshold; /* 2^32 times the probability */

#define FIRST(map) bpf_map_lookup_elem(&map, &(__u32){ 0 })

/* The flow's 13 bytes in 16: addresses, ports, protocol. Only UDP over IPv4 without options is sent here. */
static __always_inline int flow_of(struct xdp_md *ctx, __u32 key[4])
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 42 > end || data[12] != 8 || data[13] || data[14] != 0x45 || data[23] != 17)
		return -1;
	key[0] = *(__u32 *)(data + 26);
	key[1] = *(__u32 *)(data + 30);
	key[2] = *(__u32 *)(data + 34);
	key[3] = data[23];
	return 0;
}

/* FUNCTION(name, work): the work says in `done` whether it did something worth counting. */
#define FUNCTION(name, ...)						\
	SEC("xdp") int name(struct xdp_md *ctx)				\
	{								\
		struct counts *c = FIRST(counts);			\
		struct memory *m = FIRST(memory);			\
		__u32 key[4] __attribute__((aligned(8)));		\
		__u32 done = 1;						\
		if (!c || !m || flow_of(ctx, key))			\
			return XDP_PASS;				\
		__VA_ARGS__;						\
		c->packets++;						\
		c->done += done;					\
		return XDP_DROP;					\
	}

FUNCTION(bare, done = key[0] != 0)

#define CMS(rows)									\
	FUNCTION(cms##rows##_common, common_cms_add(m->counter, rows, LOG2COLS, key))	\
	FUNCTION(cms##rows##_best, best_cms_add(m->counter, rows, LOG2COLS, key))	\
	FUNCTION(cms##rows##_shunt, shunt_cms_add(m->counter, rows, LOG2COLS, shunt_hash64(key, 16, 7), 1))
CMS(2)
CMS(4)
CMS(6)
CMS(8)

/* NitroSketch the common way: a random number per row and packet, a hash per row, of which one bit is the sign. */
#define NITRO_ROWS 8
static __always_inline __u32 common_nitro(struct memory *m, const __u32 key[4])
{
	__u32 done = 0;

	for (__u32 i = 0; i < NITRO_ROWS; i++) {
		__u32 hash;

		if (bpf_get_prandom_u32() >= threshold)
			continue;
		hash = common_xxh32(key, i);
		m->counter[((__u64)i << LOG2COLS) + SHUNT_MASK(hash, (1U << LOG2COLS) - 1)] += hash >> 31 ? -m->nitro.step : m->nitro.step;
		done = 1;
	}
	return done;
}

static __always_inline __u32 shunt_nitro_all(struct memory *m, const __u32 key[4])
{
	struct shunt_geo *table;

	if (!shunt_nitro_takes(&m->nitro, NITRO_ROWS))
		return 0;
	table = FIRST(geo);
	if (!table)
		return 0;
	shunt_nitro_update(&m->nitro, table, (__s32 *)m->counter, NITRO_ROWS, LOG2COLS, shunt_hash64(key, 16, 7));
	return 1;
}

FUNCTION(nitro_common, done = common_nitro(m, key))
FUNCTION(nitro_best, done = best_nitro(&m->best, m->counter, LOG2COLS, key))
FUNCTION(nitro_shunt, done = shunt_nitro_all(m, key))

char _license[] SEC("license") = "Dual BSD/GPL";
