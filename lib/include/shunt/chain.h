/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * chain: FIFO lists of handles, any number of them over one array of links; what ffsqueue.h and wheel.h hang on their buckets.
 *
 * A handle is a number below the array's size, and is in one list at most. Lists are rings linked both ways, so that a handle can be
 * taken out of the middle, and each ring goes through a node of the list's own: neither the first handle of a list nor the last one is a
 * special case, and nothing here is a branch, which would be guessed wrong half of the time where most lists hold one handle or none.
 *
 *	struct lines { SHUNT_CHAIN(links, 1024, 64); };
 *
 * declares the links of 64 lists for 1,024 handles, both powers of two up to 2^30. A link is stored as its exclusive or with the number of the node that
 * it is in, so zeroed memory is lists that are empty: of nodes that lead to themselves.
 *
 * Sharing: one CPU, or the holder of a lock. No calls are made: bpf_spin_lock() may be held. Cost: a load and four stores to append, two and
 * three or four to take away. 4 bytes per handle and per list up to 2^15 of each, else 8; no less than for as many lists as handles. Any kernel.
 */
#ifndef SHUNT_LIB_CHAIN_H
#define SHUNT_LIB_CHAIN_H

#include "def.h"

enum { SHUNT_CHAIN_NEXT = 0, SHUNT_CHAIN_PREV = 1 };

#define SHUNT_CHAIN_NARROW(handles, lists) ((handles) <= 1 << 15 && (lists) <= 1 << 15)
/* So many lists that any number of a node, masked by it, is a place in the array. */
#define SHUNT_CHAIN_SPAN(handles, lists) ((handles) > (lists) ? (handles) : (lists))
#define SHUNT_CHAIN(name, handles, lists)									\
	__typeof__(__builtin_choose_expr(SHUNT_CHAIN_NARROW(handles, lists), (__u16)0, (__u32)0))		\
		name[(handles) + SHUNT_CHAIN_SPAN(handles, lists)][2]

/* What tells the number of a list's own node from a handle. */
SHUNT_FN __u32 shunt_chain_own(__u32 handles, __u32 lists)
{
	SHUNT_CHECK(SHUNT_IS_POW2(handles) && (handles) <= 1 << 30, "the number of handles is a power of two known when it is compiled");
	SHUNT_CHECK(SHUNT_IS_POW2(lists) && (lists) <= 1 << 30, "the number of lists is a power of two known when it is compiled");
	return SHUNT_CHAIN_NARROW(handles, lists) ? 1U << 15 : 1U << 31;
}

/* Where a node's two numbers are. */
SHUNT_FN void *shunt_chain_at(void *links, __u32 handles, __u32 lists, __u32 node)
{
	__u64 at = SHUNT_MASK(node, SHUNT_CHAIN_SPAN(handles, lists) - 1) + (__u64)!!(node & shunt_chain_own(handles, lists)) * handles;

	return (char *)links + at * (SHUNT_CHAIN_NARROW(handles, lists) ? 4 : 8);
}

/* Of a node that is known to be a handle's. */
SHUNT_FN void *shunt_chain_handle(void *links, __u32 handles, __u32 lists, __u32 handle)
{
	return (char *)links + SHUNT_MASK(handle, handles - 1) * (SHUNT_CHAIN_NARROW(handles, lists) ? 4 : 8);
}

/* Of a list's own node. */
SHUNT_FN void *shunt_chain_ring(void *links, __u32 handles, __u32 lists, __u32 list)
{
	return (char *)links + (handles + SHUNT_MASK(list, lists - 1)) * (SHUNT_CHAIN_NARROW(handles, lists) ? 4 : 8);
}

/* The node that one leads to. */
SHUNT_FN __u32 shunt_chain_get(const void *at, __u32 handles, __u32 lists, __u32 node, int side)
{
	return node ^ (SHUNT_CHAIN_NARROW(handles, lists) ? ((const __u16 *)at)[side] : ((const __u32 *)at)[side]);
}

SHUNT_FN void shunt_chain_set(void *at, __u32 handles, __u32 lists, __u32 node, int side, __u32 to)
{
	if (SHUNT_CHAIN_NARROW(handles, lists))
		((__u16 *)at)[side] = node ^ to;
	else
		((__u32 *)at)[side] = node ^ to;
}

/* Whether a handle is in a list. */
SHUNT_FN int shunt_chain_in(void *links, __u32 handles, __u32 lists, __u32 handle)
{
	return shunt_chain_get(shunt_chain_handle(links, handles, lists, handle), handles, lists, 0, SHUNT_CHAIN_NEXT) != 0;
}

/* The first handle of a list that has one. */
SHUNT_FN __u32 shunt_chain_first(void *links, __u32 handles, __u32 lists, __u32 list)
{
	return shunt_chain_get(shunt_chain_ring(links, handles, lists, list), handles, lists,
			       shunt_chain_own(handles, lists) | (list & (lists - 1)), SHUNT_CHAIN_NEXT);
}

/* Put a handle that is in no list behind all others of a list. */
SHUNT_FN void shunt_chain_append(void *links, __u32 handles, __u32 lists, __u32 list, __u32 handle)
{
	void *ring = shunt_chain_ring(links, handles, lists, list), *at = shunt_chain_handle(links, handles, lists, handle);
	__u32 own = shunt_chain_own(handles, lists) | (list & (lists - 1));
	__u32 last = shunt_chain_get(ring, handles, lists, own, SHUNT_CHAIN_PREV);

	shunt_chain_set(at, handles, lists, handle, SHUNT_CHAIN_NEXT, own);
	shunt_chain_set(at, handles, lists, handle, SHUNT_CHAIN_PREV, last);
	shunt_chain_set(shunt_chain_at(links, handles, lists, last), handles, lists, last, SHUNT_CHAIN_NEXT, handle);
	shunt_chain_set(ring, handles, lists, own, SHUNT_CHAIN_PREV, handle);
}

/*
 * Take a handle out of its list. Says whether that is empty now (1, or 0), and *list is its number then, else without meaning. Of one that is in no
 * list nothing changes, and what is said means nothing: ask shunt_chain_in() before.
 */
SHUNT_FN __u64 shunt_chain_remove(void *links, __u32 handles, __u32 lists, __u32 handle, __u32 *list)
{
	void *at = shunt_chain_handle(links, handles, lists, handle);
	__u32 next = shunt_chain_get(at, handles, lists, handle, SHUNT_CHAIN_NEXT);
	__u32 prev = shunt_chain_get(at, handles, lists, handle, SHUNT_CHAIN_PREV);
	__u64 apart = next ^ prev;

	shunt_chain_set(at, handles, lists, handle, SHUNT_CHAIN_NEXT, handle);
	shunt_chain_set(at, handles, lists, handle, SHUNT_CHAIN_PREV, handle);
	shunt_chain_set(shunt_chain_at(links, handles, lists, prev), handles, lists, prev, SHUNT_CHAIN_NEXT, next);
	shunt_chain_set(shunt_chain_at(links, handles, lists, next), handles, lists, next, SHUNT_CHAIN_PREV, prev);
	*list = SHUNT_MASK(next, lists - 1);
	apart = (apart - 1) >> 63;
	SHUNT_HIDE(apart); /* or a comparison, and a branch, would be made of it */
	return apart;
}

#endif
