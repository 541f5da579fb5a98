/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow: the keys of a script of frames. Each is written into the packet that the program was run on, which is made as long as the frame. */
#include "harness.h"
#include <shunt/flow.h>

#define MAX_FRAME 96

struct frame {
	struct shunt_flow key;
	__s32 out;
	__u32 len;	/* from 14, less than which the kernel makes no packet, to MAX_FRAME */
	__u8 byte[MAX_FRAME];
};

struct frames {
	struct frame frame[MAX_STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct frames);
} frames SEC(".maps");

struct turn {
	struct xdp_md *ctx;
};

static long flow_turn(__u32 i, void *of)
{
	struct xdp_md *ctx = ((struct turn *)of)->ctx;
	struct frames *all = THE(frames);
	struct shunt_flow key;
	struct frame *f;
	__u32 len;

	if (!all)
		return 1;
	f = &all->frame[i & (MAX_STEPS - 1)];
	len = f->len;
	if (len < 14 || len > MAX_FRAME)
		return 1;
	if (bpf_xdp_adjust_tail(ctx, (int)len - (int)bpf_xdp_get_buff_len(ctx)) || bpf_xdp_store_bytes(ctx, 0, f->byte, len))
		return 1;
	f->out = shunt_flow_of((void *)(long)ctx->data, (void *)(long)ctx->data_end, &key);
	f->key = key;
	return 0;
}

SEC("xdp") int flows(struct xdp_md *ctx)
{
	struct turn turn = { ctx };

	return bpf_loop(MAX_STEPS, flow_turn, &turn, 0) == MAX_STEPS ? XDP_PASS : XDP_ABORTED;
}
