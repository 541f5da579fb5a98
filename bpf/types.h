/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Structures shared by the data path and the daemon: the single source, exported to Go by bpf2go.
 *
 * Byte order is the host's unless a field says "be". Sizes are fixed and padding is explicit, since Go code marshals these.
 */
#ifndef SHUNT_TYPES_H
#define SHUNT_TYPES_H

#include <linux/types.h>

#define SHUNT_GUARD_WORDS 12	/* words that all packets of a program rest on, at most */
#define SHUNT_FAMILY_WORDS 16	/* the same for those of one family */
#define SHUNT_GUARD_SLOTS 512	/* words that one namespace can watch */
#define SHUNT_NEIGH_SLOTS 512	/* per CPU, see struct shunt_neigh_use */
#define SHUNT_ROUTE_SLOTS 4096	/* per CPU, see struct shunt_route6 */
#define SHUNT_HOP_SLOTS 2048	/* per CPU, see struct shunt_hop4 */
#define SHUNT_DEST_WAYS 4	/* destinations in one cache line */
#define SHUNT_PORT_SLOTS 4096	/* ports that the generic program can serve; a power of two */
#define SHUNT_RULE_STAGES 12	/* IPv4 before connection tracking, before the route and behind it, IPv6 the same; and of family bridge the same (the first of each is empty) */
#define SHUNT_RULE_FRONTS 2	/* asked before all stages of IPv4, of IPv6: who is concerned by rules that are newer than the images */
#define SHUNT_RULE_OVERS 2	/* asked behind the route before the image of IPv4, of IPv6, and decide over whom newer rules concern */
#define SHUNT_RULES_ON (1U << 31)
#define SHUNT_RULES_DS (1U << 30)	/* rules change the TOS or traffic class */
#define SHUNT_RULES_MARK (1U << 29)	/* rules change the mark */
#define SHUNT_RULES_NOTRACK (1U << 28)	/* rules keep packets out of connection tracking */
#define SHUNT_RULES_ZONE (1U << 27)	/* rules say in which zone a packet's connection is looked up; only where the kernel's lookup knows zones */
#define SHUNT_RULES_TREE (1U << 26)	/* images may have trees in place of rows */
#define SHUNT_RULES_PRIORITY (1U << 25)	/* rules set skb->priority */
#define SHUNT_RULES_ROWS 0xffff		/* 1 << enum shunt_dim */
#define SHUNT_RULE_MOVES 12	/* first moves through an image that are made without bpf_loop() */
#define SHUNT_RULE_MOVES_FEW 2
#define SHUNT_BY_PEER (1U << 30)	/* in values of tx_tc: the port is a veth whose other end may be entered */
#define SHUNT_ONTO (1U << 29)	/* in values of tx_tc: a bridge whose port may be found and entered at once (node/onto.h) */
#define SHUNT_INTO_TUNNEL (1U << 28)	/* in values of tx_tc: the interface leads into a tunnel */
#define SHUNT_VETH (1U << 27)	/* in values of tx_tc: the port is a veth */
#define SHUNT_SHORT6 (1U << 26)	/* in values of tx_tc: of IPv6 the interface takes shorter packets than its MTU says (net.ipv6.conf.IFACE.mtu) */
#define SHUNT_BRIDGED (1U << 31)	/* in keys of tx_xdp and tx_tc: for frames that a bridge hands to its port */
#define SHUNT_ASKS_SETS (1U << 31)	/* in shunt_rule_shape.asks: rules ask ipsets */
#define SHUNT_ASKS_SENDER (1U << 30)	/* the same: what rules say holds for a sender whose address is of type unicast (node/sender.h) */
#define SHUNT_ASKS_RECEIVER (1U << 29)	/* the same for the receiver of an IPv6 packet, behind the route */
#define SHUNT_TALLY_BITS 14
#define SHUNT_TALLY_SLOTS (1 << SHUNT_TALLY_BITS)	/* per CPU, see struct shunt_tally */
#define SHUNT_NOTED_CONNS (1 << 16)	/* of all CPUs, see node/conntrack.h */
#define SHUNT_REPORT_AFTER 8	/* packets of a TCP connection on one CPU, see struct shunt_conn */
#define SHUNT_REPORT_BY_CHANCE 16	/* one of so many that take a slot of another connection */
#define SHUNT_TRACE_MAGIC 0x7368756e74747263ULL

/* How the kernel's memory can be read; probed at start. */
enum shunt_peek {
	SHUNT_PEEK_NONE,
	SHUNT_PEEK_CAST,	/* bpf_rdonly_cast to untrusted memory, Linux 6.17 */
	SHUNT_PEEK_PROBE,	/* bpf_probe_read_kernel */
};

