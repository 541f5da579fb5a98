/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the daemon runs for itself (BPF_PROG_RUN): find the words to watch, and give a sign of life.
 *
 * Addresses and values are read in the namespace of the calling thread. A structure that a kernel lacks leaves its word at address 0,
 * and the daemon does without it.
 */
#include "../include/common.h"
#include "../include/kernel.h"

#define WORD(q, w, ptr, type)									\
	do {											\
		type v_ = 0;									\
		(q)->word[w].addr = (__u64)(ptr);						\
		(q)->word[w].width = sizeof(type);						\
		if (bpf_probe_read_kernel(&v_, sizeof(v_), (void *)(ptr)))			\
			(q)->word[w].addr = 0;							\
		(q)->word[w].value = (__u64)v_;							\
	} while (0)

/* Address of a member, by CO-RE: the compiler keeps &p->member relocatable. */
#define AT(p, member) ((__u64)__builtin_preserve_access_index(&(p)->member))
#define HAS(p, member) bpf_core_field_exists((p)->member)

/* IPV4_DEVCONF_*, include/uapi/linux/ip.h: indexes count from 1. */
#define DEVCONF_RP_FILTER 8

/* NF_INET_*, include/uapi/linux/netfilter.h, and NF_BR_* alike */
#define PREROUTING 0
#define INPUT 1
#define FORWARD 2
#define OUTPUT 3
#define POSTROUTING 4

/* include/uapi/linux/xfrm.h; XFRM_POLICY_FWD is the next. */
#define XFRM_POLICY_OUT 1

always_inline void net_words(struct shunt_guard_query *q, struct net *net)
{
	struct ipv4_devconf *all4 = BPF_CORE_READ(net, ipv4.devconf_all);
	struct ipv6_devconf *all6 = BPF_CORE_READ(net, ipv6.devconf_all);
	struct fib_rules_ops *ops4 = BPF_CORE_READ(net, ipv4.rules_ops);
	struct fib_rules_ops *ops6 = BPF_CORE_READ(net, ipv6.fib6_rules_ops);

	WORD(q, SHUNT_W_IP4_PREROUTING, AT(net, nf.hooks_ipv4[0]), __u64);
	WORD(q, SHUNT_W_IP4_FORWARD, AT(net, nf.hooks_ipv4[2]), __u64);
	WORD(q, SHUNT_W_IP4_POSTROUTING, AT(net, nf.hooks_ipv4[4]), __u64);
	WORD(q, SHUNT_W_IP6_PREROUTING, AT(net, nf.hooks_ipv6[0]), __u64);
	WORD(q, SHUNT_W_IP6_FORWARD, AT(net, nf.hooks_ipv6[2]), __u64);
	WORD(q, SHUNT_W_IP6_POSTROUTING, AT(net, nf.hooks_ipv6[4]), __u64);
	if (HAS(net, nft.base_seq))
		WORD(q, SHUNT_W_NFT_BASE_SEQ, AT(net, nft.base_seq), __u32);
	if (HAS(net, ipv4.dev_addr_genid))
		WORD(q, SHUNT_W_ADDR_GENID4, AT(net, ipv4.dev_addr_genid), __u32);
	if (all4)
		WORD(q, SHUNT_W_ALL_RP_FILTER, AT(all4, data[DEVCONF_RP_FILTER - 1]), __u32);
	if (all6)
		WORD(q, SHUNT_W_ALL_FORWARDING6, AT(all6, forwarding), __u32);
	if (ops4)
		WORD(q, SHUNT_W_RULES_SEQ4, AT(ops4, fib_rules_seq), __u32);
	if (ops6)
		WORD(q, SHUNT_W_RULES_SEQ6, AT(ops6, fib_rules_seq), __u32);
	/* How many policies of the directions out and forward there are, which are neighbours: a forwarded packet meets both (xfrm_route_forward()). */
	if (HAS(net, xfrm.policy_count))
		WORD(q, SHUNT_W_XFRM_POLICIES, AT(net, xfrm.policy_count[XFRM_POLICY_OUT]), __u64);
	WORD(q, SHUNT_W_CUSTOM_RULES4, AT(net, ipv4.fib_has_custom_rules), __u32);
	WORD(q, SHUNT_W_CUSTOM_LOCAL4, AT(net, ipv4.fib_has_custom_local_routes), __u32);
	WORD(q, SHUNT_W_NEXTHOP_SEQ, AT(net, nexthop.seq), __u32);
	WORD(q, SHUNT_W_ROUTE_GENID4, AT(net, ipv4.rt_genid), __u32);
	if (HAS(net, ipv6.fib6_sernum))
		WORD(q, SHUNT_W_ROUTE_GENID6, AT(net, ipv6.fib6_sernum), __u32);
	if (HAS(net, ct.nf_ct_proto)) {
		/* enum tcp_conntrack and udp_conntrack: established, and seen from both sides. */
		WORD(q, SHUNT_W_CT_ESTABLISHED, AT(net, ct.nf_ct_proto.tcp.timeouts[3]), __u32);
		WORD(q, SHUNT_W_CT_STREAM, AT(net, ct.nf_ct_proto.udp.timeouts[1]), __u32);
		WORD(q, SHUNT_W_CT_CHECKSUM, AT(net, ct.sysctl_checksum), __u32);
	}
	if (HAS(net, nf.hooks_bridge)) {
		WORD(q, SHUNT_W_BR_PREROUTING, AT(net, nf.hooks_bridge[PREROUTING]), __u64);
		WORD(q, SHUNT_W_BR_INPUT, AT(net, nf.hooks_bridge[INPUT]), __u64);
		WORD(q, SHUNT_W_BR_FORWARD, AT(net, nf.hooks_bridge[FORWARD]), __u64);
		WORD(q, SHUNT_W_BR_OUTPUT, AT(net, nf.hooks_bridge[OUTPUT]), __u64);
		WORD(q, SHUNT_W_BR_POSTROUTING, AT(net, nf.hooks_bridge[POSTROUTING]), __u64);
	}
	if (HAS(net, ptype_all))
		WORD(q, SHUNT_W_PTYPE_ALL, AT(net, ptype_all), __u64);
}

