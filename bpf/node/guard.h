/* SPDX-License-Identifier: GPL-2.0 */
/*
 * guard: is the program still true?
 *
 * Problem: rules, addresses and switches may change while the daemon is slow, stopped or dead.
 * Mechanism: the kernel words that change with them (netfilter's hook tables, generation counters, sysctls) are compared with
 * the values that they had before the configuration was read; the daemon's heartbeat is compared with the clock.
 * Invariant: after a change that a word covers, not one packet is forwarded by the old configuration. A mismatch is kept (`stale`)
 * until the daemon has read anew, since a freed table's address may come back.
 *
 * It is the last node: a packet that leaves for Linux by an earlier one needs no proof of anything, and a change that the earlier nodes
 * did not see came before the comparison.
 */
#ifndef SHUNT_NODE_GUARD_H
#define SHUNT_NODE_GUARD_H

#include "packet.h"

/*
 * The device that the program was made for? A device that is moved to another namespace keeps its program, and often its
 * ifindex, so the namespace is compared too where the kernel lets us look.
 */
always_inline int right_device(struct packet *p)
{
	if (!cfg.lower && ctx_ifindex(p->ctx) != cfg.port)
		return 0;
	if (frozen.kern_ctx && (__u64)device_net(p->ctx) != cfg.net)
		return 0;
	return 1;
}

/*
 * Words are four or eight bytes wide. Kernel addresses may become invalid; both ways of reading then give 0 or garbage, which is a
 * mismatch.
 */
always_inline __u64 peek(__u64 addr, __u32 width)
{
	if (frozen.peek == SHUNT_PEEK_CAST) {
		void *p = bpf_rdonly_cast((void *)addr, 0);

		return width == 4 ? *(__u32 *)p : *(__u64 *)p;
	} else if (frozen.peek == SHUNT_PEEK_PROBE) {
		__u64 v = 0;

		bpf_probe_read_kernel(&v, width & 0xf, (void *)addr);
		return v;
	}
	return 0;
}

/* Defines a function: do the words of one list of the configuration have the values that are wanted? */
#define UNCHANGED(name, list, n)									\
always_inline int name(struct packet *p)								\
{													\
	_Pragma("clang loop unroll(full)")								\
	for (int i = 0; i < (int)(sizeof(cfg.list) / sizeof(cfg.list[0])); i++) {			\
		if (i >= cfg.n)										\
			break;										\
		if (peek(cfg.list[i].addr, cfg.list[i].width) !=					\
		    live.want[cfg.list[i].slot & (SHUNT_GUARD_SLOTS - 1)])				\
			return 0;									\
	}												\
	return 1;											\
}

UNCHANGED(unchanged, guard, guards)
UNCHANGED(unchanged4, guard4, guards4)
UNCHANGED(unchanged6, guard6, guards6)

/* What every packet of the port rests on, whatever becomes of it, but for the device. */
always_inline int guard_port(struct packet *p)
{
	if (cfg.watchdog && (__s64)(bpf_jiffies64() - live.heartbeat) > (__s64)cfg.watchdog_jiffies)
		return SHUNT_R_WATCHDOG;
	if (live.stale)
		return SHUNT_R_STALE;
	if (!unchanged(p)) {
		live.stale = 1;
		return SHUNT_R_STALE;
	}
	return NEXT;
}

/* And what those of its family rest on. */
always_inline int guard_family(struct packet *p)
{
	int r = guard_port(p);

	if (r == NEXT && !(p->is6 ? unchanged6(p) : unchanged4(p))) {
		live.stale = 1;
		return SHUNT_R_STALE;
	}
	return r;
}

always_inline int node_guard(struct packet *p)
{
	return right_device(p) ? guard_family(p) : SHUNT_R_WRONG_DEVICE;
}

#endif