/* How a program reads the device that its packet came by; probed at start. */
enum shunt_kern_ctx {
	SHUNT_CTX_NONE,
	SHUNT_CTX_CAST,		/* bpf_cast_to_kern_ctx, Linux 6.2 */
	SHUNT_CTX_PROBE,	/* bpf_probe_read_kernel of the context itself */
};

/* Is the port one of a bridge (node/bridge.h), and what is fast there? */
enum shunt_bridge {
	SHUNT_BRIDGE_NONE,
	SHUNT_BRIDGE_FRAMES,	/* frames between ports */
	SHUNT_BRIDGE_HOST,	/* and what is addressed to the bridge itself, which is `in` then, and routed */
};

/* Do routes lead to bridges whose ports may be entered at once (node/onto.h)? */
enum shunt_onto {
	SHUNT_ONTO_NONE,
	SHUNT_ONTO_PLAIN,	/* to such as do not filter by VLAN */
	SHUNT_ONTO_VLANS,	/* to such as do, too */
};

/* Does br_netfilter show bridged packets of a family to the rules of IP (node/bridge.h)? */
enum shunt_called {
	SHUNT_CALLED_NONE,
	SHUNT_CALLED_OPTION,	/* while the bridge's own option says so; the rules say nothing, or are asked: shown4, shown6 */
	SHUNT_CALLED_ALL,	/* all of them, and alike */
	SHUNT_CALLED_SLOW,	/* and that is left to Linux */
};

/* What is asked of frames between ports, by family. */
enum shunt_shown {
	SHUNT_SHOWN_IP = 1,	/* rules of IP and connection tracking, by br_netfilter */
	SHUNT_SHOWN_FRAMES = 2,	/* chains of family bridge */
};

/* Which connections of a family are looked up. */
enum shunt_track {
	SHUNT_TRACK_ALL = 1,
	SHUNT_TRACK_NO_TCP,	/* TCP is left to Linux */
};

/* How connections are found. */
enum shunt_look {
	SHUNT_LOOK_UP = 1,	/* in the kernel's table, each time */
	SHUNT_LOOK_NOTED,	/* where it was found before, if that is noted */
};

enum shunt_nat {
	SHUNT_NAT_IP4 = 1,
	SHUNT_NAT_IP6 = 2,
};

/* State bits of a packet's connection, NF_STATE_BIT() of include/uapi/linux/netfilter/nf_conntrack_common.h. */
enum shunt_ct_state {
	SHUNT_CT_INVALID = 1 << 0,
	SHUNT_CT_ESTABLISHED = 1 << 1,
	SHUNT_CT_RELATED = 1 << 2,
	SHUNT_CT_NEW = 1 << 3,
	SHUNT_CT_UNTRACKED = 1 << 6,
};

/* Reverse path check of IPv4 sources, fib_validate_source() in net/ipv4/fib_frontend.c. */
enum shunt_rpf {
	SHUNT_RPF_NONE,		/* nothing to look up */
	SHUNT_RPF_SOURCE,	/* rp_filter 0 with custom rules: the source's route must be unicast, or there must be none */
	SHUNT_RPF_STRICT,
	SHUNT_RPF_LOOSE,
};

/* A logical layer-3 interface, as packets enter it. */
struct shunt_input {
	__u32 ifindex;
	__u8 mac[6];
	__u8 ip4;	/* 0: fast; else the reason code by which IPv4 goes to Linux */
	__u8 ip6;
	__u8 rpf4;	/* enum shunt_rpf */
	__u8 local4;	/* 1: a source that is a local address goes to Linux */
	__u8 local6;
	__u8 rpf_in;	/* 1: the way back is looked up where packets enter (VRF), not where they leave */
};

/* A kernel word that must keep the value it had when the configuration was read. */
struct shunt_guard_word {
	__u64 addr;	/* kernel address */
	__u16 slot;	/* index into shunt_live.want */
	__u8 width;	/* bytes: 4 or 8 */
	__u8 pad[5];
};

/* What an image of rules asks of a packet; internal/rules/image. */
struct shunt_rule_shape {
	__u32 dims;	/* 1 << enum shunt_dim, what rules change, and SHUNT_RULES_ON where there is a stage at all */
	__u32 asks;	/* 1 << enum shunt_value, SHUNT_ASKS_* */
};

/*
 * Where the kernel's ipset keeps what programs read live (node/ipset.h): offsets in bytes by its own type information. They are data and not
 * CO-RE, since ipset may be loaded long after the daemon has started.
 */
