/* SPDX-License-Identifier: GPL-2.0 */
/*
 * port: what belongs to the port that a packet came by, its configuration and its counters.
 *
 * Problem: a program that is made for one port has both built in, which takes milliseconds per change. The generic program serves every port
 * and has to find them for each packet, and a packet must see one configuration from beginning to end.
 * Mechanism: a configuration is written once, under a number of its own, and never changed; a port changes to it by one store of the
 * number. The old one is deleted after every packet that may have seen its number is through. (Updating an element in place would not do: hash
 * maps give the memory of a replaced element to the next one at once, from Linux 6.1 on.)
 * Ports are found by the low bits of their ifindex. Of two that share them one is not served here; the guard compares the whole number.
 */
#ifndef SHUNT_PORT_H
#define SHUNT_PORT_H

#include "packet.h"

/* Of the port that a program is made for; the last element is rest.h's. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHUNT_R_COUNT + 1);
	__type(key, __u32);
	__type(value, struct shunt_count);
} stats SEC(".maps");

#ifdef SHUNT_GENERIC

/* By port and hook: the number of its configuration, 0 for none; mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_PORT_SLOTS * 2);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} port_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHUNT_PORT_SLOTS * 2);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, __u64);
	__type(value, struct shunt_config);
} configs SEC(".maps");

/* Counters of all ports, by the place that the configuration names. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SHUNT_PORT_SLOTS);
	__type(key, __u32);
	__array(values, typeof(stats));
} port_stats SEC(".maps");

/* Does the program do without what a port can spare for a moment? See enum shunt_generic. */
always_inline int lean(void)
{
	return frozen.generic == SHUNT_GENERIC_LEAN;
}

always_inline int configured(struct packet *p)
{
	__u32 slot = (ctx_ifindex(p->ctx) & (SHUNT_PORT_SLOTS - 1)) * 2 + HOOK;
	volatile __u64 *current = bpf_map_lookup_elem(&port_config, &slot);
	__u64 number = current ? *current : 0;

	p->conf = bpf_map_lookup_elem(&configs, &number);
	return p->conf != NULL;
}

/* A packet without a configuration is no port's. */
always_inline struct shunt_count *counter(struct packet *p, __u32 reason)
{
	__u32 place = p->conf ? p->conf->counters : 0;
	void *own = bpf_map_lookup_elem(&port_stats, &place);

	return own ? bpf_map_lookup_elem(own, &reason) : NULL;
}

#else

always_inline int lean(void)
{
	return 0;
}

always_inline int configured(struct packet *p)
{
	return 1;
}

always_inline struct shunt_count *counter(struct packet *p, __u32 reason)
{
	return bpf_map_lookup_elem(&stats, &reason);
}

#endif
#endif
