/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * pool: nodes that come and go and refer to one another, in one of three memories behind one interface: a supply of nodes in a map's value
 * (what is used if nothing is said), an arena (SHUNT_ARENA defined before the first header), or the kernel's own objects (SHUNT_OBJECTS).
 * list.h and tree.h are written over it; so may be structures of your own, in the first two.
 *
 *                    a map's value            an arena                      kernel objects
 *   reference        number of a node         pointer, 64 bits              owning pointer, never stored
 *   kernel           any                      6.9, clang 19                 6.12 in XDP and TC
 *   how many         2^20 at most, known      what the arena holds          what memory there is, up to SIZE
 *   a wrong one      is masked: another node  reads as 0, is not written    is refused by the verifier
 *   nodes link       as they like             as they like                  only by a list or a tree of the kernel's
 *
 * The interface, m being a pointer to a struct that holds SHUNT_NODES(type, size):
 *   SHUNT_REF(type)     the type of a reference; SHUNT_NIL is none, and the only one that is false
 *   shunt_alloc(m)      a node that nobody else has, or none if size - 1 are in use. Its contents are what the last owner left.
 *   shunt_free(m, ref)  gives it back: 0, or -EINVAL if it is no node, free already, or still in a list or a tree
 *   shunt_at(m, ref)    the node, to be read and written
 *   shunt_used(m)       how many are in use
 *
 * A node begins with SHUNT_LINK (list.h), SHUNT_LEAF (tree.h) or, for links of your own, `struct shunt_node node`. Its `where` is what
 * tells a node that is free from one in use: no reference can be given back twice or put into two lists at once. That
 * check is by node: who keeps a reference beyond shunt_free() has one of whoever gets the node next.
 *
 * An arena's pages cannot be had within XDP before kernel 7.0 (bpf_arena_alloc_pages() may sleep), so all nodes are laid out
 * before: the struct with SHUNT_NODES lies in the arena as a whole, in pages that a syscall program allocated or user space touched.
 * Lists' and trees' heads lie there too (compilers merge equal stores, and the verifier refuses one store for two kinds of memory).
 * Every function that has a pointer into an arena has to mention the arena's map: SHUNT_ARENA_HERE(map).
 *
 * Sharing: the first two belong to one CPU at a time: per-CPU maps, or a bpf_spin_lock around what belongs together (there is no call
 * inside). Kernel objects need `struct bpf_spin_lock lock`, which SHUNT_NODES brings along and each operation takes itself.
 *
 * Cost: allocate and free some 15 instructions each, of kernel objects a call into the kernel's allocator. Zeroed memory is empty.
 */
#ifndef SHUNT_LIB_POOL_H
#define SHUNT_LIB_POOL_H

#include "def.h"

#ifndef ENOENT
#define ENOENT 2
#endif
#ifndef EEXIST
#define EEXIST 17
#endif
#ifndef EINVAL
#define EINVAL 22
#endif
#ifndef ENOSPC
#define ENOSPC 28
#endif
#ifndef ELOOP
#define ELOOP 40
#endif

#if defined(SHUNT_ARENA) && defined(SHUNT_OBJECTS)
#error "one memory at a time: SHUNT_ARENA or SHUNT_OBJECTS"
#endif
/* Older ones compile it and leave the casts between address spaces out, which only the verifier notices. */
#if defined(SHUNT_ARENA) && defined(__clang__) && __clang_major__ < 19
#error "arenas need clang 19"
#endif

#ifndef SHUNT_OBJECTS

#ifdef SHUNT_ARENA
#define SHUNT_MEM __attribute__((address_space(1)))
struct shunt_node;
typedef struct shunt_node SHUNT_MEM *shunt_ref;
#define SHUNT_NIL ((shunt_ref)0)
#define SHUNT_ARENA_HERE(map) asm volatile("" : : "r"(&(map)))
/* Between two stores of 0 beside each other: clang 19 would make one memset of them and forget to cast its address. */
#define SHUNT_APART() asm volatile("" : : : "memory")
#else
#define SHUNT_MEM
#define SHUNT_APART() do { } while (0)
typedef __u32 shunt_ref;
#define SHUNT_NIL 0
#define SHUNT_ARENA_HERE(map) do { } while (0)
#endif

#define SHUNT_REF(type) shunt_ref

/* Where a node is. A list or tree numbered n says SHUNT_LINKED + n. */
#define SHUNT_FREE 0
#define SHUNT_HELD 1
#define SHUNT_LINKED 2

/* What every node begins with. */
struct shunt_node {
	shunt_ref next;		/* the next free node; the next one of a list; the parent in a tree */
	__u16 where;
	__u16 red;		/* of trees */
};

struct shunt_pool {
	shunt_ref free;		/* nodes given back, chained by next */
	__u32 fresh;		/* nodes up to this one have been used before */
	__u32 used;
} __attribute__((aligned(8)));

/* Members of a struct: SIZE - 1 nodes of a type. Size is a power of two from 2 to 2^20. Node 0 is never used. */
#define SHUNT_NODES(type, size)						\
	SHUNT_ASSERT_POW2(size);					\
	_Static_assert((size) >= 2 && (size) <= 1 << 20, "2 to 2^20 nodes");	\
	_Static_assert(_Alignof(type) <= 8, "nodes are aligned to 8 bytes");	\
	struct shunt_pool pool;						\
	type node[size] __attribute__((aligned(8)))

