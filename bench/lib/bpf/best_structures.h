/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The structures as someone writes them in plain eBPF for one program, without a library, and with all that is known about that program: written
 * from what the task says (a switch's table, a queue by priority, a wheel, an ordered store, a summary of sets, the heaviest flows), before
 * the library's headers were read. They owe nobody an interface: sizes are the bench's, handles are not checked for being queued already,
 * and nothing has to stay valid for a reader on another CPU. What they find has to be what the library finds.
 *
 * As in best.h: what depends on data is arithmetic or a load, not a branch, where the branch would be a coin's throw.
 */
#ifndef BENCH_LIB_BEST_STRUCTURES_H
#define BENCH_LIB_BEST_STRUCTURES_H

#include "best.h"

/*
 * A switch's table: two buckets of eight places for each key, by two slices of one hash. All tags lie together, 8 KiB that stay in the
 * first-level cache; those of both buckets are compared at once, so that which of the two holds the key is no branch.
 */
#define BEST_BUCKETS 512
#define BEST_KICKS 250
struct best_entry {
	__u64 key[2], value;
};

struct best_table {
	__u64 tag[BEST_BUCKETS * 2];	/* 16 bits for each place, 0 if it is free */
	struct best_entry entry[BEST_BUCKETS * 8];
	__u64 random;
	struct best_entry hand;		/* what has no place yet */
	__u32 bucket, kicks;
	__u16 path[256];
};

struct best_place {
	__u32 bucket[2];
	__u16 tag;
};

BEST_FN struct best_place best_place_of(const __u64 key[2])
{
	__u64 x = best_hash16((const __u32 *)key);

	return (struct best_place){ { x >> 55, x >> 46 & (BEST_BUCKETS - 1) }, x | 1 };
}

/* Which of the 16 places have the tag: bit i is place i of the first bucket, 8 + i of the second. */
BEST_FN __u32 best_table_match(const __u64 *tags, const struct best_place *p, __u16 tag)
{
	const __u64 *one = tags + (p->bucket[0] & (BEST_BUCKETS - 1)) * 2, *two = tags + (p->bucket[1] & (BEST_BUCKETS - 1)) * 2;
	__u64 word[4] = { one[0], one[1], two[0], two[1] };

	return best_match16(word, tag);
}

/* The place that a bit of this mask stands for. */
BEST_FN __u32 best_table_slot(const struct best_place *p, __u32 bit)
{
	__u32 bucket = p->bucket[0] ^ (p->bucket[0] ^ p->bucket[1]) * (bit >> 3);

	return (bucket * 8 + (bit & 7)) & (BEST_BUCKETS * 8 - 1);
}

BEST_FN struct best_entry *best_table_entry(struct best_table *t, const __u64 key[2], const struct best_place *p)
{
	__u32 mask = best_table_match(t->tag, p, p->tag);

#pragma nounroll
	for (int i = 0; i < 16; i++) {
		struct best_entry *e;

		if (!mask)
			break;
		e = &t->entry[best_table_slot(p, best_ctz64(mask))];
		if (__builtin_expect(!((e->key[0] ^ key[0]) | (e->key[1] ^ key[1])), 1))
			return e;
		mask &= mask - 1;
	}
	return 0;
}

BEST_FN __u64 *best_table_lookup(struct best_table *t, const __u64 key[2])
{
	struct best_place p = best_place_of(key);
	struct best_entry *e = best_table_entry(t, key, &p);

	return e ? &e->value : 0;
}

BEST_FN void best_table_write(struct best_table *t, __u32 slot, const struct best_entry *e, __u16 tag)
{
	slot &= BEST_BUCKETS * 8 - 1;
	t->entry[slot] = *e;
	((__u16 *)t->tag)[slot] = tag;
}

/* Changes the hand for what lies in a place. */
BEST_FN void best_table_swap(struct best_table *t, __u32 slot)
{
	struct best_place p = best_place_of(t->hand.key);
	struct best_entry old;

	slot &= BEST_BUCKETS * 8 - 1;
	old = t->entry[slot];
	best_table_write(t, slot, &t->hand, p.tag);
	t->hand = old;
}

/* One step of the search for a place: any one of the bucket makes room and goes to its own other bucket. */
static long best_table_kick(__u32 turn, struct best_table **at)
{
	struct best_table *t = *at;
	__u32 slot = (t->bucket * 8 + (best_next(&t->random) >> 61)) & (BEST_BUCKETS * 8 - 1), free;
	struct best_place p;

	t->path[turn & 255] = slot;
	t->kicks = turn + 1;
	best_table_swap(t, slot);
	p = best_place_of(t->hand.key);
	t->bucket = p.bucket[0] ^ p.bucket[1] ^ t->bucket;
	p.bucket[0] = p.bucket[1] = t->bucket;
	free = best_table_match(t->tag, &p, 0);
	if (!free)
		return 0;
	best_table_write(t, best_table_slot(&p, best_ctz64(free)), &t->hand, best_place_of(t->hand.key).tag);
	t->kicks = 0;
	return 1;
}

static long best_table_back(__u32 turn, struct best_table **at)
{
	struct best_table *t = *at;

	best_table_swap(t, t->path[(t->kicks - 1 - turn) & 255]);
	return 0;
}

/* 1: it is new, 0: it was there and has the new value, -1: there is no place for it, and all is as it was. */
BEST_FN int best_table_set(struct best_table *t, const __u64 key[2], __u64 value)
{
	struct best_place p = best_place_of(key);
	struct best_entry *e = best_table_entry(t, key, &p), hand = { { key[0], key[1] }, value };
	__u32 free;

	if (e) {
		e->value = value;
		return 0;
	}
	free = best_table_match(t->tag, &p, 0);
	if (free) {
		best_table_write(t, best_table_slot(&p, best_ctz64(free)), &hand, p.tag);
		return 1;
	}
	t->hand = hand;
	t->bucket = p.bucket[0];
	bpf_loop(BEST_KICKS, best_table_kick, &t, 0);
	if (!t->kicks)
		return 1;
	bpf_loop(t->kicks, best_table_back, &t, 0);
	return -1;
}

/*
 * Handles in a line of 4,096 steps, for the queue and for the wheel: a list per step, a bit per step that has one, a bit per 64 of those.
 * The line is a circle that begins at `at`, so nothing ever moves. A list has a node of its own at its head (4096 + step), so
 * that neither appending to an empty list nor taking the last one is a branch.
 */
struct best_line {
	__u64 at, top, word[64];
	__u16 tail[4096];	/* of the list, xor the number of its head's node: 0 in fresh memory is an empty list */
	__u16 next[8192];
};

BEST_FN void best_line_put(struct best_line *l, __u32 handle, __u64 step)
{
	__u32 i = step & 4095, head = 4096 | i;

	handle &= 4095;
	l->next[(l->tail[i] ^ head) & 8191] = handle;
	l->tail[i] = handle ^ head;
	l->word[i >> 6] |= 1ULL << (i & 63);
	l->top |= 1ULL << (i >> 6);
}

/* The first step from `at` on that has something; there is one. */
BEST_FN __u64 best_line_first(const struct best_line *l)
{
	__u64 at = l->at, x = l->word[at >> 6 & 63] >> (at & 63);
	__u32 word = (at >> 6) + 1 & 63, k;

	if (__builtin_expect(x != 0, 1))
		return at + best_ctz64(x);
	k = best_ctz64(l->top >> word | l->top << (-word & 63));
	return (at | 63) + 1 + 64 * k + best_ctz64(l->word[word + k & 63]);
}

/* The oldest of a step that has one. */
BEST_FN __u32 best_line_take(struct best_line *l, __u64 step)
{
	__u32 i = step & 4095, head = 4096 | i, handle = l->next[head] & 4095;
	__u64 tail = l->tail[i], more, word;

	more = 0 - (handle ^ tail ^ head); /* not 0 unless it is the last */
	more >>= 63;
	BEST_HIDE(more); /* or it would be a branch */
	l->next[head] = l->next[handle];
	l->tail[i] = tail * more;
	word = l->word[i >> 6] ^ (more ^ 1) << (i & 63);
	l->word[i >> 6] = word;
	if (__builtin_expect(!word, 0))
		l->top ^= 1ULL << (i >> 6);
	return handle;
}

/* The queue: priorities up to 4,095 above the one that was popped last; others are queued at the end that is nearer. */
BEST_FN void best_queue_push(struct best_line *q, __u32 handle, __u64 priority)
{
	if (!q->top)
		q->at = priority & ~4095ULL;
	if (priority - q->at > 4095)
		priority = priority < q->at ? q->at : q->at + 4095;
	best_line_put(q, handle, priority);
}

BEST_FN int best_queue_pop(struct best_line *q, __u64 *priority)
{
	if (!q->top)
		return -1;
	*priority = q->at = best_line_first(q);
	return best_line_take(q, q->at);
}

/* The wheel: slots of 2^14 ns; what is due comes out at the first border of a slot that is not before its time. */
BEST_FN void best_wheel_add(struct best_line *w, __u32 handle, __u64 when, __u64 now)
{
	__u64 slot = (when + 16383) >> 14;

	if (!w->top)
		w->at = now >> 14;
	if (slot - w->at > 4095)
		slot = slot < w->at ? w->at : w->at + 4095;
	best_line_put(w, handle, slot);
}

/* A handle, or -1 and when there will be one, or -2. */
BEST_FN int best_wheel_next(struct best_line *w, __u64 now, __u64 *when)
{
	__u64 first;

	if (!w->top)
		return -2;
	first = best_line_first(w);
	if (first > now >> 14) {
		w->at = now >> 14;
		*when = first << 14;
		return -1;
	}
	w->at = first;
	return best_line_take(w, first);
}

/*
 * The ordered store: a skip list of which each level is a list of its own, 16 bytes a link. A link holds the key of the *next* one, so that
 * a search touches what it passes and never looks into what it does not enter; and whether it goes on or down is a
 * shift, not a branch. Keys are kept inverted: 0 in fresh memory is above all.
 */
#define BEST_SKIP_LEVELS 12
#define BEST_SKIP_LINKS (1 << 17)	/* for 2^16 keys, of which a third has a second link, and so on */
struct best_link {
	__u64 above;	/* the next one's key, inverted */
	__u64 ways;	/* the link below in the lower half, that of the next in the upper one; 0: there is none */
};

struct best_skip {
	__u64 random;
	__u32 used, unused;
	struct best_link link[BEST_SKIP_LINKS];	/* 1 to 12: where levels begin, the lowest at 1 */
	__u64 value[BEST_SKIP_LINKS];		/* of links of the lowest level */
};

/* a > b, as 0 or 1, without a branch: the borrow of b - a. */
BEST_FN __u64 best_greater(__u64 a, __u64 b)
{
	__u64 d = b - a;

	return ((~b & a) | (~(b ^ a) & d)) >> 63;
}

/* The last link of the lowest level before key; notes the last of each level, if there is a place for them. */
BEST_FN __u32 best_skip_before(const struct best_skip *s, __u64 key, __u32 *last)
{
	__u64 not = ~key;
	__u32 at = BEST_SKIP_LEVELS, level = BEST_SKIP_LEVELS - 1;

#pragma nounroll
	for (int i = 0; i < 160; i++) {
		const struct best_link *l = &s->link[at & (BEST_SKIP_LINKS - 1)];
		__u64 on = best_greater(l->above, not);
		__u32 to;

		BEST_HIDE(on);
		to = l->ways >> (on << 5);
		if (last) {
			last[level & 15] = at;
			level -= 1 - on;
		}
		if (!to)
			break;
		at = to;
	}
	return at & (BEST_SKIP_LINKS - 1);
}

/* The link of the lowest level that has the key, or 0. */
BEST_FN __u32 best_skip_find(const struct best_skip *s, __u64 key)
{
	const struct best_link *l = &s->link[best_skip_before(s, key, 0)];

	return l->above == ~key ? l->ways >> 32 & (BEST_SKIP_LINKS - 1) : 0;
}

/* 1: the key is new, 0: it had a value before, -1: there is no room for it. */
BEST_FN int best_skip_set(struct best_skip *s, __u64 key, __u64 value)
{
	__u32 at = best_skip_find(s, key), last[16] = {}, below = 0, height;

	if (at) {
		s->value[at] = value;
		return 0;
	}
	if (!s->used) {
		for (__u32 i = 2; i <= BEST_SKIP_LEVELS; i++)
			s->link[i].ways = i - 1;
		s->used = 16;
	}
	if (s->used > BEST_SKIP_LINKS - 16)
		return -1;
	height = 1 + best_ctz64(best_next(&s->random) >> 32 | 1 << 22) / 2; /* a quarter each time */
	best_skip_before(s, key, last);
	for (__u32 i = 0; i < BEST_SKIP_LEVELS; i++) {
		struct best_link *before = &s->link[last[i] & (BEST_SKIP_LINKS - 1)], *mine;
		__u32 new = s->used & (BEST_SKIP_LINKS - 1);

		if (i == height)
			break;
		mine = &s->link[new];
		s->used++;
		mine->above = before->above;
		mine->ways = before->ways >> 32 << 32 | below;
		before->above = ~key;
		before->ways = (__u64)new << 32 | (__u32)before->ways;
		if (!i)
			s->value[new] = value;
		below = new;
	}
	return 1;
}

/*
 * A summary of sets: no keys, but 16 bits of a key's hash and the number of its set, in one of two buckets of eight; tags as in the table.
 * The second bucket follows from the first and the tag, and the first from the second, so that what lies there can be moved.
 */
struct best_htss {
	__u64 tag[BEST_BUCKETS * 2];
	__u16 set[BEST_BUCKETS * 8];
};

BEST_FN __u32 best_htss_other(__u32 bucket, __u16 tag)
{
	return bucket ^ (tag * 0x9e3779b1U >> 23 | 1);
}

BEST_FN struct best_place best_htss_place(const __u64 key[2])
{
	__u64 x = best_hash16((const __u32 *)key);
	__u32 bucket = x >> 55;

	return (struct best_place){ { bucket, best_htss_other(bucket, x | 1) }, x | 1 };
}

/* The key's set, or 0. */
BEST_FN __u32 best_htss_lookup(const struct best_htss *t, const __u64 key[2])
{
	struct best_place p = best_htss_place(key);
	__u32 mask = best_table_match(t->tag, &p, p.tag);

	return mask ? t->set[best_table_slot(&p, best_ctz64(mask))] : 0;
}

BEST_FN void best_htss_write(struct best_htss *t, __u32 slot, __u16 tag, __u16 set)
{
	slot &= BEST_BUCKETS * 8 - 1;
	((__u16 *)t->tag)[slot] = tag;
	t->set[slot] = set;
}

/* 1, or 0 if there is no place, not even after a step by one of the sixteen that are in the way. */
BEST_FN __u32 best_htss_add(struct best_htss *t, const __u64 key[2], __u16 set)
{
	struct best_place p = best_htss_place(key), q;
	__u32 free = best_table_match(t->tag, &p, 0), slot = 0, to;

	if (free) {
		best_htss_write(t, best_table_slot(&p, best_ctz64(free)), p.tag, set);
		return 1;
	}
#pragma nounroll
	for (__u32 i = 0; i < 16; i++) {
		slot = best_table_slot(&p, i);
		q.tag = ((__u16 *)t->tag)[slot];
		q.bucket[0] = q.bucket[1] = best_htss_other(slot >> 3, q.tag);
		free = best_table_match(t->tag, &q, 0);
		if (free)
			break;
	}
	if (!free)
		return 0;
	to = best_table_slot(&q, best_ctz64(free));
	best_htss_write(t, to, q.tag, t->set[slot]);
	best_htss_write(t, slot, p.tag, set);
	return 1;
}

/*
 * The heaviest flows: four places for each of 512 values of the hash, 32 bytes that are read at once. A stranger wears one of
 * the four down, by chance the less likely the higher its count (a half for each 4), and takes it at 0; so the heavy ones stay, and
 * user space sorts what is there. HeavyKeeper, but with places to choose from in one line instead of rows, and the keys beside them
 * instead of a list of candidates that would have to be searched.
 */
struct best_heavy {
	__u64 random;
	struct best_seen { __u32 print, count; } seen[2048];
	struct { __u64 word[2]; } key[2048];
};

BEST_FN __u32 best_heavy_add(struct best_heavy *h, const __u64 key[2])
{
	__u64 x = best_hash16((const __u32 *)key), chance;
	__u32 first = x >> 55 << 2, at, count;
	struct best_seen *s = &h->seen[first];

#pragma unroll
	for (int i = 0; i < 4; i++)
		if (s[i].print == (__u32)x)
			return ++s[i].count;
	chance = best_next(&h->random);
	at = first | chance >> 62;
	s = &h->seen[at & 2047];
	count = s->count >> 2;
	if ((__u32)(chance >> 28) & ((1ULL << (count > 31 ? 31 : count)) - 1))
		return 0;
	if (s->count > 1) {
		s->count--;
		return 0;
	}
	s->print = x;
	s->count = 1;
	h->key[at & 2047].word[0] = key[0];
	h->key[at & 2047].word[1] = key[1];
	return 1;
}

#endif
