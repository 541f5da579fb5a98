/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * tree: red-black trees over the memories of pool.h: an ordered map and a priority queue whose depth is bounded whatever comes.
 *
 * When: keys in order with a guaranteed worst case: deadlines, ranks, ranges. For ranks that are small numbers a bucket queue is faster; a
 * skip list (skiplist.h) has smaller updates and a worst case by chance only. Source: Guibas and Sedgewick 1978; Cormen et al., chapter 13.
 *
 *   struct timer { SHUNT_LEAF; __u64 flow; };
 *   struct timers { SHUNT_NODES(struct timer, 4096); SHUNT_TREE(tree, timer); };
 *
 * m is a pointer to the struct with the nodes, tree one to a tree's root in it; the key of a node, 64 bits, is shunt_key(shunt_at(m, ref)),
 * to be set while the node is in no tree:
 *   shunt_tree_add(m, tree, ref)         puts a node in, behind those of the same key: 0; -EINVAL if the reference is none or its node
 *                                        is free or in a tree already; -ELOOP (below)
 *   shunt_tree_insert(m, tree, ref)      the same, or -EEXIST if the key is there: then the node stays yours
 *   shunt_tree_pop_first(m, tree)        takes out the node of the smallest key, of equal ones the oldest; none if the tree is empty
 *   shunt_tree_take(m, tree, key)        takes out the oldest node of this key; none if there is none
 *   shunt_tree_first_key(m, tree, &key)  the smallest key: 0, or -ENOENT
 *   shunt_tree_with(m, tree, key, node, statement)
 *                                        runs the statement with `node` the oldest of this key, which stays: 1, or 0 if there is none
 *   shunt_tree_with_from(...)            the same with the first node whose key is not less
 * and, in a map's value or an arena:
 *   shunt_tree_first(m, tree), shunt_tree_find(m, tree, key), shunt_tree_lower(m, tree, key), shunt_tree_next(m, ref)
 *                                        references, or none: the first of all, of this key, not less than it; the one after
 *   shunt_tree_remove(m, tree, ref)      0; -EINVAL if the node is not in this tree (told by tree->id, as lists by theirs)
 *
 * Depth: n nodes are at most 2 log2(n + 1) deep, so SHUNT_TREE_DEPTH, 40, is enough for the 2^20 nodes that a supply may have, and every
 * loop ends there. Only a tree that was damaged, by a writer without the lock, can be deeper: adding gives -ELOOP.
 * Descending takes no branch that depends on keys (mispredicted every second time, and for a verifier a fork): directions are computed.
 *
 * Kernel objects: bpf_rbtree_add_impl() and its kin under the lock of SHUNT_NODES; add, first_key and pop_first need 6.12. Searching, and
 * with it insert, take and with, needs bpf_rbtree_root(), _left() and _right(), which 6.18 has and 6.12 has not: define
 * SHUNT_OBJECTS_SEARCH before inclusion to have it. Next and remove by reference do not exist there: references do not outlive the lock.
 *
 * Cost: 14 instructions per level searched. A node's part is 24 bytes in a map's value, 40 in an arena.
 */
#ifndef SHUNT_LIB_TREE_H
#define SHUNT_LIB_TREE_H

#include "pool.h"

#define SHUNT_TREE_DEPTH 40

#ifndef SHUNT_OBJECTS

struct shunt_leaf {
	struct shunt_node node;		/* next is the parent */
	shunt_ref child[2];		/* of smaller keys; of greater and equal ones */
	__u64 key;
};

struct shunt_tree {
	shunt_ref root;
	__u32 len;
	__u32 id;
} __attribute__((aligned(8)));

#define SHUNT_LEAF struct shunt_leaf leaf
#define SHUNT_TREE(name, type) struct shunt_tree name
#define shunt_key(n) ((n)->leaf.key)

