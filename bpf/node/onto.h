/* SPDX-License-Identifier: GPL-2.0 */
/*
 * onto: a packet that is routed to a bridge, straight to the port that leads to its next hop.
 *
 * Problem: sent by the bridge's device, a packet goes through its transmit function, the bridge, a port's transmit function and, where that is a veth,
 * another soft interrupt, though the next hop's address is known here and the bridge's table says where it is.
 * Mechanism: what br_dev_xmit() and br_forward() read on the way is read here, as in bridge.h: the bridge, found by its ifindex as the kernel finds devices, its table,
 * and the port. The frame gets its addresses from the route's answer and leaves by the port, or goes on with the other end of the veth. Sending teaches a
 * bridge nothing, so nothing has to be shown to it; whose neighbour entries these packets use is told to the daemon as XDP programs do (neighbour.h).
 * Of a bridge that filters by VLAN the route leads to its own device, whose packets get the bridge's PVID, or to a VLAN device on it: what br_allowed_ingress() asks of the bridge itself,
 * and br_handle_vlan() of the port, is read as in bridge_vlan.h.
 * Invariant: this only chooses how a packet leaves that may leave. Wherever anything is not plain (the station is not known, its entry is old, the port blocks, is
 * too small or has a backup, somebody listens on the bridge) the packet goes through the bridge as ever.
 */
#ifndef SHUNT_NODE_ONTO_H
#define SHUNT_NODE_ONTO_H

#include "bridge.h"

#define IFF_802_1Q_VLAN	(1 << 0)	/* enum netdev_priv_flags */
#define IFF_EBRIDGE	(1 << 1)
#define DEVICE_LISTS	256		/* NETDEV_HASHENTRIES */
#define DEVICE_CHAIN	8		/* devices of one list that are looked at */

/* Address of a device of a namespace, as dev_get_by_index_rcu() finds it; 0 if it is not soon found. */
always_inline __u64 device_by_index(struct memory m, __u64 net, __u32 index)
{
	__u64 at = memory8(m, BRIDGE8(m, net, net_devices) + 8 * (index & (DEVICE_LISTS - 1)), 0), dev;

	for (int i = 0; i < DEVICE_CHAIN && at; i++) {
		dev = at - frozen.bridges.dev_node;
		if (BRIDGE4(m, dev, dev_ifindex) == index)
			return dev;
		at = memory8(m, at, 0);
	}
	return 0;
}

/* Is a device up, with nobody who listens to all of its packets? */
always_inline int quiet(struct memory m, __u64 dev)
{
	return (BRIDGE4(m, dev, dev_flags) & IFF_UP) && BRIDGE8(m, dev, dev_taps) == BRIDGE(dev, dev_taps);
}

/*
 * Of an interface, a bridge or a VLAN device on one: the bridge's ifindex in the upper half, and in the lower one the VLAN that the bridge puts what the interface sends into, 0 where it
 * does not filter; 0 as a whole where nothing of that is plain. The bridge's own switches are port_onto()'s to ask. A function of its own, so that it is verified once.
 */
__attribute__((noinline)) __u64 vlan_onto(__u64 net, __u32 index)
{
	const struct memory m = {};
	__u64 dev, br, group;
	__u32 id = 0, tag;

	if (!frozen.bridges.port_vlans || !frozen.bridges.dev_node)
		return 0;
	dev = device_by_index(m, net, index);
	if (!dev)
		return 0;
	if (BRIDGE4(m, dev, dev_priv_flags) & IFF_802_1Q_VLAN) {
		tag = BRIDGE4(m, dev, tag_proto);
		if (!quiet(m, dev) || BRIDGE4(m, dev, tag_maps) || (tag & 0xffff) != bpf_htons(ETH_P_8021Q))
			return 0;
		id = tag >> 16;
		dev = BRIDGE8(m, dev, tag_device);
		if (!id || BRIDGE8(m, dev, dev_net) != net)
			return 0;
	}
	if (!(BRIDGE4(m, dev, dev_priv_flags) & IFF_EBRIDGE))
		return 0;
	br = BRIDGE(dev, dev_private);
	index = BRIDGE4(m, dev, dev_ifindex);
	if (!(BRIDGE8(m, br, br_options) & frozen.bridges.filtering))
		return id ? 0 : (__u64)index << 32;
	group = BRIDGE8(m, br, br_vlans);
	if (BRIDGE2(m, br, br_vlan_proto) != bpf_htons(ETH_P_8021Q))
		return 0;
	if (id) {
		if (vlan_leaves(m, group, id, VLAN_OF_BRIDGE) < 0)
			return 0;
	} else {
		id = BRIDGE2(m, group, group_pvid);
		if (!group || !id || BRIDGE1(m, group, group_pvid_state) != VLAN_FORWARDING)
			return 0;
	}
	return (__u64)index << 32 | id;
}