#define NFPROTO_IPV4 2
#define NFPROTO_IPV6 10

/* A table's name up to eight characters, as a number. */
#define NAME(a, b, c, d, e, f, g, h)								\
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |	\
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)
#define RAW NAME('r', 'a', 'w', 0, 0, 0, 0, 0)
#define MANGLE NAME('m', 'a', 'n', 'g', 'l', 'e', 0, 0)
#define FILTER NAME('f', 'i', 'l', 't', 'e', 'r', 0, 0)
#define SECURITY NAME('s', 'e', 'c', 'u', 'r', 'i', 't', 'y')

/*
 * The legacy table of a name at a hook, 0 if there is none. The private data of a table's function is the table; family and name tell it
 * from that of other functions. Not inlined, because eight copies of the loop would keep the verifier busy.
 */
static __attribute__((noinline)) __u64 legacy_table(struct nf_hook_entries *hook, __u32 family, __u64 name)
{
	__u32 n = BPF_CORE_READ(hook, num_hook_entries);

	for (int i = 0; i < SHUNT_HOOK_ENTRIES && i < n; i++) {
		struct nf_hook_entry e = {};
		struct xt_table *table;
		__u64 named = 0;
		__u8 af = 0;

		bpf_probe_read_kernel(&e, sizeof(e), &hook->hooks[i]);
		table = e.priv;
		bpf_core_read(&af, sizeof(af), &table->af);
		bpf_core_read(&named, sizeof(named), &table->name);
		if (named == name && af == family)
			return (__u64)table;
	}
	return 0;
}

/*
 * The rules of the legacy tables that forwarded packets meet. Each change replaces them as a whole (xt_replace_table()). The fifth table,
 * nat, comes with connection tracking, which is never idle.
 */