struct shunt_sets {
	__u64 inst;		/* address of the namespace's struct ip_set_net; 0: not known */
	__u16 list;		/* in struct ip_set_net: the array of sets */
	__u16 name;		/* in struct ip_set */
	__u16 type;
	__u16 family;
	__u16 extensions;
	__u16 dsize;
	__u16 timeout;		/* of offset[IPSET_EXT_ID_TIMEOUT]: where elements have their end */
	__u16 data;
	__u16 type_name;	/* in struct ip_set_type */
	__u16 bits;		/* in struct htable */
	__u16 bucket;
	__u16 used;		/* in struct hbucket */
	__u16 value;
	__u16 member;		/* in struct set_elem of a list: its links */
	__u16 member_id;
	__u16 pad;
};

/*
 * Where the kernel's bridge keeps what programs read live (node/bridge.h): offsets in bytes by its own type information. They are data and not
 * CO-RE, since the bridge may be loaded long after the daemon has started.
 */
struct shunt_bridges {
	__u64 options;		/* bits of net_bridge's options that must not be set */
	__u64 call4;		/* those that have br_netfilter show IPv4 to the rules, and IPv6 */
	__u64 call6;
	__u64 filtering;	/* the one that has frames filtered by VLAN, */
	__u64 counting;		/* and the one that has them counted by VLAN then */
	__u16 known;		/* 1: the rest is */
	__u16 dev_flags;	/* in struct net_device */
	__u16 dev_priv_flags;
	__u16 dev_ifindex;
	__u16 dev_mtu;
	__u16 dev_handler;	/* rx_handler_data: the port, where it is one */
	__u16 dev_net;
	__u16 dev_addr;		/* points to its address */
	__u16 dev_xdp;		/* of a veth, from its struct net_device on: its native XDP program */
	__u16 dev_node;		/* its place among those with like ifindexes; 0: devices are not looked for */
	__u16 dev_taps;		/* the list of its packet sockets for every protocol */
	__u16 dev_private;	/* where a bridge's struct net_bridge begins */
	__u16 net_devices;	/* in struct net: points to the lists of devices */
	__u16 veth_peer;	/* of a veth, from its struct net_device on; 0: peers are not entered */
	__u16 port_bridge;	/* in struct net_bridge_port */
	__u16 port_dev;
	__u16 port_state;
	__u16 port_flags;
	__u16 port_backup;
	__u16 port_domain;	/* hwdom; 0: this kernel has no switches in hardware */
	__u16 br_dev;		/* in struct net_bridge */
	__u16 br_options;
	__u16 br_ageing;
	__u16 br_changing;	/* topology_change, one byte */
	__u16 br_table;		/* of its FDB */
	__u16 tbl_size;		/* in struct bucket_table */
	__u16 tbl_nest;
	__u16 tbl_seed;
	__u16 tbl_next;
	__u16 tbl_buckets;
	__u16 fdb_node;		/* in struct net_bridge_fdb_entry */
	__u16 fdb_port;
	__u16 fdb_key;		/* address, and VLAN in the last two bytes */
	__u16 fdb_flags;
	__u16 fdb_updated;
	__u16 port_vlans;	/* in struct net_bridge_port: its group of VLANs; 0: these here are not known (node/bridge_vlan.h) */
	__u16 br_vlan_proto;	/* in struct net_bridge */
	__u16 group_table;	/* in struct net_bridge_vlan_group */
	__u16 group_pvid;
	__u16 group_pvid_state;
	__u16 vlan_node;	/* in struct net_bridge_vlan */
	__u16 vlan_id;
	__u16 vlan_flags;
	__u16 vlan_state;
	__u16 dev_vlans;	/* in struct net_device */
	__u16 vlans_devices;	/* in struct vlan_info: of the number of VLAN devices */
	__u16 br_vlans;		/* in struct net_bridge: its own group of VLANs */
	__u16 tag_proto;	/* in a VLAN device: protocol and number, from its struct net_device on */
	__u16 tag_maps;		/* how many priorities it translates on the way out */
	__u16 tag_device;	/* the device that it is on */
	__u16 veth_end;		/* as veth_peer, also where peers are not entered; 0: not known */
	__u16 dev_xdp_skb;	/* in struct net_device: its generic XDP program */
};