/* A supply of nodes as functions see it: made anew for each call, and gone after inlining. */
struct shunt_memory {
	struct shunt_pool SHUNT_MEM *pool;
	__u32 stride, size;
};

#define SHUNT_MEMORY(m) ((struct shunt_memory){ &(m)->pool, sizeof((m)->node[0]), sizeof((m)->node) / sizeof((m)->node[0]) })

SHUNT_FN struct shunt_node SHUNT_MEM *shunt_node_at(struct shunt_memory m, shunt_ref ref)
{
#ifdef SHUNT_ARENA
	(void)m;
	return ref;
#else
	return (void *)(m.pool + 1) + SHUNT_MASK(ref, m.size - 1) * m.stride;
#endif
}

SHUNT_FN shunt_ref shunt_pool_alloc(struct shunt_memory m)
{
	shunt_ref ref = m.pool->free;

	if (ref) {
		m.pool->free = shunt_node_at(m, ref)->next;
	} else {
		__u32 fresh = m.pool->fresh + 1;

		if (fresh >= m.size)
			return SHUNT_NIL;
		m.pool->fresh = fresh;
#ifdef SHUNT_ARENA
		ref = (shunt_ref)((char SHUNT_MEM *)(m.pool + 1) + (__u64)fresh * m.stride);
#else
		ref = fresh;
#endif
	}
	shunt_node_at(m, ref)->where = SHUNT_HELD;
	m.pool->used++;
	return ref;
}

SHUNT_FN int shunt_pool_free(struct shunt_memory m, shunt_ref ref)
{
	struct shunt_node SHUNT_MEM *node = shunt_node_at(m, ref);

	if (!ref || node->where != SHUNT_HELD)
		return -EINVAL;
	node->where = SHUNT_FREE;
	node->next = m.pool->free;
	m.pool->free = ref;
	m.pool->used--;
	return 0;
}

#define shunt_alloc(m) shunt_pool_alloc(SHUNT_MEMORY(m))
#define shunt_free(m, ref) shunt_pool_free(SHUNT_MEMORY(m), ref)
#define shunt_at(m, ref) ((typeof(&(m)->node[0]))shunt_node_at(SHUNT_MEMORY(m), ref))
#define shunt_used(m) ((m)->pool.used)

#else /* SHUNT_OBJECTS */

/* The kernel's types, as it has had them since 6.6, if no vmlinux.h or newer headers bring them along; and its functions, as vmlinux.h has them. */
#ifndef __VMLINUX_H__
#include <linux/version.h>
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
struct bpf_list_head { __u64 opaque[2]; } __attribute__((aligned(8)));
struct bpf_list_node { __u64 opaque[3]; } __attribute__((aligned(8)));
struct bpf_rb_root { __u64 opaque[2]; } __attribute__((aligned(8)));
struct bpf_rb_node { __u64 opaque[4]; } __attribute__((aligned(8)));
#endif
#endif
extern void *bpf_obj_new_impl(__u64 local_type_id, void *meta) __attribute__((section(".ksyms")));
extern void bpf_obj_drop_impl(void *object, void *meta) __attribute__((section(".ksyms")));

#define SHUNT_REF(type) type *
#define SHUNT_NIL ((void *)0)
#define SHUNT_ARENA_HERE(map) do { } while (0)
#define SHUNT_CONTAINS(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))

struct shunt_pool {
	__u32 used;
	__u32 unused;
};

/* No nodes lie here. `shape` stays 0: its type tells the macros what nodes are and how many there may be. */
#define SHUNT_NODES(type, size)						\
	_Static_assert((size) >= 2, "one node at least");		\
	struct bpf_spin_lock lock;					\
	struct shunt_pool pool;						\
	type (*shape)[size]

#define SHUNT_TYPE(m) typeof((*(m)->shape)[0])
#define SHUNT_SIZE(m) (sizeof(*(m)->shape) / sizeof((*(m)->shape)[0]))

/* Counts one node more, if there may be one. */
SHUNT_FN int shunt_pool_count(struct shunt_pool *pool, __u32 size)
{
	if (__sync_fetch_and_add(&pool->used, 1) < size - 1)
		return 1;
	__sync_fetch_and_add(&pool->used, -1);
	return 0;
}

#define shunt_alloc(m) ({									\
	SHUNT_TYPE(m) *__new = SHUNT_NIL;							\
	if (shunt_pool_count(&(m)->pool, SHUNT_SIZE(m))) {					\
		__new = bpf_obj_new_impl(__builtin_btf_type_id(*__new, 0), SHUNT_NIL);		\
		if (!__new)									\
			__sync_fetch_and_add(&(m)->pool.used, -1);				\
	}											\
	__new;											\
})

#define shunt_free(m, ref) ({									\
	bpf_obj_drop_impl(ref, SHUNT_NIL);							\
	__sync_fetch_and_add(&(m)->pool.used, -1);						\
	0;											\
})

#define shunt_at(m, ref) (ref)
#define shunt_used(m) ((m)->pool.used)

#endif

#endif
