/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of kernel structures that are read live, found by CO-RE: only the fields named here matter, offsets come from the
 * running kernel's BTF. Names after ___ are flavours for fields that moved between versions.
 */
#ifndef SHUNT_KERNEL_H
#define SHUNT_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include "bpf_helpers.h"
#include "bpf_core_read.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct nf_hook_entry {
	void *hook;
	void *priv;
};
struct nf_hook_entries {
	__u16 num_hook_entries;
	struct nf_hook_entry hooks[0];
};
struct nf_hook_ops {
	int priority;
};
/* Of the module x_tables where that is one. */
struct xt_table {
	void *private;
	__u8 af;
	char name[32];
};
struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};
struct list_head {
	struct list_head *next;
};
typedef struct {
	int counter;
} shunt_atomic_t;

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[5];
	struct nf_hook_entries *hooks_ipv6[5];
	struct nf_hook_entries *hooks_bridge[5];
};
struct netns_nftables {
	unsigned int base_seq;
};
struct fib_rules_ops {
	unsigned int fib_rules_seq;
};
struct ipv4_devconf {
	int data[34];
};
struct netns_ipv4 {
	struct ipv4_devconf *devconf_all;
	struct fib_rules_ops *rules_ops;
	shunt_atomic_t dev_addr_genid;
	shunt_atomic_t rt_genid;
	bool fib_has_custom_rules;
	bool fib_has_custom_local_routes;
};
struct ipv6_devconf {
	__s32 disable_ipv6;
	__s32 forwarding;
};
struct netns_ipv6 {
	struct ipv6_devconf *devconf_all;
	struct fib_rules_ops *fib6_rules_ops;
	shunt_atomic_t fib6_sernum;
};
struct netns_nexthop {
	unsigned int seq;
};
struct nf_tcp_net {
	unsigned int timeouts[4];
};
struct nf_udp_net {
	unsigned int timeouts[2];
};
struct nf_ip_net {
	struct nf_tcp_net tcp;
	struct nf_udp_net udp;
};
struct netns_ct {
	__u8 sysctl_checksum;
	struct nf_ip_net nf_ct_proto;
};
/* Of the module nf_conntrack where that is one. */
struct nf_ct_ext {
	__u8 offset[1];	/* by enum nf_ct_ext_id, 0: not there */
};
struct ip_ct_tcp_state {
	__u8 flags;
};
struct ip_ct_tcp {
	struct ip_ct_tcp_state seen[2];
	__u8 state;
	__u8 last_dir;
	__u8 retrans;
	__u8 last_index;
	__u16 last_win;
};
union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
};
union nf_inet_addr {
	__u32 all[4];
};
union nf_conntrack_man_proto {
	__be16 all;
};
struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
	__u16 l3num;
};
struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
		__u8 dir;
	} dst;
};
struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
};
struct nf_conntrack_zone {
	__u16 id;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct nf_conn_nat {
	int masq_index;
};
struct nf_conn {
	struct nf_conntrack_zone zone;
	struct nf_conntrack_tuple_hash tuplehash[2];
	__u32 timeout;
	unsigned long status;
	possible_net_t ct_net;
	__u32 mark;
	struct nf_ct_ext *ext;
	union nf_conntrack_proto proto;
};
/* Of the module nf_flow_table where that is one. */
struct flow_offload_tuple {
	__u16 xmit_type : 3;
	__u16 encap_num : 2;
	__u16 mtu;
	void *dst_cache;
	__u32 dst_cookie;
	__u32 ifidx;
};
struct flow_offload_tuple_rhash {
	struct flow_offload_tuple tuple;
};
struct dst_entry {
	struct net_device *dev;
	short obsolete;
};
struct rtable {
	int rt_genid;
	__u8 rt_gw_family;
	__be32 rt_gw4;
};
struct fib6_node {
	int fn_sernum;
};
struct fib6_info {
	struct fib6_node *fib6_node;
	unsigned long expires;
	__u32 fib6_flags;
};
struct rt6_info {
	struct fib6_info *from;
	int sernum;
	struct in6_addr___shunt {
		__be32 word[4];
	} rt6i_gateway;
	__u32 rt6i_flags;
};
struct netns_xfrm {
	unsigned int policy_count[6];
};
struct in_device {
	struct ipv4_devconf cnf;
};
struct inet6_dev {
	struct ipv6_devconf cnf;
};
struct bpf_mprog_bundle {
	unsigned int count;
};
struct bpf_mprog_entry {
	struct bpf_mprog_bundle *parent;
};
struct bpf_xdp_entity {
	void *prog;
	void *link;
};
struct net_device {
	unsigned int flags;
	int ifindex;
	possible_net_t nd_net;
	struct in_device *ip_ptr;
	struct inet6_dev *ip6_ptr;
	struct list_head ptype_all;
	struct list_head ptype_specific;
	struct list_head dev_list;
	void *rx_handler;
	struct bpf_mprog_entry *tcx_ingress;
	struct bpf_mprog_entry *tcx_egress;
	struct bpf_xdp_entity xdp_state[3];
	struct hlist_node index_hlist;
};
struct net {
	struct net_generic *gen;
	struct list_head dev_base_head;
	struct hlist_head *dev_index_head;
	struct net_device *loopback_dev;
	struct list_head ptype_all;
	struct list_head ptype_specific;
	struct netns_nexthop nexthop;
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
	struct netns_nf nf;
	struct netns_nftables nft;
	struct netns_ct ct;
	struct netns_xfrm xfrm;
};
struct nsproxy {
	struct net *net_ns;
};
struct task_struct {
	struct nsproxy *nsproxy;
};
struct sk_buff {
	struct net_device *dev;
	__u8 ip_summed : 2;
	__u32 vlan_all;
	unsigned char *head;
	unsigned int end;
};
struct skb_shared_info {
	unsigned short gso_size;
};
struct xdp_rxq_info {
	struct net_device *dev;
};
struct xdp_buff {
	struct xdp_rxq_info *rxq;
	unsigned int flags;
};
struct veth_xdp_buff {
	struct xdp_buff xdp;
	struct sk_buff *skb;
};
/* What can hang on a connection; which of them exist, and their numbers, depend on how the kernel was configured. */
enum nf_ct_ext_id {
	NF_CT_EXT_HELPER = 90,
	NF_CT_EXT_SEQADJ,
	NF_CT_EXT_ACCT,
	NF_CT_EXT_TIMEOUT,
	NF_CT_EXT_SYNPROXY,
	NF_CT_EXT_ACT_CT,
	NF_CT_EXT_NAT,
};
enum xdp_buff_flags {
	XDP_FLAGS_HAS_FRAGS = 1,
};

#pragma clang attribute pop

/* net/core/filter.c and kernel/bpf/helpers.c: cast a program's context, or any address, to a readable kernel type. */
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/*
 * net/netfilter/nf_conntrack_bpf.c, Linux 6.0: find the connection of a packet, which must be let go again; set when it ends. The lookup takes zones since Linux 6.11,
 * by a longer structure, which the daemon looks for (internal/datapath: knowConntrack); what is given without them is shorter, and zone 0.
 */
struct bpf_ct_opts___shunt {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;	/* out: 0 original, 1 reply */
	__u16 zone_id;	/* 0 in the shorter one, and the rest is not there */
	__u8 zone_dir;
	__u8 reserved[3];
};
#define CT_OPTS_NO_ZONE 12	/* its length */
extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts___shunt *opts, __u32 len) __ksym __weak;
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts___shunt *opts, __u32 len) __ksym __weak;
/* net/netfilter/nf_flow_table_bpf.c, Linux 6.11: find the entry of a packet in the flow table of its device, and extend its life. */
struct bpf_flowtable_opts___shunt {
	__s32 error;
};
extern struct flow_offload_tuple_rhash *bpf_xdp_flow_lookup(struct xdp_md *ctx, struct bpf_fib_lookup *by, struct bpf_flowtable_opts___shunt *opts, __u32 len) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *ct) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn *ct, __u32 ms) __ksym __weak;

#endif