/* How sets of one type and family are asked; images have a table of them. What a method does not need is 0. */
struct shunt_set_kind {
	__u64 name[2];		/* the type's, its first 16 bytes */
	__u8 family;		/* NFPROTO_*; 0: sets of any family */
	__u8 method;		/* enum shunt_set_method; 0: this kernel's layout is not known */
	__u8 dims;		/* directions that a rule has to give */
	__u8 tail;		/* enum shunt_set_tail: what of a key is no address */
	__u32 table;		/* offsets in the set's data: of the hash table; of the bitmap; of the list's head */
	__u32 first;		/* of the hash's initial value; of the bitmap's first value */
	__u32 mask;		/* of what addresses are cut to, 0 for nothing */
	__u16 mask_bits;	/* 1: that is a prefix length, else a mask */
	__u16 bias;		/* by how much the prefix length in an element is less */
	__u32 nets;		/* of the list of prefix lengths, each more by one; 0: the set has none */
	__u32 lengths;		/* places in it */
	__u32 net_size;		/* of one */
	__u32 nomatch;		/* the bits of an element's last word that make it an exception */
	__u32 last;		/* bitmap: of its last value; hash with marks: of the bits of them that count */
	__u32 hosts;		/* bitmap: of the number of addresses that share a bit */
	__u32 extensions;	/* bitmap: of what elements have beside their bit */
	__u32 addresses;	/* hash: how many elements begin with; a prefix length is of the last */
	__u32 shift;		/* hash: of the prefix length in an element's last word */
	__u32 pairs;		/* hash: the first of two addresses has a prefix length too, eight bits before the other's, here and in the list */
	__u32 words;		/* pairs: of an element, all of which are hashed, what fills it up too */
};
enum shunt_set_method {
	SHUNT_SET_HASH = 1,
	SHUNT_SET_BITMAP_IP,
	SHUNT_SET_BITMAP_PORT,
	SHUNT_SET_BITMAP_MAC,
	SHUNT_SET_LIST,
};

enum shunt_set_tail {
	SHUNT_TAIL_NONE,
	SHUNT_TAIL_PORT,	/* protocol and port */
	SHUNT_TAIL_MARK,
	SHUNT_TAIL_IFACE,	/* an interface, by its name or how that begins, which is no part of the hash */
	SHUNT_TAIL_MAC,		/* an address of frames */
};

/* What a generic program has, which serves a port only until the port's own is there. */
enum shunt_generic {
	SHUNT_OWN_PROGRAM,
	SHUNT_GENERIC_WHOLE,
	SHUNT_GENERIC_LEAN,	/* for a verifier to which that is too much: routes are not remembered, and what comes tagged is Linux's */
};

