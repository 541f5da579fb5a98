/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * A learning switch over the devices that it is attached to: source addresses are learned into a cuckoo hash table, known destinations
 * are sent to their port, everything else to all ports. Frames of one VLAN stay among its ports as far as learning goes; VLAN tags are kept.
 */
#include <linux/bpf.h>
#include <bpf_helpers.h>
#include <shunt/cuckoo.h>

struct station {	/* a MAC address in a VLAN */
	__u8 mac[6];
	__u16 vlan;	/* with its priority bits cleared; 0 without a tag */
};

SHUNT_CUCKOO(fdb, struct station, __u32, 8) /* 4096 stations; the value is a device's index */

struct table {
	struct fdb fdb;
	struct bpf_spin_lock lock;	/* of who learns; looking up takes none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table);
} table SEC(".maps");

struct {	/* the ports by device index */
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct counts {
	__u64 known, flooded, learned, full, local;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

volatile const __u64 seed;

static __always_inline void learn(struct table *t, struct station *from, __u64 hash, __u32 port, struct counts *c)
{
	int got;

	bpf_spin_lock(&t->lock);
	got = fdb_insert(&t->fdb, from, hash, &port);
	bpf_spin_unlock(&t->lock);
	if (got == SHUNT_CUCKOO_FULL)
		c->full++;
	else
		c->learned++;
}

SEC("xdp") int cuckooswitch(struct xdp_md *ctx)
{
	struct table *t = bpf_map_lookup_elem(&table, &(__u32){ 0 });
	struct counts *c = bpf_map_lookup_elem(&counts, &(__u32){ 0 });
	__u8 *eth = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct station from = {}, to = {};
	__u32 in = ctx->ingress_ifindex, *port;
	__u64 hash;

	if (!t || !c || eth + 18 > end)
		return XDP_DROP;
	__builtin_memcpy(to.mac, eth, 6);
	__builtin_memcpy(from.mac, eth + 6, 6);
	if (eth[12] == 0x81 && eth[13] == 0x00)
		from.vlan = to.vlan = (eth[14] & 15) << 8 | eth[15];
	hash = shunt_hash64(&from, sizeof(from), seed);
	port = fdb_lookup(&t->fdb, &from, hash);
	if ((!port || *port != in) && !(from.mac[0] & 1))
		learn(t, &from, hash, in, c);
	if (!(to.mac[0] & 1)) {
		port = fdb_lookup(&t->fdb, &to, shunt_hash64(&to, sizeof(to), seed));
		if (port) {
			if (*port == in) {	/* on the side that it came from */
				c->local++;
				return XDP_DROP;
			}
			c->known++;
			return bpf_redirect_map(&ports, *port, XDP_DROP);
		}
	}
	c->flooded++;
	return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