SHUNT_FN struct shunt_leaf SHUNT_MEM *shunt_leaf_at(struct shunt_memory m, shunt_ref ref)
{
	return (struct shunt_leaf SHUNT_MEM *)shunt_node_at(m, ref);
}

/* 1 if a < b, else 0: the borrow of the subtraction. */
SHUNT_FN __u64 shunt_tree_less(__u64 a, __u64 b)
{
	__u64 borrow = (~a & b) | (~(a ^ b) & (a - b));

	SHUNT_HIDE(borrow);
	return borrow >> 63;
}

/* 1 if a is not b, else 0. */
SHUNT_FN __u64 shunt_tree_differ(shunt_ref a, shunt_ref b)
{
	__u64 x = (__u64)a ^ (__u64)b, minus = x;

	SHUNT_HIDE(minus);
	minus = x | -minus;
	SHUNT_HIDE(minus);
	return minus >> 63;
}

SHUNT_FN shunt_ref SHUNT_MEM *shunt_tree_child(struct shunt_memory m, shunt_ref ref, __u64 side)
{
	return &shunt_leaf_at(m, ref)->child[SHUNT_MASK(side, 1)];
}

SHUNT_FN int shunt_tree_is_red(struct shunt_memory m, shunt_ref ref)
{
	return ref && shunt_node_at(m, ref)->red;
}

/* Has whoever points to `old` (the parent `up`, or the root) point to `new` instead. */
SHUNT_FN void shunt_tree_replace(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref up, shunt_ref old, shunt_ref new)
{
	if (up)
		*shunt_tree_child(m, up, shunt_tree_differ(*shunt_tree_child(m, up, 0), old)) = new;
	else
		tree->root = new;
}

/* Turns a node down to this side; its child of the other side, which there has to be, takes its place. */
SHUNT_FN void shunt_tree_rotate(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref ref, __u64 side)
{
	shunt_ref up = shunt_node_at(m, ref)->next, top = *shunt_tree_child(m, ref, side ^ 1), inner = *shunt_tree_child(m, top, side);

	*shunt_tree_child(m, ref, side ^ 1) = inner;
	if (inner)
		shunt_node_at(m, inner)->next = ref;
	shunt_node_at(m, top)->next = up;
	shunt_tree_replace(m, tree, up, ref, top);
	*shunt_tree_child(m, top, side) = ref;
	shunt_node_at(m, ref)->next = top;
}

/* Which side of its parent a node is on. */
SHUNT_FN __u64 shunt_tree_side(struct shunt_memory m, shunt_ref up, shunt_ref ref)
{
	return shunt_tree_differ(*shunt_tree_child(m, up, 0), ref);
}

SHUNT_FN int shunt_tree_add_in(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref ref, int unique)
{
	struct shunt_leaf SHUNT_MEM *at = shunt_leaf_at(m, ref);
	shunt_ref up = SHUNT_NIL, to = tree->root, top;
	__u64 key, side = 0, outer;
	int turn;

	if (!ref || at->node.where != SHUNT_HELD)
		return -EINVAL;
	key = at->key;
#pragma nounroll
	for (turn = 0; turn < SHUNT_TREE_DEPTH && to; turn++) {
		__u64 here = shunt_leaf_at(m, to)->key;

		if (unique && here == key)
			return -EEXIST;
		up = to;
		side = shunt_tree_less(key, here) ^ 1;
		to = *shunt_tree_child(m, to, side);
	}
	if (to)
		return -ELOOP;
	at->node.where = SHUNT_LINKED + tree->id;
	at->node.next = up;
	at->node.red = 1;
	at->child[0] = SHUNT_NIL;
	SHUNT_APART();
	at->child[1] = SHUNT_NIL;
	tree->len++;
	if (!up) {
		tree->root = ref;
		at->node.red = 0;
		return 0;
	}
	*shunt_tree_child(m, up, side) = ref;

	/* A red node below a red one: while the parent's sibling is red too, the trouble moves two levels up. */
#pragma nounroll
	for (turn = 0; turn < SHUNT_TREE_DEPTH; turn++) {
		shunt_ref aunt;

		if (!shunt_tree_is_red(m, up))
			return 0;
		top = shunt_node_at(m, up)->next; /* there is one: a root is black */
		if (!top)
			return 0;
		aunt = *shunt_tree_child(m, top, shunt_tree_side(m, top, up) ^ 1);
		if (!shunt_tree_is_red(m, aunt))
			break;
		shunt_node_at(m, aunt)->red = 0;
		shunt_node_at(m, up)->red = 0;
		ref = top;
		up = shunt_node_at(m, top)->next;
		if (!up)
			return 0; /* the root stays black */
		shunt_node_at(m, top)->red = 1;
	}
	/* Else it ends with one rotation, or two if the node is on the inner side. */
	top = shunt_node_at(m, up)->next;
	outer = shunt_tree_side(m, top, up);
	if (shunt_tree_side(m, up, ref) != outer) {
		shunt_tree_rotate(m, tree, up, outer);
		up = ref;
	}
	shunt_node_at(m, up)->red = 0;
	shunt_node_at(m, top)->red = 1;
	shunt_tree_rotate(m, tree, top, outer ^ 1);
	return 0;
}

