/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * wheel: a timing wheel: handles that are due at a time come out when it is reached, in the order of their slots. The wheel of Carousel
 * (Saeed et al., SIGCOMM 2017): one level, a horizon, and everything beyond it at its end. Slots that have something in them are
 * found by two find-first-sets (bits.h) instead of being visited one by one.
 *
 * When: pacing, expiry, retransmission: things that are put off by less than a known time, and cost the same however many there are.
 *
 *	SHUNT_WHEEL(wheel, 12, 14, 4096)
 *
 * defines struct wheel: 2^12 slots (6 to 12) of 2^14 ns (0 to 40), so a horizon of 67 ms, for handles 0 to 4095 (a power of two up to
 * 2^24); and wheel_add(), wheel_next(), wheel_cancel(). Zeroed memory is an empty wheel. Times are nanoseconds of a clock that does
 * not go back (bpf_ktime_get_ns()); earlier ones than were seen before are taken as the latest seen.
 *
 * A handle is due at the first slot border at or after its time: never early, and late by less than a slot. Handles of a slot come out in
 * the order in which they were added. A time that has passed is due at once. The horizon is counted from the slot that wheel_next() gave
 * or waited for last (an empty wheel's: from now): a time beyond it is due in the last slot, WHEEL_BEYOND says so, and `beyond` counts. Then
 * the handle comes out early, and may be added again.
 *
 * Sharing: per CPU, or with a bpf_spin_lock around each call (none of them calls anything).
 *
 * Cost: adding and taking out together 33 ns (docs/bench-lib.md); 4 bytes per slot and per handle (8 with more than 2^15 handles), no less than for as many slots as
 * handles (chain.h). wheel_next() gives one handle, so whoever calls it bounds the work. Any kernel.
 */
#ifndef SHUNT_LIB_WHEEL_H
#define SHUNT_LIB_WHEEL_H

#include "def.h"
#include "bits.h"
#include "chain.h"

enum {
	SHUNT_WHEEL_BEYOND = 1,		/* add: due at the horizon, which is before its time */
	SHUNT_WHEEL_EMPTY = -1,		/* next: there is nothing; cancel: the handle is not in the wheel */
	SHUNT_WHEEL_ADDED = -2,		/* add: the handle is in the wheel already, and stays where it is */
	SHUNT_WHEEL_HANDLE = -3,	/* there is no such handle */
	SHUNT_WHEEL_LATER = -4,		/* next: nothing is due yet */
};

struct shunt_wheel {
	__u64 at;	/* the slot, counted from time 0, at which the window begins: nothing is in a slot before it */
	__u64 beyond;
	__u64 summary;	/* which words have a bit */
	__u32 count, unused;
	__u64 word[64];	/* which slots have a handle */
};

/* How many slots from the window's first on the first one is that has a handle. There is one. */
SHUNT_FN __u32 shunt_wheel_first(struct shunt_wheel *w, __u32 log2slots)
{
	__u32 from = w->at & ((1U << log2slots) - 1), at, slot;
	__u64 here = w->word[SHUNT_MASK(from >> 6, 63)] & ~0ULL << (from & 63), after;

	if (here) {
		slot = (from & ~63U) | shunt_ctz64_of(here);
	} else {
		/* The words after this one, or else from the first on; this one's lower slots are the window's last. */
		after = w->summary & ~1ULL << (from >> 6);
		at = SHUNT_MASK(shunt_ctz64_of(after ? after : w->summary), 63);
		slot = at << 6 | (shunt_ctz64_of(w->word[at]) & 63);
	}
	return (slot - from) & ((1U << log2slots) - 1);
}

SHUNT_FN int shunt_wheel_add(struct shunt_wheel *w, void *links, __u32 log2slots, __u32 log2ns, __u32 handles,
			     __u32 handle, __u64 when, __u64 now)
{
	__u64 due = (when >> log2ns) + !!(when & ((1ULL << log2ns) - 1)), bit;
	__u32 slot, at;
	int out = 0;

	if (handle >= handles)
		return SHUNT_WHEEL_HANDLE;
	if (shunt_chain_in(links, handles, 1 << log2slots, handle))
		return SHUNT_WHEEL_ADDED;
	if (!w->count && now >> log2ns > w->at)
		w->at = now >> log2ns;
	if (due < w->at)
		due = w->at;
	if ((due - w->at) >> log2slots) {
		due = w->at + (1ULL << log2slots) - 1;
		w->beyond++;
		out = SHUNT_WHEEL_BEYOND;
	}
	w->count++;
	slot = SHUNT_MASK(due, (1 << log2slots) - 1);
	at = SHUNT_MASK(slot >> 6, 63);
	bit = 1ULL << (slot & 63);
	shunt_chain_append(links, handles, 1 << log2slots, slot, handle);
	w->word[at] |= bit;
	w->summary |= 1ULL << at;
	return out;
}

/* A slot that has become empty, if 1, not 0, is said. */
SHUNT_FN void shunt_wheel_clear(struct shunt_wheel *w, __u32 slot, __u64 empty)
{
	__u32 at = SHUNT_MASK(slot >> 6, 63);
	__u64 after = w->word[at] & ~(empty << (slot & 63));

	w->word[at] = after;
	if (!after)
		w->summary &= ~(1ULL << at);
}

SHUNT_FN int shunt_wheel_next(struct shunt_wheel *w, void *links, __u32 log2slots, __u32 log2ns, __u32 handles,
			      __u64 now, __u64 *when)
{
	__u64 slot, today = now >> log2ns;
	__u32 handle, list;

	if (!w->count)
		return SHUNT_WHEEL_EMPTY;
	slot = w->at + shunt_wheel_first(w, log2slots);
	*when = slot << log2ns;
	if (slot > today) {
		if (today > w->at)
			w->at = today;
		return SHUNT_WHEEL_LATER;
	}
	w->at = slot;
	handle = shunt_chain_first(links, handles, 1 << log2slots, slot);
	w->count--;
	shunt_wheel_clear(w, slot & ((1 << log2slots) - 1), shunt_chain_remove(links, handles, 1 << log2slots, handle, &list));
	return handle;
}

SHUNT_FN int shunt_wheel_cancel(struct shunt_wheel *w, void *links, __u32 log2slots, __u32 handles, __u32 handle)
{
	__u32 slot;

	if (handle >= handles)
		return SHUNT_WHEEL_HANDLE;
	if (!shunt_chain_in(links, handles, 1 << log2slots, handle))
		return SHUNT_WHEEL_EMPTY;
	w->count--;
	if (shunt_chain_remove(links, handles, 1 << log2slots, handle, &slot))
		shunt_wheel_clear(w, slot, 1);
	return 0;
}

#define SHUNT_WHEEL(NAME, LOG2SLOTS, LOG2NS, HANDLES)							\
	_Static_assert((LOG2SLOTS) >= 6 && (LOG2SLOTS) <= 12, "a wheel has 2^6 to 2^12 slots");		\
	_Static_assert((LOG2NS) >= 0 && (LOG2NS) <= 40, "a slot lasts 2^0 to 2^40 ns");			\
	_Static_assert((HANDLES) <= 1 << 24, "2^24 handles at most");					\
	SHUNT_ASSERT_POW2(HANDLES);									\
	struct NAME {											\
		struct shunt_wheel w;									\
		SHUNT_CHAIN(links, HANDLES, 1 << (LOG2SLOTS));						\
	};												\
	/* Put a handle off until `when`: 0, SHUNT_WHEEL_BEYOND, _ADDED or _HANDLE. */			\
	SHUNT_FN int NAME##_add(struct NAME *n, __u32 handle, __u64 when, __u64 now)			\
	{												\
		return shunt_wheel_add(&n->w, n->links, LOG2SLOTS, LOG2NS, HANDLES, handle, when, now);	\
	}												\
	/* A handle that is due, which leaves the wheel; or SHUNT_WHEEL_LATER (*when: the slot's beginning) or _EMPTY. */	\
	SHUNT_FN int NAME##_next(struct NAME *n, __u64 now, __u64 *when)				\
	{												\
		return shunt_wheel_next(&n->w, n->links, LOG2SLOTS, LOG2NS, HANDLES, now, when);	\
	}												\
	/* Take a handle out: 0, SHUNT_WHEEL_EMPTY or _HANDLE. */					\
	SHUNT_FN int NAME##_cancel(struct NAME *n, __u32 handle)					\
	{												\
		return shunt_wheel_cancel(&n->w, n->links, LOG2SLOTS, HANDLES, handle);	\
	}

#endif