/* Everything that is fixed for one program; in .rodata, folded away before the program is loaded. */
struct shunt_config {
	struct shunt_input in;		/* the untagged input */
	__u32 port;			/* ifindex of the device that the program is attached to */
	__u8 vlan_in;			/* tagged inputs exist: look tags up in `vlans` */
	__u8 vlan_out;			/* some egress needs tags: look them up in `tags` (XDP) */
	__u8 special4;			/* notable routes exist: look destinations up in `special4` */
	__u8 special6;
	__u8 onlink6;			/* by how many bits the longest IPv6 prefix on a link is longer than 64 (node/sender.h) */
	__u8 ports;			/* policy rules select by protocol or port */
	__u8 marks;			/* routing asks for marks: packets that carry one go to Linux (TC) */
	__u8 fib_mark;			/* routing asks for the mark that rules have set (Linux 6.10) */
	__u8 skb_born;			/* XDP on veth: frames may come from sockets of the peer */
	__u8 peek;			/* enum shunt_peek */
	__u8 guards;			/* words in use in `guard` */
	__u8 guards4;
	__u8 guards6;
	__u8 watchdog;			/* 1: compare the heartbeat */
	__u8 neigh_use;			/* 1: note which neighbours were used (XDP) */
	__u8 skip_neigh;		/* BPF_FIB_LOOKUP_SKIP_NEIGH is there (6.3) */
	__u8 set_priority;		/* net.ipv4.ip_forward_update_priority (TC) */
	__u8 frags;			/* some egress cannot send multi-buffer frames: check (XDP) */
	__u8 kern_ctx;			/* enum shunt_kern_ctx: compare the device's namespace */
	__u8 cache4;			/* 1: remember route lookups (node/route_cache.h) */
	__u8 cache6;
	__u8 lower;			/* 1: runs for lower devices (XDP on a bond), whose ifindexes differ from the port's */
	__u8 track;			/* enum shunt_look: connections can be looked up (node/conntrack.h) */
	__u8 track4;			/* enum shunt_track: Linux tracks connections of this family */
	__u8 track6;
	__u8 bridge;			/* enum shunt_bridge */
	__u8 called4;			/* enum shunt_called, of frames between a bridge's ports */
	__u8 called6;
	__u8 generic;			/* enum shunt_generic */
	__u8 onto;			/* enum shunt_onto (TC) */
	__u8 bridge_vlans;		/* 1: the bridge filters by VLAN */
	__u8 shown4;			/* SHUNT_SHOWN_*: whether what rules say to frames of this family between ports is decided here (node/shown.h) */
	__u8 shown6;
	__u8 chains;			/* 1: there are chains of family bridge: frames without IP are Linux's */
	__u8 nat;			/* SHUNT_NAT_*: families whose translated connections are translated here (node/nat.h) */
	__u8 flows;			/* 1: sample packets for the list of the heaviest flows (node/flows.h) */
	__u8 tunnel;			/* 1: packets come out of a tunnel here, and others lead into one (node/tunnel.h) */
	__u32 hz;			/* jiffies in a second */
	__u32 counters;			/* where the generic program counts: place in `port_stats`, 0 for nowhere */
	__u64 net;			/* address of the struct net that the program was made for */
	__u64 watchdog_jiffies;
	__u64 genid4;			/* address of net->ipv4.rt_genid, four bytes */
	__u64 genid6;			/* address of net->ipv6.fib6_sernum, four bytes */
	__u64 nexthop_seq;		/* address of net->nexthop.seq, four bytes */
	__u64 ct_established;		/* addresses in net->ct, four bytes each: timeouts in jiffies */
	__u64 ct_stream;
	__u64 ct_checksum;		/* and a switch, in the first byte */
	__u32 lines4;			/* struct shunt_dests4 per CPU, a power of two */
	__u32 flowtable;		/* 1: connections may be in a flow table of the port's (node/flowtable.h; XDP) */
	__u64 cache6_jiffies;		/* longest life of a remembered lookup */
	__u64 rule_mask;		/* size of `.data.rules`, less one */
	struct shunt_rule_shape rules[SHUNT_RULE_STAGES];
	__u32 rule_dims;		/* of all stages together */
	__u32 rule_asks;
	__u32 rule_maps;		/* tells programs apart that were made for other maps of rules */
	__u32 rule_moves;		/* SHUNT_RULE_MOVES: so many first moves through rules are made at once; else SHUNT_RULE_MOVES_FEW */
	__u32 verdicts;			/* struct shunt_verdict per CPU, a power of two; 0: what rules say is not remembered */
	__u32 spare;
	struct shunt_sets sets;
	struct shunt_bridges bridges;
	struct shunt_guard_word guard[SHUNT_GUARD_WORDS];
	struct shunt_guard_word guard4[SHUNT_FAMILY_WORDS];
	struct shunt_guard_word guard6[SHUNT_FAMILY_WORDS];
};

/* What the daemon writes while programs run; one per namespace, mapped into the daemon. */
struct shunt_live {
	__u64 heartbeat;			/* jiffies at the daemon's last sign of life */
	__u64 stale;				/* set by programs on a guard mismatch, cleared by the daemon after it re-read */
	__u64 epoch;				/* changes with every plan and every neighbour event: remembered lookups end */
	__u64 want[SHUNT_GUARD_SLOTS];		/* expected values of guard words */
	/* Where in `.data.rules` the images begin, 0 for no rules; and in the upper half the number of one whose verdicts may be remembered (node/verdicts.h). */
	__u64 rules[SHUNT_RULE_STAGES + SHUNT_RULE_FRONTS + SHUNT_RULE_OVERS];
};

struct shunt_count {
	__u64 packets;
	__u64 bytes;	/* of the frame's first buffer at XDP, of the whole packet at TC */
};

/*
 * Key of `vlans`: the port's ifindex and the tags from outer to inner, zero where absent. Protocols are be16 as on the wire. For the port of a bridge that filters by VLAN,
 * how the bridge hands on what is for this host: without a tag, or with that of the VLAN.
 */
struct shunt_vlan_key {
	__u32 port;
	__be16 outer_proto;
	__u16 outer_id;
	__be16 inner_proto;
	__u16 inner_id;
};

/* How a logical egress interface is reached from XDP. */
struct shunt_tags {
	__u32 n;		/* tags to push, 0 to 2 */
	__be16 outer_proto;
	__u16 outer_id;
	__be16 inner_proto;
	__u16 inner_id;
	__u32 no_frags;		/* 1: cannot send multi-buffer frames */
	__u32 max_len;		/* longest IP packet that an XDP frame has room for beside the tags, bytes; 0: any that the interface takes */
};