always_inline void legacy_words(struct shunt_guard_query *q, struct net *net)
{
	struct xt_table *table = NULL;

	q->legacy = HAS(table, private) && HAS(table, af) && HAS(table, name);
	if (!q->legacy)
		return;
#define RULES(w, hooks, family, name)									\
	table = (void *)legacy_table(BPF_CORE_READ(net, nf.hooks), family, name);			\
	if (table)											\
		WORD(q, w, AT(table, private), __u64)
	RULES(SHUNT_W_LEGACY4_RAW, hooks_ipv4[PREROUTING], NFPROTO_IPV4, RAW);
	RULES(SHUNT_W_LEGACY4_MANGLE, hooks_ipv4[PREROUTING], NFPROTO_IPV4, MANGLE);
	RULES(SHUNT_W_LEGACY4_FILTER, hooks_ipv4[FORWARD], NFPROTO_IPV4, FILTER);
	RULES(SHUNT_W_LEGACY4_SECURITY, hooks_ipv4[FORWARD], NFPROTO_IPV4, SECURITY);
	RULES(SHUNT_W_LEGACY6_RAW, hooks_ipv6[PREROUTING], NFPROTO_IPV6, RAW);
	RULES(SHUNT_W_LEGACY6_MANGLE, hooks_ipv6[PREROUTING], NFPROTO_IPV6, MANGLE);
	RULES(SHUNT_W_LEGACY6_FILTER, hooks_ipv6[FORWARD], NFPROTO_IPV6, FILTER);
	RULES(SHUNT_W_LEGACY6_SECURITY, hooks_ipv6[FORWARD], NFPROTO_IPV6, SECURITY);
}

always_inline void dev_words(struct shunt_guard_query *q, struct net_device *dev)
{
	struct in_device *in4 = BPF_CORE_READ(dev, ip_ptr);
	struct inet6_dev *in6 = BPF_CORE_READ(dev, ip6_ptr);

	if (in4)
		WORD(q, SHUNT_W_DEV_RP_FILTER, AT(in4, cnf.data[DEVCONF_RP_FILTER - 1]), __u32);
	if (in6) {
		WORD(q, SHUNT_W_DEV_FORWARDING6, AT(in6, cnf.forwarding), __u32);
		WORD(q, SHUNT_W_DEV_DISABLE6, AT(in6, cnf.disable_ipv6), __u32);
	}
	WORD(q, SHUNT_W_DEV_PTYPE_ALL, AT(dev, ptype_all), __u64);
	WORD(q, SHUNT_W_DEV_HANDLER, AT(dev, rx_handler), __u64);
}

SEC("syscall")
int shunt_guard(struct shunt_guard_query *q)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);
	struct hlist_head *heads = BPF_CORE_READ(net, dev_index_head);
	struct hlist_node *node = NULL;
	__u32 ifindex = q->ifindex;

	q->net = (__u64)net;
	q->jiffies = bpf_jiffies64();
	q->found = 0;
	net_words(q, net);
	legacy_words(q, net);
	if (!ifindex)
		return 0;
	/* dev_index_hash(), net/core/dev.h: 256 chains. */
	bpf_core_read(&node, sizeof(node), &heads[ifindex & 255].first);
	for (int i = 0; i < 64 && node; i++) {
		struct net_device *dev = (void *)node - bpf_core_field_offset(struct net_device, index_hlist);

		if (BPF_CORE_READ(dev, ifindex) == ifindex) {
			q->found = 1;
			dev_words(q, dev);
			return 0;
		}
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

/*
 * The functions behind one netfilter hook, for kernels that cannot list them (no nfnetlink_hook) and as a check on those that can:
 * struct nf_hook_entries is the table that the kernel itself walks; behind it lie as many pointers to struct nf_hook_ops
 * (net/netfilter/core.c, nf_hook_entries_get_hook_ops()).
 */
SEC("syscall")
int shunt_hooks(struct shunt_hooks_query *q)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);
	struct nf_hook_entries *table = NULL;
	__u32 hook = q->hook, n;

	if (hook > 4)
		return 1;
	if (q->family == 4)
		bpf_core_read(&table, sizeof(table), &net->nf.hooks_ipv4[hook]);
	else if (q->family == 7 && HAS(net, nf.hooks_bridge))
		bpf_core_read(&table, sizeof(table), &net->nf.hooks_bridge[hook]);
	else if (q->family == 6)
		bpf_core_read(&table, sizeof(table), &net->nf.hooks_ipv6[hook]);
	q->count = 0;
	if (!table)
		return 0;
	n = BPF_CORE_READ(table, num_hook_entries);
	q->count = n;