/* Gives a black back that was taken on the way from `up` to `ref` (which may be none). */
SHUNT_FN void shunt_tree_repair(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref up, shunt_ref ref)
{
	shunt_ref other;
	__u64 side;

	/* While all around is black, the sibling gives one up too, and the trouble moves one level up. */
#pragma nounroll
	for (int turn = 0; turn < SHUNT_TREE_DEPTH; turn++) {
		if (!up)
			return;
		side = shunt_tree_side(m, up, ref);
		other = *shunt_tree_child(m, up, side ^ 1); /* there is one: blacks are missing on this side */
		if (!other)
			return;
		if (shunt_node_at(m, up)->red || shunt_node_at(m, other)->red || shunt_tree_is_red(m, *shunt_tree_child(m, other, 0)) ||
		    shunt_tree_is_red(m, *shunt_tree_child(m, other, 1)))
			break;
		shunt_node_at(m, other)->red = 1;
		ref = up;
		up = shunt_node_at(m, up)->next;
	}
	if (!up)
		return;
	side = shunt_tree_side(m, up, ref);
	other = *shunt_tree_child(m, up, side ^ 1);
	if (shunt_tree_is_red(m, other)) { /* its children are black: one of them becomes the sibling */
		shunt_node_at(m, other)->red = 0;
		shunt_node_at(m, up)->red = 1;
		shunt_tree_rotate(m, tree, up, side);
		other = *shunt_tree_child(m, up, side ^ 1);
	}
	if (!other)
		return;
	if (!shunt_tree_is_red(m, *shunt_tree_child(m, other, side ^ 1))) {
		shunt_ref inner = *shunt_tree_child(m, other, side);

		if (!shunt_tree_is_red(m, inner)) { /* then the parent is red */
			shunt_node_at(m, other)->red = 1;
			shunt_node_at(m, up)->red = 0;
			return;
		}
		shunt_node_at(m, inner)->red = 0;
		shunt_node_at(m, other)->red = 1;
		shunt_tree_rotate(m, tree, other, side ^ 1);
		other = inner;
	}
	shunt_node_at(m, other)->red = shunt_node_at(m, up)->red;
	shunt_node_at(m, up)->red = 0;
	shunt_node_at(m, *shunt_tree_child(m, other, side ^ 1))->red = 0;
	shunt_tree_rotate(m, tree, up, side);
}

