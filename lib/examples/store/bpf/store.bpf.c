/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * An ordered key-value store that answers from the driver: requests of 24 bytes over UDP (IPv4 without options) are answered by
 * turning the packet round. Everything else passes.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/skiplist.h>

#define NODES 65536

enum { GET, SET, DELETE, NEXT };

struct request {
	__u8 op;	/* GET, SET, DELETE, NEXT: the first key that is not less */
	__u8 status;	/* in the answer: 0 done, 1 the key is not there, 2 full, 3 no such operation, 4 too long a search */
	__u8 unused[6];
	__u64 key, value;	/* little endian */
};

/* Ethernet, IPv4 and UDP headers, and the request. */
struct frame {
	__u8 to[6], from[6], proto[2];
	__u8 version, tos, length[2], id[2], fragment[2], ttl, protocol, sum[2], src[4], dst[4];
	__u8 src_port[2], dst_port[2], udp_length[2], udp_sum[2];
	struct request request;
} __attribute__((packed));

SHUNT_SKIPLIST(list, NODES);

struct store {
	struct list list;
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct store);
} store SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 5);	/* by status */
	__type(key, __u32);
	__type(value, __u64);
} answers SEC(".maps");

volatile const __u16 port;	/* as the packet has it */

static __always_inline __u8 status_of(int err)
{
	return err >= 0 ? 0 : err == -ENOENT ? 1 : err == -ENOSPC ? 2 : 4;
}

/* A function of its own, verified once: an operation walks the list. */
static __noinline int operate(struct store *s, struct request *r)
{
	struct shunt_skip *head = &s->list.head;
	__u32 ref;
	int err;

	bpf_spin_lock(&s->lock);
	switch (r->op) {
	case GET:
		err = shunt_skip_get(head, NODES, r->key, &r->value);
		break;
	case SET:
		err = shunt_skip_set(head, NODES, r->key, r->value);
		break;
	case DELETE:
		err = shunt_skip_delete(head, NODES, r->key);
		break;
	default:
		ref = shunt_skip_lower(head, NODES, r->key);
		err = ref ? 0 : -ENOENT;
		if (ref) {
			r->key = shunt_skip_at(head, NODES, ref)->key;
			r->value = shunt_skip_at(head, NODES, ref)->value;
		}
	}
	bpf_spin_unlock(&s->lock);
	return err;
}

static __always_inline void swap(__u8 *a, __u8 *b, int n)
{
#pragma unroll
	for (int i = 0; i < n; i++) {
		__u8 kept = a[i];

		a[i] = b[i];
		b[i] = kept;
	}
}

SEC("xdp") int answer(struct xdp_md *ctx)
{
	struct frame *f = (void *)(long)ctx->data;
	struct store *s = bpf_map_lookup_elem(&store, &(__u32){ 0 });
	struct request r;
	__u32 status;
	__u64 *count;

	if (!s || (void *)(f + 1) > (void *)(long)ctx->data_end || f->proto[0] != 8 || f->proto[1] || f->version != 0x45 || f->protocol != 17 ||
	    (f->fragment[0] & 0x3f) || f->fragment[1] || *(__u16 *)f->dst_port != port || f->udp_length[0] || f->udp_length[1] != 8 + sizeof(r))
		return XDP_PASS;
	__builtin_memcpy(&r, &f->request, sizeof(r));
	status = r.op > NEXT ? 3 : status_of(operate(s, &r));
	r.status = status;
	__builtin_memcpy(&f->request, &r, sizeof(r));
	swap(f->to, f->from, 6);
	swap(f->src, f->dst, 4);	/* the header's checksum stays right: it is a sum */
	swap(f->src_port, f->dst_port, 2);
	f->udp_sum[0] = f->udp_sum[1] = 0;	/* none, as IPv4 allows (RFC 768) */
	count = bpf_map_lookup_elem(&answers, &status);
	if (count)
		++*count;
	return XDP_TX;
}

char _license[] SEC("license") = "Dual BSD/GPL";
