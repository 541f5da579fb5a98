// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"math/rand/v2"
)

// genNetfilter loads rule sets in some configurations, among them ones that decide nothing: tables without
// chains, empty chains, rules of another family.
func genNetfilter(rng *rand.Rand, c *Config) {
	if !chance(rng, 25) {
		return
	}
	switch rng.IntN(10) {
	case 0:
		c.add("nft add table ip empty")
	case 1: // empty base chains cost nothing
		c.add("nft table ip f { chain forward_a { type filter hook forward priority 0; policy accept; }; chain pre { type filter hook prerouting priority 0; }; }")
	case 2:
		c.add("nft table ip f { chain forward_a { type filter hook forward priority 0; udp dport 2000 drop; }; }")
		c.Slow.IP4 = true
	case 3:
		c.add("nft table ip6 f { chain forward_a { type filter hook forward priority 0; udp dport 2000 drop; }; }")
		c.Slow.IP6 = true
	case 4:
		c.add("nft table inet f { chain forward_a { type filter hook forward priority 0; ip ttl 64 counter; tcp dport 2000 reject; }; }")
		c.Slow.IP4, c.Slow.IP6 = true, true
	case 5:
		c.add("nft table ip m { chain pre { type filter hook prerouting priority mangle; ip dscp 4 meta mark set 1; }; }")
		c.Slow.IP4 = true
	case 6:
		c.add("nft table ip p { chain post { type filter hook postrouting priority 0; ip dscp set cs3; }; }")
		c.Slow.Rules = true
	case 7: // never met by a forwarded packet
		c.add("nft table inet in { chain input { type filter hook input priority 0; udp dport 7 drop; }; chain out { type filter hook output priority 0; }; }")
	case 8:
		p := c.port(rng)
		c.add("nft table netdev n { chain in { type filter hook ingress device %s priority 0; udp dport 2000 drop; }; }", portName(p))
		c.Slow.Rules = true
	case 9:
		c.add("nft table ip f { chain forward_a { type filter hook forward priority 0; policy drop; }; }")
		c.Slow.IP4 = true
	}
}

// genQdiscs puts queueing disciplines and filters on ports.
func genQdiscs(rng *rand.Rand, c *Config) {
	if !chance(rng, 15) {
		return
	}
	p := c.port(rng)
	dev := portName(p)
	switch rng.IntN(8) {
	case 0:
		c.add("tc qdisc add dev %s root tbf rate 1gbit burst 128k latency 400ms", dev)
		c.Slow.Out = append(c.Slow.Out, p)
	case 1:
		c.add("tc qdisc add dev %s root handle 1: htb default 1", dev)
		c.Slow.Out = append(c.Slow.Out, p)
	case 2:
		c.add("tc qdisc add dev %s root pfifo_fast", dev)
		c.Slow.Out = append(c.Slow.Out, p)
	case 3:
		c.add("tc qdisc add dev %s clsact", dev)
		c.add("tc filter add dev %s ingress prio 1 bpf da bytecode %s", dev, dropUDP(foreignPort))
		c.excusePort(p)
	case 4:
		c.add("tc qdisc add dev %s clsact", dev)
		c.add("tc filter add dev %s egress prio 1 bpf da bytecode %s", dev, dropUDP(foreignPort))
		c.excusePort(p)
	case 5:
		c.add("tc qdisc add dev %s clsact", dev)
	case 6, 7:
		c.add("tc qdisc add dev %s clsact", dev)
		c.add("tc filter add dev %s %s prio 1 protocol ip u32 match ip dport 2000 0xffff action mirred egress redirect dev %s", dev, pick(rng, []string{"ingress", "egress"}), portName((p+1)%Ports))
		c.excusePort(p)
		c.Slow.Out = append(c.Slow.Out, (p+1)%Ports)
	}
}

// genXFRM adds an IPsec policy for some destination.
func genXFRM(rng *rand.Rand, c *Config) {
	if !chance(rng, 4) {
		return
	}
	p := c.target(rng, false)
	c.add("ip xfrm policy add src 0.0.0.0/0 dst %s dir fwd action %s", p, pick(rng, []string{"block", "allow"}))
	c.Slow.IP4, c.Slow.IP6 = true, true
}

// genSockets opens packet sockets: ones that see everything, and ones that no forwarded packet reaches.
func genSockets(rng *rand.Rand, c *Config) {
	if !chance(rng, 6) {
		return
	}
	p := c.port(rng)
	switch rng.IntN(3) {
	case 0:
		c.add("listen %s all", portName(p))
		c.excusePort(p)
	case 1:
		c.add("listen any all")
		c.Slow.IP4, c.Slow.IP6 = true, true
	case 2:
		c.add("listen %s 88cc", portName(p)) // LLDP
	}
}
