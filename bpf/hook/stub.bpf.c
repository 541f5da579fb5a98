/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stubs: what stays attached to an interface.
 *
 * Attaching and replacing an XDP program holds RTNL for milliseconds and may reset a NIC, so it is done once. The stub jumps to the
 * program in slot 0; an empty slot means that everything goes to Linux. The slot's map is not pinned: when the daemon dies the kernel
 * empties it. Every stub has a map of its own, so that one interface's program can never run for another.
 */
#include <linux/bpf.h>
#include "bpf_helpers.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} slot SEC(".maps");

SEC("xdp.frags")
int shunt_stub_xdp(struct xdp_md *ctx)
{
	bpf_tail_call_static(ctx, &slot, 0);
	return XDP_PASS;
}

SEC("xdp")
int shunt_stub_xdp_linear(struct xdp_md *ctx)
{
	bpf_tail_call_static(ctx, &slot, 0);
	return XDP_PASS;
}

SEC("tc")
int shunt_stub_tc(struct __sk_buff *ctx)
{
	bpf_tail_call_static(ctx, &slot, 0);
	return -1;
}

char LICENSE[] SEC("license") = "GPL";