SHUNT_FN int shunt_tree_remove_in(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref ref)
{
	struct shunt_leaf SHUNT_MEM *at = shunt_leaf_at(m, ref);
	shunt_ref up, less, more, heir, below;
	int red;

	if (!ref || at->node.where != (__u16)(SHUNT_LINKED + tree->id))
		return -EINVAL;
	at->node.where = SHUNT_HELD;
	tree->len--;
	up = at->node.next;
	less = at->child[0];
	more = at->child[1];
	red = at->node.red;
	if (less && more) { /* the next greater one takes its place; what is missing is missing where that was */
		heir = more;
#pragma nounroll
		for (int turn = 0; turn < SHUNT_TREE_DEPTH; turn++) {
			shunt_ref left = *shunt_tree_child(m, heir, 0);

			if (!left)
				break;
			heir = left;
		}
		red = shunt_node_at(m, heir)->red;
		below = *shunt_tree_child(m, heir, 1);
		shunt_tree_replace(m, tree, up, ref, heir);
		*shunt_tree_child(m, heir, 0) = less;
		shunt_node_at(m, less)->next = heir;
		shunt_node_at(m, heir)->red = at->node.red;
		if (heir == more) {
			shunt_node_at(m, heir)->next = up;
			up = heir;
		} else {
			shunt_ref left = shunt_node_at(m, heir)->next;

			*shunt_tree_child(m, left, 0) = below;
			if (below)
				shunt_node_at(m, below)->next = left;
			*shunt_tree_child(m, heir, 1) = more;
			shunt_node_at(m, more)->next = heir;
			shunt_node_at(m, heir)->next = up;
			up = left;
		}
	} else {
		below = less ? less : more;
		shunt_tree_replace(m, tree, up, ref, below);
		if (below)
			shunt_node_at(m, below)->next = up;
	}
	if (red)
		return 0;
	if (shunt_tree_is_red(m, below))
		shunt_node_at(m, below)->red = 0;
	else
		shunt_tree_repair(m, tree, up, below);
	return 0;
}

/* The first node whose key is not less. */
SHUNT_FN shunt_ref shunt_tree_lower_in(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, __u64 key)
{
	__u64 found = 0;
	shunt_ref to = tree->root;

#pragma nounroll
	for (int turn = 0; turn < SHUNT_TREE_DEPTH && to; turn++) {
		__u64 side = shunt_tree_less(shunt_leaf_at(m, to)->key, key);

		found ^= (found ^ (__u64)to) & (side - 1); /* to, if the way goes left */
		to = *shunt_tree_child(m, to, side);
	}
	return (shunt_ref)found;
}

SHUNT_FN shunt_ref shunt_tree_find_in(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, __u64 key)
{
	shunt_ref ref = shunt_tree_lower_in(m, tree, key);

	return ref && shunt_leaf_at(m, ref)->key == key ? ref : SHUNT_NIL;
}

/* The end of a way that always goes to this side. */
SHUNT_FN shunt_ref shunt_tree_end_in(struct shunt_memory m, shunt_ref ref, __u64 side)
{
#pragma nounroll
	for (int turn = 0; ref && turn < SHUNT_TREE_DEPTH; turn++) {
		shunt_ref next = *shunt_tree_child(m, ref, side);

		if (!next)
			break;
		ref = next;
	}
	return ref;
}

SHUNT_FN shunt_ref shunt_tree_next_in(struct shunt_memory m, shunt_ref ref)
{
	shunt_ref more = *shunt_tree_child(m, ref, 1), up = shunt_node_at(m, ref)->next;

	if (more)
		return shunt_tree_end_in(m, more, 0);
#pragma nounroll
	for (int turn = 0; up && turn < SHUNT_TREE_DEPTH; turn++) { /* up to where the way came from the left */
		if (*shunt_tree_child(m, up, 1) != ref)
			return up;
		ref = up;
		up = shunt_node_at(m, up)->next;
	}
	return SHUNT_NIL;
}

/* The reference, if it could be taken out. */
SHUNT_FN shunt_ref shunt_tree_take_in(struct shunt_memory m, struct shunt_tree SHUNT_MEM *tree, shunt_ref ref)
{
	return shunt_tree_remove_in(m, tree, ref) ? SHUNT_NIL : ref;
}