#pragma clang loop unroll(full)	/* the context takes only constant offsets */
	for (int i = 0; i < SHUNT_HOOK_ENTRIES; i++) {
		struct nf_hook_ops **ops, *op = NULL;
		struct nf_hook_entry e = {};

		if (i >= n)
			break;
		bpf_probe_read_kernel(&e, sizeof(e), &table->hooks[i]);
		ops = (void *)&table->hooks[n];
		bpf_probe_read_kernel(&op, sizeof(op), &ops[i]);
		q->entry[i].func = (__u64)e.hook;
		q->entry[i].priv = (__u64)e.priv;
		q->entry[i].priority = BPF_CORE_READ(op, priority);
	}
	return 0;
}

#define PERNET_IDS 256	/* subsystems with data of their own in each namespace; some dozens */

always_inline __u64 read8(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr);
	return v;
}

/*
 * Where ipset keeps the sets of this namespace. Its number among the namespace's data is a private variable (ip_set_net_id), so each is tried: the
 * one is ipset's whose list of sets has the set of the name that the kernel told us at the place that it told us. struct net_generic is an array of
 * pointers, in whose first places (never anybody's number) its length stands first.
 */
SEC("syscall")
int shunt_find_sets(struct shunt_sets_query *q)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 gen = (__u64)BPF_CORE_READ(task, nsproxy, net_ns, gen);
	__u32 len = read8(gen), index = q->index;
	__u64 n0 = q->name[0], n1 = q->name[1], n2 = q->name[2], n3 = q->name[3];
	__u32 list = q->at.list, name = q->at.name;
	__u64 found = 0;

	for (int i = 0; i < PERNET_IDS; i++) {
		__u64 inst, at;

		if (i >= len)
			break;
		inst = read8(gen + 8 * i);
		at = read8(read8(inst + list) + 8 * index) + name;
		if (read8(at) == n0 && read8(at + 8) == n1 && read8(at + 16) == n2 && read8(at + 24) == n3)
			found = inst;
	}
	q->at.inst = found;
	return 0;
}

#define MAX_DEVICES 8192	/* the rest is looked at once a second alone; datapath.BeatDevices */
#define XDP_MODES 3		/* enum bpf_xdp_mode */

/* A walk over the devices of a namespace. */
struct walk {
	struct list_head *head, *at;
	__u64 sum;
	__u32 index;	/* of the device whose tcx ingress alone is meant; 0: all */
};

/* Sums do not depend on the order of devices, and what carries nothing adds nothing: devices come and go without a word. */
always_inline void add(struct walk *w, __u64 dev, __u64 what)
{
	__u64 h = (what ^ dev) * 0x9e3779b97f4a7c15;

	if (what)
		w->sum += (h ^ h >> 32) * 0x9e3779b97f4a7c15;
}

/* The first entry of a list, 0 if it is empty. A new packet socket comes first (dev_add_pack()). */
always_inline __u64 first(__u64 list)
{
	__u64 next = 0;

	bpf_probe_read_kernel(&next, sizeof(next), (void *)list);
	return next == list ? 0 : next;
}

/* Each program that comes or goes moves the list to its twin and counts (bpf_mprog_commit()); one that takes another's place does neither. */
always_inline __u64 programs(struct bpf_mprog_entry *entry)
{
	return entry ? (__u64)entry + ((__u64)BPF_CORE_READ(entry, parent, count) << 48) : 0;
}

