/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * ffsqueue: a priority queue of handles in buckets, with a tree of bitmaps over them that finds the lowest bucket by one find-first-set
 * per level: the circular hierarchical FFS queue (cFFS) of Eiffel (Saeed et al., NSDI 2019).
 *
 * When: priorities are integers out of a window that moves upwards (times, virtual times, deadlines, ranks), and equal ones come out in
 * the order that they went in. A tree or a heap compares; this does not, and its cost does not depend on how much is queued.
 *
 *	SHUNT_FFSQ(queue, 2, 4096)
 *
 * defines struct queue, of 2 levels (1 to 4: N = 64, 4096, 2^18, 2^24 buckets per half) for handles 0 to 4095 (a power of two up to
 * 2^24), and queue_push(), queue_pop(), queue_peek(), queue_remove(). Zeroed memory is an empty queue. What a handle means is the caller's
 * affair: the index of a packet's, a flow's, a task's entry in an array.
 *
 * The window is 2N priorities wide: [base, base + 2N), base a multiple of N. It is two queues of N; when the lower one is empty and
 * something is popped from the upper one, they change places and base grows by N. Outside of it:
 *   - above: the last bucket takes it, `above` counts it. There order is lost: what is in it comes out in the order of pushing;
 *   - below: the first bucket takes it, `below` counts it: it comes out next, after what is there already;
 *   - into an empty queue: the window moves to where it is, up or down.
 * queue_pop() gives the bucket's priority, so that a handle whose own one is higher can be pushed again.
 *
 * Sharing: per CPU, or with a bpf_spin_lock around each call (none of them calls anything).
 *
 * Cost: a push and a pop together 24 ns with two levels (docs/bench-lib.md); one word is read and written per level, and the third level's buckets are not in the
 * first cache. Memory (chain.h): 4 bytes per handle and per bucket of either half with one or two levels and up to 2^15 handles, else 8, and no less than for as many
 * buckets as handles: 49 KiB for <2, 4096>, 260 MiB for 4 levels alone. Any kernel.
 */
#ifndef SHUNT_LIB_FFSQUEUE_H
#define SHUNT_LIB_FFSQUEUE_H

#include "def.h"
#include "bits.h"
#include "chain.h"

enum {
	SHUNT_FFSQ_PLACED = 0,	/* in the bucket of its priority */
	SHUNT_FFSQ_CLAMPED = 1,	/* in the first or the last one, since its priority is outside the window */
	SHUNT_FFSQ_NONE = -1,	/* pop, peek: the queue is empty; remove: the handle is not queued */
	SHUNT_FFSQ_QUEUED = -2,	/* push: the handle is queued already, and stays where it is */
	SHUNT_FFSQ_HANDLE = -3,	/* there is no such handle */
};

struct shunt_ffsq {
	__u64 base;
	__u64 above, below;	/* how many pushes were clamped */
	__u32 count;		/* how many handles are queued */
	__u32 lower;		/* which half is the lower one, 0 or 1 */
};

/* How many words of bitmap are above level `level`: 64^0 + ... + 64^(level - 1). */
#define SHUNT_FFSQ_WORDS(level) (((1ULL << 6 * (level)) - 1) / 63)

/* A half's words of bitmap. */
SHUNT_FN __u64 *shunt_ffsq_half(__u64 *words, __u32 levels, __u32 half)
{
	return words + SHUNT_MASK(half, 1) * SHUNT_FFSQ_WORDS(levels);
}

/* The word of a level, of a half's, that has the bit of a bucket. */
SHUNT_FN __u64 *shunt_ffsq_word(__u64 *words, __u32 levels, __u32 level, __u32 bucket)
{
	return level ? words + SHUNT_FFSQ_WORDS(level) + SHUNT_MASK(bucket >> 6 * (levels - level), (1 << 6 * level) - 1) : words;
}

/* Sets a bucket's bit in the word of a level, and says whether it was the first, so the level above has one to set, too. */
SHUNT_FN int shunt_ffsq_mark_level(__u64 *words, __u32 levels, __u32 up, __u32 bucket)
{
	__u64 *word = shunt_ffsq_word(words, levels, up < levels ? levels - 1 - up : 0, bucket), before = *word;

	*word = before | 1ULL << (bucket >> 6 * up & 63);
	return !before && up + 1 < levels;
}