/* Keys of the notable-route tries; prefixlen in bits, addresses be. */
struct shunt_prefix4 {
	__u32 prefixlen;
	__u8 addr[4];
};
struct shunt_prefix6 {
	__u32 prefixlen;
	__u8 addr[16];
};

/* A notable route, with what less specific ones demand already folded in. */
struct shunt_special {
	__u32 mtu;	/* longest IP packet that is unaffected, bytes; 0: no limit */
	__u32 reason;	/* reason code for every packet; 0: only the mtu matters */
};

/* A remembered IPv4 lookup: for which packet, and by which next hop. Four of them share a cache line; each CPU has lines of its own. */
struct shunt_dest4 {
	__u64 pair;	/* source and destination as in the header */
	__u32 genid;	/* see node/route_cache.h */
	__u16 hop;	/* slot in the CPU's part of hops4 */
	__u16 max_len;	/* longest IP packet that was found to fit */
};
struct shunt_dests4 {
	struct shunt_dest4 way[SHUNT_DEST_WAYS];
} __attribute__((aligned(64)));

/* A next hop of remembered IPv4 lookups, with what else they depend on. */
struct shunt_hop4 {
	__u32 macs[3];	/* destination and source address, as in a frame */
	__u32 out;	/* logical egress ifindex; 0 while the entry is written */
	__be32 addr;	/* next hop */
	__u32 in;	/* ifindex of the logical ingress interface, and a bit for the hook */
	__u32 dscp;	/* TOS without the bits of ECN */
	__u32 genid;
	__u32 slow;	/* reason by which nothing may leave there; 0: it may */
	__u64 noted;	/* stamp of the last note in neigh_use, see struct shunt_neigh_use */
} __attribute__((aligned(64)));

/* Entry of the direct-mapped per-CPU table of remembered IPv6 lookups: everything that a lookup depends on, and its answer. */
struct shunt_nexthop {
	__u64 born;		/* jiffies */
	__u64 noted;
	__u32 genid;
	__u32 out;
	__u32 max_len;
	__u32 macs[3];
	__be32 addr[4];
	__u32 slow;
	__u32 pad;
};
struct shunt_route6 {
	__u64 src[2];
	__u64 dst[2];
	__u32 in;
	__be32 flow;		/* traffic class and flow label */
	__u32 proto;		/* next header */
	__u32 pad;
	struct shunt_nexthop next;
};

/*
 * Two stations between which a CPU has seen frames, see node/bridge.h: what the hash function of a bridge's table makes of their addresses (with the VLAN) under its seed. At tc also what
 * tx_tc said of the port, while the epoch stands.
 */
#define SHUNT_PAIRS 256
struct shunt_pair {
	__u64 src;	/* 0: nothing is remembered here */
	__u64 dst;
	__u32 seed;
	__u32 src_hash;
	__u32 dst_hash;
	__u32 out;	/* key in tx_tc; 0: not asked */
	__u32 way;
	__u32 epoch;
	__u32 pad[4];
} __attribute__((aligned(64)));
struct shunt_pairs {
	struct shunt_pair at[SHUNT_PAIRS];
};

/* What an image said to a flow's packets, see node/verdicts.h: everything that it may have asked, and its answer. */
#define SHUNT_VERDICT_COUNTS 7
struct shunt_verdict {
	__u32 image;	/* its number; 0: nothing is remembered here */
	__u32 have;	/* which values the packet has */
	__u64 addr;	/* IPv4: source and destination; IPv6: the lower half of the source */
	__u64 ports;	/* from the upper end: ports, protocol, state of the connection, DS field, TCP flags */
	__u64 devices;	/* ifindexes: in, out */
	__u32 answer;	/* enum rule_verdict, and above 8 bits how many counters */
	__u32 count[SHUNT_VERDICT_COUNTS];
	/* Another cache line, of which only what rules ask is looked at. */
	__u64 marks;	/* the packet's, its connection's */
	__u64 conn;	/* the connection's status, zone, direction */
	__u64 ports_of_bridges;
	__u64 icmp;
	__u64 addr6[3];	/* the source's upper half, the destination */
} __attribute__((aligned(64)));

/* One recently used neighbour, in a direct-mapped per-CPU table; the daemon refreshes them. */
struct shunt_neigh_use {
	__u32 ifindex;
	__u16 family;	/* AF_INET, AF_INET6 */
	__u16 pad;
	__u64 addr[2];	/* be; IPv4 in the first four bytes */
	__u64 stamp;	/* jiffies >> 6 */
};

#define SHUNT_NO_PORT 0x7fffffff	/* a port that a packet lacks: no device's index */

