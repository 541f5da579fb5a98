/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What is done to a tree in each of the three memories: tree*.bpf.c say which. */
#define NODES 1024

struct item {
	SHUNT_LEAF;
	__u64 value;
};

struct table {
	SHUNT_NODES(struct item, NODES);
	SHUNT_TREE(tree, item);
#ifndef SHUNT_OBJECTS
	SHUNT_TREE(other, item);
#endif
};

#ifdef SHUNT_OBJECTS
#define SHUNT_MEM
#else
#define SHUNT_OBJECTS_SEARCH
#endif

/* Takes a node apart into its value and, in *key, its key. */
static __always_inline __u64 give(struct table SHUNT_MEM *t, SHUNT_REF(struct item) ref, __u64 *key)
{
	__u64 value;

	if (!ref)
		return -ENOENT;
	*key = shunt_key(shunt_at(t, ref));
	value = shunt_at(t, ref)->value;
	shunt_free(t, ref);
	return value;
}

static __always_inline SHUNT_REF(struct item) make(struct table SHUNT_MEM *t, __u64 key, __u64 value)
{
	SHUNT_REF(struct item) ref = shunt_alloc(t);

	if (ref) {
		shunt_key(shunt_at(t, ref)) = key;
		shunt_at(t, ref)->value = value;
	}
	return ref;
}

static __always_inline __u64 operate(struct table SHUNT_MEM *t, __u32 op, __u64 a, __u64 *b)
{
	SHUNT_REF(struct item) ref;
	__u64 key = 0, value __attribute__((unused)) = 0;
	int err;

	switch (op) {
	case 0:
		ref = make(t, a, *b);
		if (!ref)
			return -ENOSPC;
		return shunt_tree_add(t, &t->tree, ref);
	case 1:
		ref = shunt_tree_pop_first(t, &t->tree);
		return give(t, ref, b);
	case 2:
		err = shunt_tree_first_key(t, &t->tree, &key);
		return err ? err : key;
	case 3:
		return shunt_used(t);
	}
#ifdef SHUNT_OBJECTS_SEARCH
	switch (op) {
	case 4:
		ref = make(t, a, *b);
		if (!ref)
			return -ENOSPC;
		err = shunt_tree_insert(t, &t->tree, ref);
		if (err)
			shunt_free(t, ref);
		return err;
	case 5:
		ref = shunt_tree_take(t, &t->tree, a);
		return give(t, ref, b);
	case 6:
		err = shunt_tree_with(t, &t->tree, a, n, value = n->value);
		return err ? value : -ENOENT;
	case 7:
		err = shunt_tree_with_from(t, &t->tree, a, n, value = shunt_key(n) ^ n->value);
		return err ? value : -ENOENT;
	}
#endif
#ifndef SHUNT_OBJECTS
	shunt_ref more;

	switch (op) {
	case 8: /* the first keys from a on */
		ref = shunt_tree_lower(t, &t->tree, a);
		for (int i = 0; ref && i < 8; i++) {
			value = value * 3 + shunt_at(t, ref)->value;
			ref = shunt_tree_next(t, ref);
		}
		return value;
	case 9: /* all that must not be: none may change anything. Bit n: the n-th was refused. */
		ref = shunt_tree_first(t, &t->tree);
		more = shunt_alloc(t);
		value = !ref ? 7 : (shunt_free(t, ref) == -EINVAL) | (shunt_tree_add(t, &t->tree, ref) == -EINVAL) << 1 |
			(shunt_tree_remove(t, &t->other, ref) == -EINVAL) << 2;
		value |= (shunt_tree_remove(t, &t->tree, more) == -EINVAL) << 3;
		value |= more ? (shunt_free(t, more) == 0) << 4 : 1 << 4;
		value |= (shunt_tree_add(t, &t->tree, more) == -EINVAL) << 5;
		value |= (shunt_tree_remove(t, &t->tree, SHUNT_NIL) == -EINVAL) << 6;
		return value;
	}
#endif
	return ~0ULL;
}
