/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What is done to a list in each of the three memories: list*.bpf.c say which, and where `the_table()` finds it. */
#define NODES 256

struct item {
	SHUNT_LINK;
	__u64 value;
};

struct table {
	SHUNT_NODES(struct item, NODES);
	SHUNT_LIST(list, item);
#ifndef SHUNT_OBJECTS
	SHUNT_LIST(other, item);
#endif
};

#ifdef SHUNT_OBJECTS
#define SHUNT_MEM
#endif

static __always_inline __u64 give(struct table SHUNT_MEM *t, SHUNT_REF(struct item) ref)
{
	__u64 value;

	if (!ref)
		return -ENOENT;
	value = shunt_at(t, ref)->value;
	shunt_free(t, ref);
	return value;
}

static __always_inline __u64 operate(struct table SHUNT_MEM *t, __u32 op, __u32 arg, __u64 a)
{
	SHUNT_REF(struct item) ref;

	switch (op) {
	case 0:
	case 1:
		ref = shunt_alloc(t);
		if (!ref)
			return -ENOSPC;
		shunt_at(t, ref)->value = a;
		if (op)
			return shunt_list_push_back(t, &t->list, ref);
		return shunt_list_push_front(t, &t->list, ref);
	case 2:
		ref = shunt_list_pop_front(t, &t->list);
		return give(t, ref);
	case 3:
		ref = shunt_list_pop_back(t, &t->list);
		return give(t, ref);
	case 4:
		return shunt_used(t);
	}
#ifndef SHUNT_OBJECTS
	__u64 sum = 0;
	shunt_ref more;

	switch (op) {
	case 5: /* the whole, forwards and backwards */
		SHUNT_LIST_EACH(t, &t->list, ref, NODES)
			sum = sum * 3 + shunt_at(t, ref)->value;
		return sum;
	case 6:
		ref = t->list.last;
		for (int i = 0; ref && i < NODES; i++, ref = shunt_list_prev(t, ref))
			sum = sum * 3 + shunt_at(t, ref)->value;
		return sum;
	}
	ref = t->list.first;
	for (__u32 i = 0; i < 64; i++) { /* the one at place arg, or the last */
		if (!ref || i >= (arg & 63))
			break;
		more = shunt_list_next(t, ref);
		if (!more)
			break;
		ref = more;
	}
	switch (op) {
	case 7:
		if (shunt_list_remove(t, &t->list, ref))
			return -ENOENT;
		return give(t, ref);
	case 8:
		return shunt_list_move_front(t, &t->list, ref);
	case 9:
		return shunt_list_move_back(t, &t->list, ref);
	case 10: /* to the other list and from its other end back to the end of this one */
		if (shunt_list_remove(t, &t->list, ref))
			return -ENOENT;
		sum = shunt_list_push_front(t, &t->other, ref);
		sum |= shunt_list_push_back(t, &t->list, shunt_list_pop_back(t, &t->other));
		return sum;
	case 11: /* all that must not be: none may change anything. Bit n: the n-th was refused. */
		more = shunt_alloc(t);
		sum = !ref ? 15 : (shunt_free(t, ref) == -EINVAL) | (shunt_list_push_back(t, &t->list, ref) == -EINVAL) << 1 |
			(shunt_list_remove(t, &t->other, ref) == -EINVAL) << 2 | (shunt_list_move_front(t, &t->other, ref) == -EINVAL) << 3;
		sum |= (shunt_list_remove(t, &t->list, more) == -EINVAL) << 4;
		sum |= (shunt_list_move_back(t, &t->list, more) == -EINVAL) << 5;
		sum |= more ? (shunt_free(t, more) == 0) << 6 : 1 << 6;
		sum |= (shunt_free(t, more) == -EINVAL) << 7;
		sum |= (shunt_list_push_front(t, &t->list, more) == -EINVAL) << 8;
		sum |= (shunt_list_remove(t, &t->list, SHUNT_NIL) == -EINVAL) << 9;
		sum |= (shunt_free(t, SHUNT_NIL) == -EINVAL) << 10;
		return sum;
	}
#endif
	return ~0ULL;
}
