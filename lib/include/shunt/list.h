/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * list: doubly-linked lists over the memories of pool.h.
 *
 * When: an order that you decide (least recently used, first come first served, round robin) and nodes that leave it from anywhere. For
 * many queues of plain numbers bucket.h is smaller.
 *
 *   struct conn { SHUNT_LINK; __u64 id; };
 *   struct conns { SHUNT_NODES(struct conn, 4096); SHUNT_LIST(lru, conn); };
 *
 * m is a pointer to the struct with the nodes, list one to a list's head in it:
 *   shunt_list_push_front(m, list, ref), shunt_list_push_back(...)
 *                               0; -EINVAL if the reference is none or its node is free or in a list already
 *   shunt_list_pop_front(m, list), shunt_list_pop_back(...)
 *                               the node, now yours; none if the list is empty
 * and, in a map's value or an arena:
 *   shunt_list_remove(m, list, ref)      0; -EINVAL if the node is not in this list
 *   shunt_list_move_front(m, list, ref), shunt_list_move_back(...)   the same, and to this end of the list
 *   shunt_list_next(m, ref), shunt_list_prev(m, ref)   none at the end
 *   SHUNT_LIST_EACH(m, list, ref, bound) { ... }       walks; at most `bound` turns, so that the verifier ends. The body may not take
 *                               the node from the list.
 * "This list" is told by its number: lists in one supply that are numbered apart (list->id, up to 65000, 0 if nothing is said) do not
 * take each other's nodes for their own. With equal numbers that check is yours.
 *
 * Kernel objects: push and pop only, each under the lock of SHUNT_NODES. To remove, move or walk, turn the list round: pop at one end,
 * look, push at the other. (bpf_list_front() and bpf_list_back() would look without taking; 6.18 has them, 6.12 has not.)
 *
 * Cost: 20 to 40 instructions, three nodes touched. Each link is 4 bytes in a map's value, 8 in an arena.
 */
#ifndef SHUNT_LIB_LIST_H
#define SHUNT_LIB_LIST_H

#include "pool.h"

#ifndef SHUNT_OBJECTS

struct shunt_link {
	struct shunt_node node;
	shunt_ref prev;
} __attribute__((aligned(8)));

struct shunt_list {
	shunt_ref first, last;
	__u32 len;
	__u32 id;
};

#define SHUNT_LINK struct shunt_link link
#define SHUNT_LIST(name, type) struct shunt_list name

SHUNT_FN struct shunt_link SHUNT_MEM *shunt_link_at(struct shunt_memory m, shunt_ref ref)
{
	return (struct shunt_link SHUNT_MEM *)shunt_node_at(m, ref);
}

/* Puts a node between two neighbours, of which either may be none: then it is the list's end. */
SHUNT_FN int shunt_list_put_in(struct shunt_memory m, struct shunt_list SHUNT_MEM *list, shunt_ref ref, shunt_ref prev, shunt_ref next)
{
	struct shunt_link SHUNT_MEM *at = shunt_link_at(m, ref);

	if (!ref || at->node.where != SHUNT_HELD)
		return -EINVAL;
	at->node.where = SHUNT_LINKED + list->id;
	at->node.next = next;
	at->prev = prev;
	if (prev)
		shunt_link_at(m, prev)->node.next = ref;
	else
		list->first = ref;
	if (next)
		shunt_link_at(m, next)->prev = ref;
	else
		list->last = ref;
	list->len++;
	return 0;
}

SHUNT_FN int shunt_list_remove_in(struct shunt_memory m, struct shunt_list SHUNT_MEM *list, shunt_ref ref)
{
	struct shunt_link SHUNT_MEM *at = shunt_link_at(m, ref);
	shunt_ref prev, next;

	if (!ref || at->node.where != (__u16)(SHUNT_LINKED + list->id))
		return -EINVAL;
	at->node.where = SHUNT_HELD;
	prev = at->prev;
	next = at->node.next;
	if (prev)
		shunt_link_at(m, prev)->node.next = next;
	else
		list->first = next;
	if (next)
		shunt_link_at(m, next)->prev = prev;
	else
		list->last = prev;
	list->len--;
	return 0;
}

