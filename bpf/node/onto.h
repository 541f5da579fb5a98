/* SPDX-License-Identifier: GPL-2.0 */
/*
 * onto: a packet that is routed to a bridge, straight to the port that leads to its next hop.
 *
 * Problem: sent by the bridge's device, a packet goes through its transmit function, the bridge, a port's transmit function and, where that is a veth,
 * another soft interrupt, though the next hop's address is known here and the bridge's table says where it is.
 * Mechanism: what br_dev_xmit() and br_forward() read on the way is read here, as in bridge.h: the bridge, found by its ifindex as the kernel finds devices, its table,
 * and the port. The frame gets its addresses from the route's answer and leaves by the port, or goes on with the other end of the veth. Sending teaches a
 * bridge nothing, so nothing has to be shown to it; whose neighbour entries these packets use is told to the daemon as XDP programs do (neighbour.h).
 * Invariant: this only chooses how a packet leaves that may leave. Wherever anything is not plain (the station is not known, its entry is old, the port blocks, is
 * too small or has a backup, somebody listens on the bridge) the packet goes through the bridge as ever.
 */
#ifndef SHUNT_NODE_ONTO_H
#define SHUNT_NODE_ONTO_H

#include "bridge.h"

#define IFF_EBRIDGE	(1 << 1)	/* enum netdev_priv_flags */
#define DEVICE_LISTS	256		/* NETDEV_HASHENTRIES */
#define DEVICE_CHAIN	8		/* devices of one list that are looked at */

/* Address of a device of a namespace, as dev_get_by_index_rcu() finds it; 0 if it is not soon found. */
always_inline __u64 device_by_index(__u64 net, __u32 index)
{
	__u64 at = peek(BRIDGE8(net, net_devices) + 8 * (index & (DEVICE_LISTS - 1)), 8), dev;

	for (int i = 0; i < DEVICE_CHAIN && at; i++) {
		dev = at - frozen.bridges.dev_node;
		if (BRIDGE4(dev, dev_ifindex) == index)
			return dev;
		at = peek(at, 8);
	}
	return 0;
}

/*
 * The device of the port by which a bridge would send a frame of that length (0: still to be segmented) to a station, and nothing else would happen; else 0.
 * What Linux sends itself is isolated from no port (br_skb_isolated()). A function of its own, so that it is verified once.
 */
__attribute__((noinline)) __u64 port_onto(__u64 net, __u32 bridge, __u64 mac, __u32 len)
{
	__u64 dev, br, to = 0;

	if (!frozen.bridges.known || !frozen.bridges.dev_node || (mac & 1))
		return 0;
	dev = device_by_index(net, bridge);
	if (!dev || !(BRIDGE4(dev, dev_priv_flags) & IFF_EBRIDGE) || (BRIDGE4(dev, dev_flags) & (IFF_UP | IFF_PROMISC)) != IFF_UP)
		return 0;
	if (BRIDGE8(dev, dev_taps) != BRIDGE(dev, dev_taps))
		return 0;
	br = BRIDGE(dev, dev_private);
	if (BRIDGE8(br, br_dev) != dev || (BRIDGE8(br, br_options) & frozen.bridges.options) || BRIDGE1(br, br_changing))
		return 0;
	if (fdb_destination(BRIDGE8(br, br_table), mac, BRIDGE8(br, br_ageing), &to) != NEXT)
		return 0;
	if (BRIDGE8(to, port_bridge) != br || !port_plain(to, BRIDGE8(to, port_flags)) || BRIDGE8(to, port_backup))
		return 0;
	dev = BRIDGE8(to, port_dev);
	/* is_skb_forwardable() */
	return len > BRIDGE4(dev, dev_mtu) + (__u32)(sizeof(struct eth) + sizeof(struct vlan_tag)) ? 0 : dev;
}

/* Asks for the port, for a packet that may be forwarded. Where one is found, p->onto says it. */
always_inline void onto(struct packet *p)
{
	__u32 len = is_gso(p) ? 0 : sizeof(struct eth) + p->l3_len, port, *way;
	__u64 mac = p->macs[0] | (__u64)(__u16)p->macs[1] << 32, dev;

	if (p->slow != SHUNT_ONTO)
		return;
	dev = port_onto(cfg.net, p->out, mac, len);
	if (!dev)
		return;
	port = BRIDGE4(dev, dev_ifindex) | SHUNT_BRIDGED;
	way = bpf_map_lookup_elem(&tx_tc, &port);
	if (!way)
		return;
	p->by_peer = frozen.bridges.veth_peer && (*way & SHUNT_BY_PEER) && peer_would(dev, mac, len);
	p->onto = port & ~SHUNT_BRIDGED;
	note_neighbour(p);
}

always_inline int redirect_onto(struct packet *p)
{
	return p->by_peer ? redirect_peer(p, p->onto) : bpf_redirect(p->onto, 0);
}

#endif
