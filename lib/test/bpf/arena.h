/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* An arena that user space maps at ARENA_BASE before a program runs, which gives it its pages. */
#ifndef LIB_TEST_ARENA_H
#define LIB_TEST_ARENA_H

#define ARENA_BASE (1ULL << 44)

struct {
	__uint(type, 33);		/* BPF_MAP_TYPE_ARENA, which older headers lack */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);	/* pages */
	enum { arena_base = ARENA_BASE } map_extra;
} arena SEC(".maps");

#endif