SHUNT_FN shunt_ref shunt_list_pop_in(struct shunt_memory m, struct shunt_list SHUNT_MEM *list, shunt_ref ref)
{
	return shunt_list_remove_in(m, list, ref) ? SHUNT_NIL : ref;
}

SHUNT_FN int shunt_list_move_in(struct shunt_memory m, struct shunt_list SHUNT_MEM *list, shunt_ref ref, int front)
{
	if (shunt_list_remove_in(m, list, ref))
		return -EINVAL;
	return front ? shunt_list_put_in(m, list, ref, SHUNT_NIL, list->first) : shunt_list_put_in(m, list, ref, list->last, SHUNT_NIL);
}

#define shunt_list_push_front(m, list, ref) shunt_list_put_in(SHUNT_MEMORY(m), list, ref, SHUNT_NIL, (list)->first)
#define shunt_list_push_back(m, list, ref) shunt_list_put_in(SHUNT_MEMORY(m), list, ref, (list)->last, SHUNT_NIL)
#define shunt_list_pop_front(m, list) shunt_list_pop_in(SHUNT_MEMORY(m), list, (list)->first)
#define shunt_list_pop_back(m, list) shunt_list_pop_in(SHUNT_MEMORY(m), list, (list)->last)
#define shunt_list_remove(m, list, ref) shunt_list_remove_in(SHUNT_MEMORY(m), list, ref)
#define shunt_list_move_front(m, list, ref) shunt_list_move_in(SHUNT_MEMORY(m), list, ref, 1)
#define shunt_list_move_back(m, list, ref) shunt_list_move_in(SHUNT_MEMORY(m), list, ref, 0)
#define shunt_list_next(m, ref) (shunt_node_at(SHUNT_MEMORY(m), ref)->next)
#define shunt_list_prev(m, ref) (shunt_link_at(SHUNT_MEMORY(m), ref)->prev)

#define SHUNT_LIST_EACH(m, list, ref, bound)				\
	ref = (list)->first;						\
	for (__u32 shunt_turn = 0; ref && shunt_turn < (bound); shunt_turn++, ref = shunt_list_next(m, ref))

#else /* SHUNT_OBJECTS */

extern int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, __u64 off) __attribute__((section(".ksyms")));
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, __u64 off) __attribute__((section(".ksyms")));
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __attribute__((section(".ksyms")));
extern struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *head) __attribute__((section(".ksyms")));

#define SHUNT_LINK struct bpf_list_node link
#define SHUNT_LIST(name, type) struct bpf_list_head name SHUNT_CONTAINS(type, link)

#define SHUNT_LIST_PUSH(m, list, ref, end) ({							\
	bpf_spin_lock(&(m)->lock);								\
	bpf_list_push_##end##_impl(list, &(ref)->link, SHUNT_NIL, 0);				\
	bpf_spin_unlock(&(m)->lock);								\
	0;											\
})

/* The link comes first in its node. */
#define SHUNT_LIST_POP(m, list, end) ({								\
	_Static_assert(__builtin_offsetof(SHUNT_TYPE(m), link) == 0, "SHUNT_LINK comes first");	\
	struct bpf_list_node *__link;								\
	bpf_spin_lock(&(m)->lock);								\
	__link = bpf_list_pop_##end(list);							\
	bpf_spin_unlock(&(m)->lock);								\
	(SHUNT_TYPE(m) *)__link;								\
})

#define shunt_list_push_front(m, list, ref) SHUNT_LIST_PUSH(m, list, ref, front)
#define shunt_list_push_back(m, list, ref) SHUNT_LIST_PUSH(m, list, ref, back)
#define shunt_list_pop_front(m, list) SHUNT_LIST_POP(m, list, front)
#define shunt_list_pop_back(m, list) SHUNT_LIST_POP(m, list, back)

#endif

#endif