static long sum_device(__u32 i, struct walk *w)
{
	struct list_head *at = w->at, *next = BPF_CORE_READ(at, next);
	struct net_device *dev;
	__u64 n;

	if (!next || next == w->head)
		return 1;
	w->at = next;
	dev = (void *)next - bpf_core_field_offset(struct net_device, dev_list);
	n = (__u64)dev;
	if (w->index) {
		if (BPF_CORE_READ(dev, ifindex) != w->index)
			return 0;
		if (HAS(dev, tcx_ingress))
			add(w, n + 2, programs(BPF_CORE_READ(dev, tcx_ingress)));
		return 1;
	}
	add(w, n, first(AT(dev, ptype_all)));
	add(w, n + 1, first(AT(dev, ptype_specific)));
	if (HAS(dev, tcx_ingress)) {
		add(w, n + 2, programs(BPF_CORE_READ(dev, tcx_ingress)));
		add(w, n + 3, programs(BPF_CORE_READ(dev, tcx_egress)));
	}
	for (int mode = 0; mode < XDP_MODES; mode++)
		add(w, n + 4 + mode, (__u64)BPF_CORE_READ(dev, xdp_state[mode].link));
	return 0;
}

/*
 * A sign of life; and a sum over what can be attached to devices without an event: tcx programs (each change of them moves the list,
 * bpf_mprog_commit()), XDP programs by links, packet sockets. Another sum says that something was; a walk beside a change of the list of devices,
 * which has an event, may end anywhere.
 */
SEC("syscall")
int shunt_beat(struct shunt_beat_query *q)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);
	struct walk w = {.index = q->index};

	w.head = w.at = (void *)AT(net, dev_base_head);
	if (!w.index)
		live.heartbeat = bpf_jiffies64();
	if (!w.index && HAS(net, ptype_specific))
		add(&w, 0, first(AT(net, ptype_specific)));
	bpf_loop(MAX_DEVICES, sum_device, &w, 0);
	q->attached = w.sum;
	return 0;
}

/* Types that Go needs; a pointer to each makes the compiler describe it. */
const struct shunt_config *export_config __attribute__((unused));
const struct shunt_input *export_input __attribute__((unused));
const struct shunt_guard_word *export_guard_word __attribute__((unused));
const struct shunt_live *export_live __attribute__((unused));
const struct shunt_count *export_count __attribute__((unused));
const struct shunt_vlan_key *export_vlan_key __attribute__((unused));
const struct shunt_tags *export_tags __attribute__((unused));
const struct shunt_prefix4 *export_prefix4 __attribute__((unused));
const struct shunt_prefix6 *export_prefix6 __attribute__((unused));
const struct shunt_special *export_special __attribute__((unused));
const struct shunt_neigh_use *export_neigh_use __attribute__((unused));
const struct shunt_conn *export_conn __attribute__((unused));
const struct shunt_trace *export_trace __attribute__((unused));
const struct shunt_guard_query *export_guard_query __attribute__((unused));
const struct shunt_hooks_query *export_hooks_query __attribute__((unused));
const struct shunt_sets *export_sets __attribute__((unused));
const enum shunt_bridge *export_bridge __attribute__((unused));
const enum shunt_onto *export_onto __attribute__((unused));
const enum shunt_called *export_called __attribute__((unused));
const enum shunt_shown *export_shown __attribute__((unused));
const enum shunt_nat *export_nat __attribute__((unused));
const enum shunt_track *export_track __attribute__((unused));
const enum shunt_look *export_look __attribute__((unused));
const struct shunt_bridges *export_bridges __attribute__((unused));
const struct shunt_set_kind *export_set_kind __attribute__((unused));
const struct shunt_sets_query *export_sets_query __attribute__((unused));
const struct shunt_beat_query *export_beat_query __attribute__((unused));
const enum shunt_set_method *export_set_method __attribute__((unused));
const enum shunt_set_tail *export_set_tail __attribute__((unused));
const struct shunt_word_value *export_word_value __attribute__((unused));
const enum shunt_reason *export_reason __attribute__((unused));
const enum shunt_rpf *export_rpf __attribute__((unused));
const enum shunt_kern_ctx *export_kern_ctx __attribute__((unused));
const enum shunt_peek *export_peek __attribute__((unused));
const enum shunt_word *export_word __attribute__((unused));

char LICENSE[] SEC("license") = "GPL";