/* No loop: clang 16 and 17 unroll none that ends early, and none whose number of turns is a parameter (hence the 4 below). */
SHUNT_FN void shunt_ffsq_mark(__u64 *words, __u32 levels, __u32 bucket)
{
	if (shunt_ffsq_mark_level(words, levels, 0, bucket) && shunt_ffsq_mark_level(words, levels, 1, bucket) && shunt_ffsq_mark_level(words, levels, 2, bucket))
		shunt_ffsq_mark_level(words, levels, 3, bucket);
}

/* Clears a bucket's bit (if 1, not 0, is said) in the word of a level, and says whether that was the last, so the level above has one to clear, too. */
SHUNT_FN int shunt_ffsq_clear_level(__u64 *word, __u32 levels, __u32 up, __u32 bucket, __u64 bit)
{
	__u64 after = *word & ~(bit << (bucket >> 6 * up & 63));

	*word = after;
	return !after && up + 1 < levels;
}

/* The bucket's bit is in `word`, as shunt_ffsq_word() of the last level finds it. */
SHUNT_FN void shunt_ffsq_clear(__u64 *words, __u64 *word, __u32 levels, __u32 bucket, __u64 bit)
{
	if (shunt_ffsq_clear_level(word, levels, 0, bucket, bit) &&
	    shunt_ffsq_clear_level(shunt_ffsq_word(words, levels, levels > 1 ? levels - 2 : 0, bucket), levels, 1, bucket, 1) &&
	    shunt_ffsq_clear_level(shunt_ffsq_word(words, levels, levels > 2 ? levels - 3 : 0, bucket), levels, 2, bucket, 1))
		shunt_ffsq_clear_level(words, levels, 3, bucket, 1);
}

/* The lowest bucket that has its bit set, of a half that has one, and the word that the bit is in. */
SHUNT_FN __u32 shunt_ffsq_lowest(__u64 *words, __u32 levels, __u64 **word)
{
	__u32 bucket = 0;

#pragma unroll
	for (__u32 level = 0; level < 4; level++)
		if (level < levels) {
			*word = shunt_ffsq_word(words, levels, level, bucket << 6 * (levels - level));
			bucket = bucket << 6 | (shunt_ctz64_of(**word) & 63);
		}
	return bucket;
}

SHUNT_FN int shunt_ffsq_push(struct shunt_ffsq *q, __u64 *words, void *links, __u32 levels, __u32 handles,
			     __u32 handle, __u64 priority)
{
	__u64 buckets = 1ULL << 6 * levels, at = priority - q->base;
	int out = SHUNT_FFSQ_PLACED;
	__u32 half, bucket;

	if (handle >= handles)
		return SHUNT_FFSQ_HANDLE;
	if (shunt_chain_in(links, handles, 2 * buckets, handle))
		return SHUNT_FFSQ_QUEUED;
	if (priority < q->base || at >= 2 * buckets) {
		if (!q->count) {
			q->base = priority & ~(buckets - 1);
			at = priority & (buckets - 1);
		} else {
			int below = priority < q->base;

			q->below += below;
			q->above += !below;
			at = below ? 0 : 2 * buckets - 1;
			out = SHUNT_FFSQ_CLAMPED;
		}
	}
	q->count++;
	half = (q->lower ^ at >> 6 * levels) & 1;
	bucket = at & (buckets - 1);
	shunt_chain_append(links, handles, 2 * buckets, half << 6 * levels | bucket, handle);
	shunt_ffsq_mark(shunt_ffsq_half(words, levels, half), levels, bucket);
	return out;
}

SHUNT_FN int shunt_ffsq_peek(struct shunt_ffsq *q, __u64 *words, void *links, __u32 levels, __u32 handles, __u64 *priority)
{
	__u64 buckets = 1ULL << 6 * levels, base = q->base, *word, *of = shunt_ffsq_half(words, levels, q->lower);
	__u32 half = q->lower, bucket;

	if (!q->count)
		return SHUNT_FFSQ_NONE;
	if (!*of) {
		half ^= 1;
		base += buckets;
		of = shunt_ffsq_half(words, levels, half);
	}
	bucket = shunt_ffsq_lowest(of, levels, &word);
	*priority = base + bucket;
	return shunt_chain_first(links, handles, 2 * buckets, half << 6 * levels | bucket);
}