#define shunt_tree_add(m, tree, ref) shunt_tree_add_in(SHUNT_MEMORY(m), tree, ref, 0)
#define shunt_tree_insert(m, tree, ref) shunt_tree_add_in(SHUNT_MEMORY(m), tree, ref, 1)
#define shunt_tree_remove(m, tree, ref) shunt_tree_remove_in(SHUNT_MEMORY(m), tree, ref)
#define shunt_tree_first(m, tree) shunt_tree_end_in(SHUNT_MEMORY(m), (tree)->root, 0)
#define shunt_tree_find(m, tree, key) shunt_tree_find_in(SHUNT_MEMORY(m), tree, key)
#define shunt_tree_lower(m, tree, key) shunt_tree_lower_in(SHUNT_MEMORY(m), tree, key)
#define shunt_tree_next(m, ref) shunt_tree_next_in(SHUNT_MEMORY(m), ref)
#define shunt_tree_pop_first(m, tree) shunt_tree_take_in(SHUNT_MEMORY(m), tree, shunt_tree_first(m, tree))
#define shunt_tree_take(m, tree, key) shunt_tree_take_in(SHUNT_MEMORY(m), tree, shunt_tree_find(m, tree, key))
#define shunt_tree_first_key(m, tree, to) ({							\
	shunt_ref __first = shunt_tree_first(m, tree);						\
	if (__first)										\
		*(to) = shunt_key(shunt_at(m, __first));					\
	__first ? 0 : -ENOENT;									\
})
#define SHUNT_TREE_WITH(m, ref, as, statement) ({						\
	shunt_ref __ref = ref;									\
	if (__ref) {										\
		typeof(&(m)->node[0]) as = shunt_at(m, __ref);				\
		statement;									\
	}											\
	__ref ? 1 : 0;										\
})
#define shunt_tree_with(m, tree, key, as, statement) SHUNT_TREE_WITH(m, shunt_tree_find(m, tree, key), as, statement)
#define shunt_tree_with_from(m, tree, key, as, statement) SHUNT_TREE_WITH(m, shunt_tree_lower(m, tree, key), as, statement)

#else /* SHUNT_OBJECTS */

extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       _Bool (*less)(struct bpf_rb_node *, const struct bpf_rb_node *), void *meta, __u64 off) __attribute__((section(".ksyms")));
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __attribute__((section(".ksyms")));
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __attribute__((section(".ksyms")));
#ifdef SHUNT_OBJECTS_SEARCH
extern struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *root) __attribute__((section(".ksyms")));
extern struct bpf_rb_node *bpf_rbtree_left(struct bpf_rb_root *root, struct bpf_rb_node *node) __attribute__((section(".ksyms")));
extern struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *root, struct bpf_rb_node *node) __attribute__((section(".ksyms")));
#endif

/* What every node begins with. */
struct shunt_leaf {
	struct bpf_rb_node leaf;
	__u64 key;
};

#define SHUNT_LEAF struct bpf_rb_node leaf; __u64 key
#define SHUNT_TREE(name, type) struct bpf_rb_root name SHUNT_CONTAINS(type, leaf)
#define shunt_key(n) ((n)->key)

static __attribute__((unused)) _Bool shunt_tree_before(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return ((struct shunt_leaf *)a)->key < ((const struct shunt_leaf *)b)->key;
}

#define SHUNT_LEAF_FIRST(m)									\
	_Static_assert(__builtin_offsetof(SHUNT_TYPE(m), leaf) == 0 &&				\
		       __builtin_offsetof(SHUNT_TYPE(m), key) == sizeof(struct bpf_rb_node), "SHUNT_LEAF comes first")

#define shunt_tree_add(m, tree, ref) ({								\
	SHUNT_LEAF_FIRST(m);									\
	bpf_spin_lock(&(m)->lock);								\
	bpf_rbtree_add_impl(tree, &(ref)->leaf, shunt_tree_before, SHUNT_NIL, 0);		\
	bpf_spin_unlock(&(m)->lock);								\
	0;											\
})

