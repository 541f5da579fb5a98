/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * chain: FIFO lists of handles, any number of them over one array of links; what ffsqueue.h and wheel.h hang on their buckets.
 *
 * A handle is a number below the array's size, and is in one list at most. Lists are rings linked both ways, so that a handle can be
 * taken out of the middle; a list is the number of its first handle, and who owns it knows whether it is empty (a bit in a bitmap).
 * A link also remembers where it is, so that nothing is queued twice or removed from where it is not. Zeroed links are in no list.
 *
 * Sharing: one CPU, or the holder of a lock. No calls are made: bpf_spin_lock() may be held. Cost: 12 bytes per handle; a few loads
 * and stores. Any kernel.
 */
#ifndef SHUNT_LIB_CHAIN_H
#define SHUNT_LIB_CHAIN_H

#include "def.h"

struct shunt_chain_link {
	__u32 next, prev;
	__u32 where;	/* 0: in no list; or else the list's number plus 1 */
};

SHUNT_FN struct shunt_chain_link *shunt_chain_at(struct shunt_chain_link *links, __u32 handles, __u32 handle)
{
	SHUNT_CHECK(SHUNT_IS_POW2(handles), "the number of handles is a power of two known when it is compiled");
	return &links[SHUNT_MASK(handle, handles - 1)];
}

/* Put a handle that is in no list behind all others of the list numbered where, which begins at *head unless it is empty. */
SHUNT_FN void shunt_chain_append(struct shunt_chain_link *links, __u32 handles, __u32 *head, int empty, __u32 where, __u32 handle)
{
	struct shunt_chain_link *new = shunt_chain_at(links, handles, handle);

	new->where = where + 1;
	if (empty) {
		new->next = new->prev = *head = handle;
	} else {
		__u32 first = *head;
		struct shunt_chain_link *front = shunt_chain_at(links, handles, first);
		__u32 last = front->prev;

		new->next = first;
		new->prev = last;
		shunt_chain_at(links, handles, last)->next = handle;
		front->prev = handle;
	}
}

/* Take a handle out of its list. Says whether the list is empty now. */
SHUNT_FN int shunt_chain_remove(struct shunt_chain_link *links, __u32 handles, __u32 *head, __u32 handle)
{
	struct shunt_chain_link *old = shunt_chain_at(links, handles, handle);
	__u32 next = old->next, prev = old->prev;

	old->where = 0;
	if (next == handle)
		return 1;
	shunt_chain_at(links, handles, prev)->next = next;
	shunt_chain_at(links, handles, next)->prev = prev;
	if (*head == handle)
		*head = next;
	return 0;
}

#endif
