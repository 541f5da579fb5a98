/* SPDX-License-Identifier: GPL-2.0 */
/* What every file of the data path starts from: types, maps' value layouts, the frozen configuration. */
#ifndef SHUNT_COMMON_H
#define SHUNT_COMMON_H

#include <linux/bpf.h>
#include "bpf_helpers.h"
#include "bpf_endian.h"
#include "types.h"
#include "reasons.h"

#define always_inline static __attribute__((always_inline)) inline

#define ETH_P_IP	0x0800
#define ETH_P_IPV6	0x86DD
#define ETH_P_8021Q	0x8100
#define ETH_P_8021AD	0x88A8
#define AF_INET		2
#define AF_INET6	10

/* Go on to the next node; any other value of a node's result is a reason to leave by. */
#define NEXT		(-1)

/*
 * A reason to leave by where nearly every packet goes on. The way out gets code of its own by this; without, the reason would be put in place before it is known whether
 * it is one, once for each check of each packet.
 */
#define LEAVE(reason) ({ asm volatile(""); (reason); })

/*
 * The value of x, of which the verifier is to know nothing any more: it follows every value that it knows on a way of its own through all that
 * comes behind, even where nothing there depends on it. `unknown` is a number that it knows nothing of either.
 */
#define forget(x, unknown)									\
	do {											\
		__u64 forgotten_ = (x), unknown_ = (unknown);					\
		asm volatile("%0 += %1" : "+r"(forgotten_) : "r"(unknown_));			\
		asm volatile("%0 -= %1" : "+r"(forgotten_) : "r"(unknown_));			\
		(x) = forgotten_;								\
	} while (0)

/* Frozen before the program is loaded; Go folds every use of it away (internal/synth/specialise). */
const volatile struct shunt_config frozen;

/*
 * The configuration of the packet's port. Nodes are compiled twice: for programs that are made for one port, where all of it is frozen,
 * and for the generic one (port.h), which finds it in a map and reaches it through the packet `p` at hand. `frozen` by its own name is
 * for what is the same for every port and decides which kernel functions a program may call: peek, kern_ctx, skip_neigh, and skb_born as far as
 * the kernel can tell; for what rules ask (rule_mask, rule_dims, rule_asks,
 * rules), and for the size of a map (lines4, verdicts).
 */
#ifdef SHUNT_GENERIC
#define cfg (*p->conf)
#else
#define cfg frozen
#endif

/* Shared by all programs of a namespace and mapped into the daemon. */
volatile struct shunt_live live SEC(".data.live");

#endif