#define shunt_tree_pop_first(m, tree) ({							\
	struct bpf_rb_node *__node;								\
	bpf_spin_lock(&(m)->lock);								\
	__node = bpf_rbtree_first(tree);							\
	if (__node)										\
		__node = bpf_rbtree_remove(tree, __node);					\
	bpf_spin_unlock(&(m)->lock);								\
	(SHUNT_TYPE(m) *)__node;								\
})

#define shunt_tree_first_key(m, tree, to) ({							\
	struct bpf_rb_node *__node;								\
	int __err = -ENOENT;									\
	bpf_spin_lock(&(m)->lock);								\
	__node = bpf_rbtree_first(tree);							\
	if (__node) {										\
		*(to) = ((SHUNT_TYPE(m) *)__node)->key;						\
		__err = 0;									\
	}											\
	bpf_spin_unlock(&(m)->lock);								\
	__err;											\
})

#ifdef SHUNT_OBJECTS_SEARCH

/* Under the lock: the first node whose key is not less. */
SHUNT_FN struct bpf_rb_node *shunt_tree_seek(struct bpf_rb_root *tree, __u64 key)
{
	struct bpf_rb_node *found = SHUNT_NIL, *to = bpf_rbtree_root(tree);

#pragma nounroll
	for (int turn = 0; turn < SHUNT_TREE_DEPTH; turn++) {
		if (!to)
			break;
		if (((struct shunt_leaf *)to)->key < key) {
			to = bpf_rbtree_right(tree, to);
		} else {
			found = to;
			to = bpf_rbtree_left(tree, to);
		}
	}
	return found;
}

#define shunt_tree_insert(m, tree, ref) ({							\
	struct bpf_rb_node *__same;								\
	int __err = -EEXIST;									\
	SHUNT_LEAF_FIRST(m);									\
	bpf_spin_lock(&(m)->lock);								\
	__same = shunt_tree_seek(tree, (ref)->key);						\
	if (!__same || ((struct shunt_leaf *)__same)->key != (ref)->key) {			\
		bpf_rbtree_add_impl(tree, &(ref)->leaf, shunt_tree_before, SHUNT_NIL, 0);	\
		__err = 0;									\
	}											\
	bpf_spin_unlock(&(m)->lock);								\
	__err;											\
})

#define shunt_tree_take(m, tree, k) ({								\
	struct bpf_rb_node *__node;								\
	__u64 __key = k;									\
	bpf_spin_lock(&(m)->lock);								\
	__node = shunt_tree_seek(tree, __key);							\
	if (__node && ((struct shunt_leaf *)__node)->key == __key)				\
		__node = bpf_rbtree_remove(tree, __node);					\
	else											\
		__node = SHUNT_NIL;								\
	bpf_spin_unlock(&(m)->lock);								\
	(SHUNT_TYPE(m) *)__node;								\
})

#define SHUNT_TREE_WITH(m, tree, k, exact, as, statement) ({					\
	struct bpf_rb_node *__node;								\
	__u64 __key = k;									\
	int __found = 0;									\
	bpf_spin_lock(&(m)->lock);								\
	__node = shunt_tree_seek(tree, __key);							\
	if (__node && (!(exact) || ((struct shunt_leaf *)__node)->key == __key)) {		\
		SHUNT_TYPE(m) *as = (SHUNT_TYPE(m) *)__node;					\
		statement;									\
		__found = 1;									\
	}											\
	bpf_spin_unlock(&(m)->lock);								\
	__found;										\
})
#define shunt_tree_with(m, tree, k, as, statement) SHUNT_TREE_WITH(m, tree, k, 1, as, statement)
#define shunt_tree_with_from(m, tree, k, as, statement) SHUNT_TREE_WITH(m, tree, k, 0, as, statement)

#endif

#endif

#endif