/* Dimensions and values of rules, entries and operations of an image; internal/rules/image/entry.go, layout.go. */
enum shunt_dim {
	SHUNT_D_SRC,
	SHUNT_D_DST,
	SHUNT_D_DPORT,
	SHUNT_D_SPORT,
	SHUNT_D_PROTO,
	SHUNT_D_IIF,
	SHUNT_D_OIF,
	SHUNT_D_PHYS_IN,	/* ports of bridges, 0 for none */
	SHUNT_D_PHYS_OUT,	/* or SHUNT_NO_PORT */
	SHUNT_D_COUNT,
};
enum shunt_value {
	SHUNT_V_TCP_FLAGS,
	SHUNT_V_ICMP,
	SHUNT_V_DS,
	SHUNT_V_TTL,
	SHUNT_V_LENGTH,
	SHUNT_V_MARK,
	SHUNT_V_PROTO,
	SHUNT_V_SPORT,
	SHUNT_V_DPORT,
	SHUNT_V_SRC,
	SHUNT_V_DST,
	SHUNT_V_ID,
	SHUNT_V_FRAG,
	SHUNT_V_FLOW,
	SHUNT_V_CT_STATE,	/* a bit of enum shunt_ct_state, where Linux tracks connections */
	SHUNT_V_CT_STATUS,	/* these four only of packets that have a connection */
	SHUNT_V_CT_MARK,
	SHUNT_V_CT_DIR,
	SHUNT_V_CT_ZONE,
	SHUNT_V_MAC_HIGH,	/* source address of the frame as received: two bytes, and four */
	SHUNT_V_MAC_LOW,
	SHUNT_V_TO_HIGH,	/* its destination address */
	SHUNT_V_TO_LOW,
	SHUNT_V_BACK,	/* 1: the route to the packet's sender leads out of the interface that it came by; other packets do not come to rules */
	SHUNT_V_BACK_BY,	/* 1: there is one */
	SHUNT_V_ORIG_SRC,	/* of the connection's first packet, as it came: addresses of IPv4, which of IPv6 are in struct rule_walk; */
	SHUNT_V_ORIG_DST,
	SHUNT_V_ORIG_PORTS,	/* and ports, that of the source above 16 bits */
	SHUNT_V_COUNT,
	SHUNT_V_PRIORITY = 31,	/* is set, and never asked for */
};
enum shunt_then {
	SHUNT_T_NEXT,
	SHUNT_T_SKIP,
	SHUNT_T_DROP,
	SHUNT_T_SLOW,
	SHUNT_T_CALL,
	SHUNT_T_BACK,
	SHUNT_T_ACCEPT,
	SHUNT_T_END_BASE,
	SHUNT_T_DECIDED,
};
enum shunt_op {
	SHUNT_O_TEST = 1,
	SHUNT_O_HAS,
	SHUNT_O_COUNT,
	SHUNT_O_MARK,
	SHUNT_O_CALL,
	SHUNT_O_DS,
	SHUNT_O_NOTRACK,
	SHUNT_O_RESTORE,
	SHUNT_O_SAVE,
	SHUNT_O_SET,
	SHUNT_O_ZONE,
	SHUNT_O_WORD6,
};

/* One TCP connection whose packets would be fast if Linux did not check its windows; reported to the daemon by `unmarked`. */
struct shunt_conn {
	__u8 is6;
	__u8 zone_dir;	/* 0: both; see struct rule_walk */
	__u16 zone;	/* that its packets' addresses are looked up in */
	__be16 sport;
	__be16 dport;
	__be32 src[4];	/* IPv4 in the first */
	__be32 dst[4];
};

/*
 * How many such packets a connection had, in a direct-mapped per-CPU table. Another connection's packet takes the slot, and one of some that do is
 * reported at once: connections that share a slot and take turns would never come to the number else.
 */
struct shunt_tally {
	__u64 conn;	/* hash of the packet's addresses and ports */
	__u64 packets;
};

/* What `explain` gets back; at XDP behind the magic in the metadata area, see SHUNT_TRACE_MAGIC. */
struct shunt_trace {
	__u64 magic;
	__u32 reason;
	__u32 egress;	/* logical ifindex, 0 unless forwarded */
};

