/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Holds every flow to a rate as a pacer with a queue would, without the queue: XDP cannot hold a packet back, so each packet is given the
 * time at which the pacer would have sent it, and occupies a place in a timing wheel until then. A packet that would have waited too
 * long, or finds all places occupied, is dropped: the same ones that the pacer would have dropped. The others pass at once.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/flow.h>
#include <shunt/wheel.h>

#define PLACES 4096	/* packets that are held at once, of all flows together */
#define AT_ONCE 8	/* places that one packet frees, so that no packet costs much more than another */

SHUNT_WHEEL(wheel, 12, 14, PLACES) /* 4096 slots of 16 us: 67 ms */

struct pacer {
	struct wheel wheel;
	struct bpf_spin_lock lock;	/* of all of it, and of the flows' times */
	__u32 fresh;			/* places from here on were never used */
	__u32 spare;			/* places that were given back */
	__u32 given[PLACES];		/* which ones */
	__u32 bytes[PLACES];		/* of the packet in a place */
	__u64 held_bytes;
	__u64 passed, passed_bytes;
	__u64 late;			/* dropped: would have waited too long */
	__u64 full;			/* dropped: all places were taken */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pacer);
} pacer SEC(".maps");

struct {	/* when a flow's next packet would be sent */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct shunt_flow);
	__type(value, __u64);
} flows SEC(".maps");

/* How long a byte takes at a flow's rate, in 2^-16 ns, and for how long a packet may wait: less than 67 ms. */
volatile const __u64 byte_time, patience;

/* Each decision, for who wants to know (tests do). */
struct decision {
	__u64 now;
	__u32 bytes, verdict;
	struct shunt_flow flow;
};
volatile const __u8 trace;
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} decisions SEC(".maps");

/* Free the place of one packet whose time has come. Says whether there was one. */
static __always_inline int release(struct pacer *p, __u64 now)
{
	__u64 when;
	int place = wheel_next(&p->wheel, now, &when);

	if (place < 0)
		return 0;
	place = SHUNT_MASK(place, PLACES - 1);
	p->held_bytes -= p->bytes[place];
	p->given[SHUNT_MASK(p->spare, PLACES - 1)] = place;
	p->spare++;
	return 1;
}

/* What becomes of a packet, and if it passes, a place for it. */
static __always_inline int admit(struct pacer *p, __u64 *next, __u32 bytes, __u64 now)
{
	__u64 start = *next > now ? *next : now, sent = start + (bytes * byte_time >> 16);
	__u32 place;

	for (int i = 0; i < AT_ONCE; i++)
		if (!release(p, now))
			break;
	if (sent - now > patience) {
		p->late++;
		return XDP_DROP;
	}
	if (p->spare) {
		p->spare--;
		place = p->given[SHUNT_MASK(p->spare, PLACES - 1)];
	} else if (p->fresh < PLACES) {
		place = p->fresh++;
	} else {
		p->full++;
		return XDP_DROP;
	}
	place = SHUNT_MASK(place, PLACES - 1);
	p->bytes[place] = bytes;
	p->held_bytes += bytes;
	wheel_add(&p->wheel, place, sent, now);
	*next = sent;
	p->passed++;
	p->passed_bytes += bytes;
	return XDP_PASS;
}

SEC("xdp") int pace(struct xdp_md *ctx)
{
	struct pacer *p = bpf_map_lookup_elem(&pacer, &(__u32){ 0 });
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct decision d = {};
	__u64 *next;

	if (!p || shunt_flow_of(data, end, &d.flow))
		return XDP_PASS;
	next = bpf_map_lookup_elem(&flows, &d.flow);
	if (!next) {
		__u64 never = 0;

		bpf_map_update_elem(&flows, &d.flow, &never, BPF_NOEXIST);
		next = bpf_map_lookup_elem(&flows, &d.flow);
		if (!next)
			return XDP_PASS;
	}
	d.bytes = end - data;
	d.now = bpf_ktime_get_ns();
	bpf_spin_lock(&p->lock);
	d.verdict = admit(p, next, d.bytes, d.now);
	bpf_spin_unlock(&p->lock);
	if (trace)
		bpf_ringbuf_output(&decisions, &d, sizeof(d), 0);
	return d.verdict;
}

static long release_turn(__u32 i, void *ctx)
{
	struct pacer *p = bpf_map_lookup_elem(&pacer, &(__u32){ 0 });
	__u64 now = bpf_ktime_get_ns();
	int more;

	if (!p)
		return 1;
	bpf_spin_lock(&p->lock);
	more = release(p, now);
	bpf_spin_unlock(&p->lock);
	return !more;
}

/* User space runs this before it reads what is held: without packets nobody else frees places. */
SEC("xdp") int settle(struct xdp_md *ctx)
{
	bpf_loop(PLACES, release_turn, (void *)0, 0);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
