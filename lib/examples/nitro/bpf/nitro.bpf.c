/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Counts packets by flow in a NitroSketch: most packets cost one subtraction. Passes every packet. */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/flow.h>
#include <shunt/nitro.h>

#define ROWS 5
#define LOG2COLS 10

struct sketch {
	struct shunt_nitro nitro;
	__u64 packets;
	__s32 counter[ROWS << LOG2COLS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sketch);
} sketch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_geo);
} geo SEC(".maps");

volatile const __u64 seed;

SEC("xdp") int nitro(struct xdp_md *ctx)
{
	struct sketch *s = bpf_map_lookup_elem(&sketch, &(__u32){ 0 });
	struct shunt_geo *table;
	struct shunt_flow flow;

	if (!s)
		return XDP_PASS;
	s->packets++;
	if (!shunt_nitro_takes(&s->nitro, ROWS))
		return XDP_PASS;
	table = bpf_map_lookup_elem(&geo, &(__u32){ 0 });
	if (!table || shunt_flow_of((void *)(long)ctx->data, (void *)(long)ctx->data_end, &flow))
		return XDP_PASS;
	shunt_nitro_update(&s->nitro, table, s->counter, ROWS, LOG2COLS, shunt_hash64(&flow, sizeof(flow), seed));
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