/* What the guard program tells: the namespace's address and the words that the daemon may watch. */
enum shunt_word {
	SHUNT_W_IP4_PREROUTING,
	SHUNT_W_IP4_FORWARD,
	SHUNT_W_IP4_POSTROUTING,
	SHUNT_W_IP6_PREROUTING,
	SHUNT_W_IP6_FORWARD,
	SHUNT_W_IP6_POSTROUTING,
	SHUNT_W_NFT_BASE_SEQ,
	SHUNT_W_ADDR_GENID4,
	SHUNT_W_ALL_RP_FILTER,
	SHUNT_W_ALL_FORWARDING6,
	SHUNT_W_RULES_SEQ4,
	SHUNT_W_RULES_SEQ6,
	SHUNT_W_CUSTOM_RULES4,	/* first byte: a policy rule was ever touched (fib_has_custom_rules) */
	SHUNT_W_CUSTOM_LOCAL4,	/* first byte: a local route was ever made by hand (fib_has_custom_local_routes) */
	SHUNT_W_XFRM_POLICIES,
	SHUNT_W_PTYPE_ALL,
	SHUNT_W_LEGACY4_RAW,	/* the rules of a legacy table, which each change replaces as a whole (xt_replace_table()) */
	SHUNT_W_LEGACY4_MANGLE,
	SHUNT_W_LEGACY4_FILTER,
	SHUNT_W_LEGACY4_SECURITY,
	SHUNT_W_LEGACY6_RAW,
	SHUNT_W_LEGACY6_MANGLE,
	SHUNT_W_LEGACY6_FILTER,
	SHUNT_W_LEGACY6_SECURITY,
	SHUNT_W_ROUTE_GENID6,
	SHUNT_W_NEXTHOP_SEQ,
	SHUNT_W_ROUTE_GENID4,	/* these for the route cache, not for guards: they change with every route */
	SHUNT_W_CT_ESTABLISHED,	/* of connection tracking, read live: timeouts, and in the first byte switches */
	SHUNT_W_CT_STREAM,
	SHUNT_W_CT_CHECKSUM,
	SHUNT_W_BR_PREROUTING,
	SHUNT_W_BR_INPUT,
	SHUNT_W_BR_FORWARD,
	SHUNT_W_BR_OUTPUT,
	SHUNT_W_BR_POSTROUTING,
	SHUNT_W_NET_COUNT,
	/* of one device */
	SHUNT_W_DEV_RP_FILTER = SHUNT_W_NET_COUNT,
	SHUNT_W_DEV_PTYPE_ALL,
	SHUNT_W_DEV_FORWARDING6,
	SHUNT_W_DEV_DISABLE6,
	SHUNT_W_DEV_HANDLER,	/* who takes its frames: a bridge, a bond, a macvlan …, wherever that is */
	SHUNT_W_COUNT,
};

struct shunt_word_value {
	__u64 addr;	/* 0: this kernel does not have it */
	__u64 value;
	__u64 width;
};

#define SHUNT_HOOK_ENTRIES 16

/* In and out of the hook walk (BPF_PROG_TYPE_SYSCALL context): the functions registered at one netfilter hook, in order. */
struct shunt_hooks_query {
	__u32 family;		/* in: 4 or 6, 7 for the bridge */
	__u32 hook;		/* in: NF_INET_* */
	__u32 count;		/* out: registered functions; more than SHUNT_HOOK_ENTRIES are counted, not listed */
	__u32 pad;
	struct {
		__u64 func;	/* address of the hook function */
		__u64 priv;	/* its private data: a chain, a table … */
		__s32 priority;
		__u32 pad;
	} entry[SHUNT_HOOK_ENTRIES];
};

/* In and out of the search for the namespace's ipsets (BPF_PROG_TYPE_SYSCALL context): whose list has a set of that name at that place? */
struct shunt_sets_query {
	struct shunt_sets at;	/* in: offsets; out: inst, 0 if it was not found */
	__u64 name[4];		/* in: IPSET_MAXNAMELEN bytes */
	__u32 index;		/* in */
	__u32 pad;
};

/* In and out of the program that gives the sign of life (BPF_PROG_TYPE_SYSCALL context). */
struct shunt_beat_query {
	__u64 attached;		/* out: a sum over what is attached to devices without an event */
	__u32 index;		/* in: of this device, what is at its tcx ingress has to do with the sum, and no sign of life is given; 0: all of it */
	__u32 pad;
};

/* In and out of the guard program (BPF_PROG_TYPE_SYSCALL context). */
struct shunt_guard_query {
	__u32 ifindex;		/* in: device whose words are wanted, 0 for the namespace's only */
	__u32 found;		/* out: 1 if the device was found */
	__u64 net;		/* out: address of struct net */
	__u64 jiffies;		/* out */
	__u64 legacy;		/* out: 1 if the layout of legacy tables is known */
	struct shunt_word_value word[SHUNT_W_COUNT];
};

#endif
