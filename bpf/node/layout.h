/* SPDX-License-Identifier: GPL-2.0 */
/* Members of the structures of a bridge and its ports in the kernel's memory, where its type information says that they are (internal/datapath, bridges.go). */
#ifndef SHUNT_NODE_LAYOUT_H
#define SHUNT_NODE_LAYOUT_H

#include "guard.h"

/*
 * How to read the kernel's memory, for whoever reads much of it. With SHUNT_PEEK_CAST all of it is behind one pointer to nowhere, to which addresses are added: a load,
 * where a call for each costs the compiler half of the registers, even a call that the kernel replaces. Such code is compiled for this way alone, and once more
 * for the others, which is what {} stands for: each word is peeked at for itself then, as is best where there are few.
 */
struct memory {
	int how;	/* a constant: SHUNT_PEEK_CAST, or 0 */
	void *all;
};

always_inline struct memory memory_cast(void)
{
	struct memory m = { .how = SHUNT_PEEK_CAST, .all = bpf_rdonly_cast((void *)0, 0) };

	return m;
}

/* The verifier adds a number to the pointer, but not the pointer to a number. Members of one structure share what the first sum gives. */
always_inline void *memory_at(struct memory m, __u64 base, __u64 offset)
{
	void *at;

	asm("%0 = %1\n\t%0 += %2" : "=&r"(at) : "r"(m.all), "r"(base));
	asm("%0 += %1" : "+r"(at) : "r"(offset));
	return at;
}

always_inline __u64 memory8(struct memory m, __u64 base, __u64 offset)
{
	return m.how == SHUNT_PEEK_CAST ? *(volatile __u64 *)memory_at(m, base, offset) : peek(base + offset, 8);
}

always_inline __u32 memory4(struct memory m, __u64 base, __u64 offset)
{
	return m.how == SHUNT_PEEK_CAST ? *(volatile __u32 *)memory_at(m, base, offset) : peek(base + offset, 4);
}

#define BRIDGE(base, member)		((base) + frozen.bridges.member)
#define BRIDGE8(m, base, member)	memory8(m, base, frozen.bridges.member)
#define BRIDGE4(m, base, member)	memory4(m, base, frozen.bridges.member)
#define BRIDGE1(m, base, member)	(BRIDGE4(m, base, member) & 0xff)	/* never the last of its structure */

#endif
