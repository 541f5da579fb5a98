/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * bucket: many first-in-first-out lists of 64-bit values that share one supply of nodes.
 *
 * When: things are sorted into slots (of time, of rank, of priority, of flow) and taken out slot by slot, as timing wheels and bucket
 * queues do (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987; Carousel, SIGCOMM 2017; Eiffel, NSDI 2019). How many
 * lie in one slot is bounded only by how many there are at all. Which slot is not empty is somebody else's knowledge: a bitmap's.
 *
 * A value is what you make of it: a number, a time, an index into an array of your own.
 *
 * One map value holds the whole: the lists' ends, then nodes of 16 bytes linked by index. Node 0 is none; zeroed memory is empty lists.
 * The number of a list is taken modulo the number of lists, so every number is one of a list.
 *
 * Sharing: one CPU at a time, that is per-CPU maps or a bpf_spin_lock around each call (no call is made inside, so the lock may be held).
 *
 * Cost: no loop, so an operation is 20 to 30 instructions and touches the list's ends, one node, and for a push the last one. 8 bytes per
 * list and 16 per value. Kernel 6.1.
 */
#ifndef SHUNT_LIB_BUCKET_H
#define SHUNT_LIB_BUCKET_H

#include "def.h"

#ifndef ENOENT
#define ENOENT 2
#endif
#ifndef ENOSPC
#define ENOSPC 28
#endif

struct shunt_bucket {
	__u32 first, last;	/* last says nothing if first is 0 */
};

struct shunt_bucket_node {
	__u64 value;
	__u32 next;
	__u32 unused;
};

struct shunt_buckets {
	__u32 used;		/* how many values are in all lists */
	__u32 fresh;		/* nodes up to this one have been used before */
	__u32 free;		/* nodes given back, chained by next */
	__u32 unused;
};

/* struct NAME: LISTS lists that together hold SIZE - 1 values; both are powers of two, SIZE from 2 to 2^24, LISTS to 2^24. */
#define SHUNT_BUCKETS(name, lists, size)				\
	SHUNT_ASSERT_POW2(lists);					\
	SHUNT_ASSERT_POW2(size);					\
	_Static_assert((size) >= 2 && (size) <= 1 << 24 && (lists) <= 1 << 24, "2 to 2^24 nodes, at most 2^24 lists");	\
	struct name {							\
		struct shunt_buckets head;				\
		struct shunt_bucket list[lists];			\
		struct shunt_bucket_node node[size];			\
	}

SHUNT_FN struct shunt_bucket *shunt_bucket_list(struct shunt_buckets *b, __u32 lists, __u32 list)
{
	SHUNT_CHECK(SHUNT_IS_POW2(lists) && lists <= 1 << 24, "1 to 2^24 lists, a power of two known when it is compiled");
	return (void *)(b + 1) + SHUNT_MASK(list, lists - 1) * sizeof(struct shunt_bucket);
}

SHUNT_FN struct shunt_bucket_node *shunt_bucket_node(struct shunt_buckets *b, __u32 lists, __u32 size, __u32 ref)
{
	SHUNT_CHECK(SHUNT_IS_POW2(size) && size >= 2 && size <= 1 << 24, "2 to 2^24 nodes, a power of two known when it is compiled");
	return (void *)(b + 1) + lists * sizeof(struct shunt_bucket) + SHUNT_MASK(ref, size - 1) * sizeof(struct shunt_bucket_node);
}

/* Appends a value to a list: 0, or -ENOSPC if all nodes are in use; then nothing has changed. */
SHUNT_FN int shunt_bucket_push(struct shunt_buckets *b, __u32 lists, __u32 size, __u32 list, __u64 value)
{
	struct shunt_bucket *to = shunt_bucket_list(b, lists, list);
	struct shunt_bucket_node *node;
	__u32 ref = b->free;

	if (ref) {
		node = shunt_bucket_node(b, lists, size, ref);
		b->free = node->next;
	} else if (b->fresh < size - 1) {
		ref = ++b->fresh;
		node = shunt_bucket_node(b, lists, size, ref);
	} else {
		return -ENOSPC;
	}
	node->value = value;
	node->next = 0;
	if (to->first)
		shunt_bucket_node(b, lists, size, to->last)->next = ref;
	else
		to->first = ref;
	to->last = ref;
	b->used++;
	return 0;
}

/* Takes the oldest value of a list: 0, or -ENOENT if the list is empty; then *value is as it was. */
SHUNT_FN int shunt_bucket_pop(struct shunt_buckets *b, __u32 lists, __u32 size, __u32 list, __u64 *value)
{
	struct shunt_bucket *from = shunt_bucket_list(b, lists, list);
	__u32 ref = from->first;
	struct shunt_bucket_node *node = shunt_bucket_node(b, lists, size, ref);

	if (!ref)
		return -ENOENT;
	*value = node->value;
	from->first = node->next;
	node->next = b->free;
	b->free = ref;
	b->used--;
	return 0;
}

/* The oldest value of a list, which stays: 0 or -ENOENT. */
SHUNT_FN int shunt_bucket_peek(struct shunt_buckets *b, __u32 lists, __u32 size, __u32 list, __u64 *value)
{
	__u32 ref = shunt_bucket_list(b, lists, list)->first;

	if (!ref)
		return -ENOENT;
	*value = shunt_bucket_node(b, lists, size, ref)->value;
	return 0;
}

/* Whether a list has no value. */
SHUNT_FN int shunt_bucket_empty(struct shunt_buckets *b, __u32 lists, __u32 list)
{
	return !shunt_bucket_list(b, lists, list)->first;
}

/*
 * Appends all of one list to another, in order and whatever their lengths at the same cost; the first is empty afterwards. A list given to
 * itself stays as it is.
 */
SHUNT_FN void shunt_bucket_splice(struct shunt_buckets *b, __u32 lists, __u32 size, __u32 list, __u32 onto)
{
	struct shunt_bucket *from = shunt_bucket_list(b, lists, list), *to = shunt_bucket_list(b, lists, onto);
	__u32 ref = from->first;

	if (!ref || ((list ^ onto) & (lists - 1)) == 0)
		return;
	if (to->first)
		shunt_bucket_node(b, lists, size, to->last)->next = ref;
	else
		to->first = ref;
	to->last = from->last;
	from->first = 0;
}

#endif