/*
 * The device of the port by which a bridge would send a frame of that length (0: still to be segmented) to a station, and nothing else would happen; else 0. The VLAN is in the two
 * bytes behind the address; 0: the bridge must not filter.
 * What Linux sends itself is isolated from no port (br_skb_isolated()). A function of its own, so that it is verified once.
 */
__attribute__((noinline)) __u64 port_onto(__u64 net, __u32 bridge, __u64 mac, __u32 len)
{
	const struct memory m = {};
	__u64 dev, br, options, to = 0;

	if (!frozen.bridges.known || !frozen.bridges.dev_node || (mac & 1))
		return 0;
	dev = device_by_index(m, net, bridge);
	if (!dev || !(BRIDGE4(m, dev, dev_priv_flags) & IFF_EBRIDGE) || (BRIDGE4(m, dev, dev_flags) & IFF_PROMISC) || !quiet(m, dev))
		return 0;
	br = BRIDGE(dev, dev_private);
	options = BRIDGE8(m, br, br_options);
	if (frozen.bridges.port_vlans && mac >> 48)
		options = options_vlan(options);
	if (BRIDGE8(m, br, br_dev) != dev || (options & frozen.bridges.options) || BRIDGE1(m, br, br_changing))
		return 0;
	if (fdb_destination(m, fdb_find(BRIDGE8(m, br, br_table), mac), BRIDGE8(m, br, br_ageing), &to) != NEXT)
		return 0;
	if (BRIDGE8(m, to, port_bridge) != br || !port_plain(m, to, BRIDGE8(m, to, port_flags)) || BRIDGE8(m, to, port_backup))
		return 0;
	dev = BRIDGE8(m, to, port_dev);
	/* is_skb_forwardable() */
	return len > BRIDGE4(m, dev, dev_mtu) + (__u32)(sizeof(struct eth) + sizeof(struct vlan_tag)) ? 0 : dev;
}

/* Asks for the port, for a packet that may be forwarded. Where one is found, p->onto says it. */
always_inline void onto(struct packet *p)
{
	__u32 len = is_gso(p) ? 0 : sizeof(struct eth) + p->l3_len, bridge = p->out, port, *way;
	__u64 mac = p->macs[0] | (__u64)(__u16)p->macs[1] << 32, at, dev;
	const struct memory m = {};
	int how = 0;

	if (p->slow != SHUNT_ONTO)
		return;
	if (onto_vlans(p)) {
		at = vlan_onto(cfg.net, bridge);
		bridge = at >> 32;
		mac |= at << 48;
		if (!at)
			return;
	}
	dev = port_onto(cfg.net, bridge, mac, len);
	if (!dev)
		return;
	if (onto_vlans(p) && mac >> 48) {
		p->vlan_id = mac >> 48;
		how = vlan_leaves(m, BRIDGE8(m, BRIDGE8(m, dev, dev_handler), port_vlans), p->vlan_id, 0);
		if (how < 0)
			return;
		p->vlan_how = how;
	}
	port = BRIDGE4(m, dev, dev_ifindex) | SHUNT_BRIDGED;
	way = bpf_map_lookup_elem(&tx_tc, &port);
	if (!way)
		return;
	p->by_peer = frozen.bridges.veth_peer && (*way & SHUNT_BY_PEER) && seen_by_device(p) && !how && peer_would(m, dev, mac, len);
	if (!p->by_peer && (*way & SHUNT_VETH) && passes_by(m, dev))
		return;
	p->onto = port & ~SHUNT_BRIDGED;
	note_neighbour(p);
}

always_inline int redirect_onto(struct packet *p)
{
	return p->by_peer ? redirect_peer(p, p->onto) : bpf_redirect(p->onto, 0);
}

#endif