SHUNT_FN int shunt_ffsq_pop(struct shunt_ffsq *q, __u64 *words, void *links, __u32 levels, __u32 handles, __u64 *priority)
{
	__u64 buckets = 1ULL << 6 * levels, *word, *of = shunt_ffsq_half(words, levels, q->lower);
	__u32 half = q->lower, bucket, handle, place;

	if (!q->count)
		return SHUNT_FFSQ_NONE;
	if (!*of) {
		half ^= 1;
		q->lower = half;
		q->base += buckets;
		of = shunt_ffsq_half(words, levels, half);
	}
	bucket = shunt_ffsq_lowest(of, levels, &word);
	*priority = q->base + bucket;
	handle = shunt_chain_first(links, handles, 2 * buckets, half << 6 * levels | bucket);
	q->count--;
	shunt_ffsq_clear(of, word, levels, bucket, shunt_chain_remove(links, handles, 2 * buckets, handle, &place));
	return handle;
}

SHUNT_FN int shunt_ffsq_remove(struct shunt_ffsq *q, __u64 *words, void *links, __u32 levels, __u32 handles, __u32 handle)
{
	__u64 buckets = 1ULL << 6 * levels, *of;
	__u32 place;

	if (handle >= handles)
		return SHUNT_FFSQ_HANDLE;
	if (!shunt_chain_in(links, handles, 2 * buckets, handle))
		return SHUNT_FFSQ_NONE;
	q->count--;
	if (shunt_chain_remove(links, handles, 2 * buckets, handle, &place)) {
		of = shunt_ffsq_half(words, levels, place >> 6 * levels);
		place &= buckets - 1;
		shunt_ffsq_clear(of, shunt_ffsq_word(of, levels, levels - 1, place), levels, place, 1);
	}
	return 0;
}

#define SHUNT_FFSQ(NAME, LEVELS, HANDLES)								\
	_Static_assert((LEVELS) >= 1 && (LEVELS) <= 4, "a queue has 1 to 4 levels");			\
	_Static_assert((HANDLES) <= 1 << 24, "2^24 handles at most");					\
	SHUNT_ASSERT_POW2(HANDLES);									\
	struct NAME {											\
		struct shunt_ffsq q;									\
		__u64 words[2 * SHUNT_FFSQ_WORDS(LEVELS)];						\
		SHUNT_CHAIN(links, HANDLES, 2 << 6 * (LEVELS));						\
	};												\
	/* Queue a handle: SHUNT_FFSQ_PLACED, _CLAMPED, _QUEUED or _HANDLE. */				\
	SHUNT_FN int NAME##_push(struct NAME *n, __u32 handle, __u64 priority)				\
	{												\
		return shunt_ffsq_push(&n->q, n->words, n->links, LEVELS, HANDLES, handle, priority);	\
	}												\
	/* The handle that is next and its bucket's priority, or SHUNT_FFSQ_NONE. */			\
	SHUNT_FN int NAME##_peek(struct NAME *n, __u64 *priority)					\
	{												\
		return shunt_ffsq_peek(&n->q, n->words, n->links, LEVELS, HANDLES, priority);			\
	}												\
	/* The same, and it is no longer queued. */							\
	SHUNT_FN int NAME##_pop(struct NAME *n, __u64 *priority)					\
	{												\
		return shunt_ffsq_pop(&n->q, n->words, n->links, LEVELS, HANDLES, priority);	\
	}												\
	/* Take a handle out, wherever it is: 0, SHUNT_FFSQ_NONE or _HANDLE. */				\
	SHUNT_FN int NAME##_remove(struct NAME *n, __u32 handle)					\
	{												\
		return shunt_ffsq_remove(&n->q, n->words, n->links, LEVELS, HANDLES, handle);	\
	}

#endif
