// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
)

// bridgeShare is the percentage of configurations that have a bridge, where there are ports enough.
var bridgeShare = 40

// genBridge makes some of the ports a bridge's, in some configurations. What later features give these ports (addresses, neighbours, routes, switches) then goes to
// the bridge, and some have none of that.
func genBridge(_ *rand.Rand, c *Config) {
	rng := c.Bridging
	var free []int
	for i := range c.N {
		if c.Top[i] == "" {
			free = append(free, i)
		}
	}
	if len(free) < 2 || !chance(rng, bridgeShare) {
		return
	}
	rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	n := 2 + rng.IntN(len(free)-1)
	c.Bridged = free[:n]
	slices.Sort(c.Bridged)
	c.Slow.Bridged = c.Bridged
	c.Unaddressed = chance(rng, 40)
	c.add("ip link add br0 address %s type bridge%s", bridgeMAC, c.bridgeOptions())
	for _, cmd := range quietDevice("br0") {
		c.add("%s", cmd)
	}
	for _, p := range c.Bridged {
		c.add("ip link set %s master br0", portName(p))
		c.Top[p] = "br0"
	}
	if chance(rng, 60) {
		c.Commands = append(c.Commands, withoutBridgeNetfilter...)
	} else { // as kernels with br_netfilter do unasked
		c.Slow.Shown = true
	}
	c.add("ip link set br0 up")
	for range rng.IntN(4) {
		c.portSetting(true)
	}
	for range rng.IntN(4) {
		c.entry()
	}
	if chance(rng, 10) {
		c.add("ip link set br0 mtu %d", pick(rng, []int{576, 1280, 1400, 1500, 9000}))
	}
	if chance(rng, 20) {
		c.chains()
	}
}

// chains are rules of family bridge, in its three hooks.
func (c *Config) chains() {
	rng := c.Bridging
	c.Slow.Bridge = true
	lines := []string{"add table bridge frames"}
	mac := func() string { return hostMAC(pick(rng, c.Bridged), rng.IntN(2)).String() }
	not := func() string { return pick(rng, []string{"", "", "!= "}) }
	for _, hook := range []string{"prerouting", "forward", "postrouting"} {
		if !chance(rng, 60) {
			continue
		}
		lines = append(lines, fmt.Sprintf("add chain bridge frames %s { type filter hook %s priority %d; }", hook, hook, pick(rng, []int{-300, -200, -1, 0, 1, 300})))
		for range 1 + rng.IntN(5) {
			rule := []string{"add rule bridge frames", hook}
			for range rng.IntN(2) {
				rule = append(rule, pick(rng, []string{"ether saddr " + not() + mac(), "ether daddr " + not() + mac(), "iifname " + not() + portName(pick(rng, c.Bridged)), "oifname " + not() + portName(pick(rng, c.Bridged))}))
			}
			if chance(rng, 60) { // one, since they can contradict each other, which nft refuses
				rule = append(rule, pick(rng, []string{
					"ether type " + pick(rng, []string{"ip", "ip6", "arp", "0x88b5"}), pick(rng, []string{"udp", "tcp"}) + " dport " + pick(rng, []string{"53", "80", "0-1023", "{ 22, 53, 2000 }"}),
					"ip " + pick(rng, []string{"saddr ", "daddr "}) + not() + pick(rng, []string{"10.0.0.0/16", "10.0.0.16", "10.1.0.0/16"}), "ip6 " + pick(rng, []string{"saddr ", "daddr "}) + not() + "fd00::/48",
					pick(rng, []string{"ip ttl < 3", "ip protocol icmp", "ip6 nexthdr udp", "meta pkttype host", "tcp flags syn", "meta length > 200"}),
				}))
			}
			// What the host itself sends is not the same in both twins, and leaves by these chains too.
			if hook != "postrouting" {
				rule = append(rule, "counter")
			}
			lines = append(lines, strings.Join(append(rule, pick(rng, []string{"continue", "continue", "accept", "drop"})), " "))
		}
	}
	c.Commands = append(c.Commands, nftFile(lines...))
}

// bridgeOptions are what a bridge is made with. Entries do not age within a run: how long one takes is a matter of the machine.
func (c *Config) bridgeOptions() string {
	rng := c.Bridging
	var b strings.Builder
	for _, o := range []struct {
		percent int
		option  string
		slow    bool
	}{
		{30, "mcast_snooping 0", false}, {10, "ageing_time 1000000", false}, {10, "group_fwd_mask 0xfff8", false}, {5, "no_linklocal_learn 1", false},
		{5, "nf_call_iptables 1", true}, {3, "stp_state 1", true}, {5, "priority 4096", false}, {5, "fdb_max_learned 6", true},
	} {
		if chance(rng, o.percent) {
			b.WriteString(" " + o.option)
			c.Slow.Bridge = c.Slow.Bridge || o.slow
		}
	}
	return b.String()
}

// portSetting changes what a port of the bridge is set to; rare settings only where a whole configuration may be left to Linux for them.
func (c *Config) portSetting(rare bool) {
	rng := c.Bridging
	dev := portName(pick(rng, c.Bridged))
	if rare && chance(rng, 20) {
		c.add("bridge link set dev %s %s on", dev, pick(rng, []string{"neigh_suppress", "proxy_arp", "locked", "vlan_tunnel", "mcast_to_unicast"}))
		c.Slow.Bridge = true
		return
	}
	switch rng.IntN(8) {
	case 0, 1:
		c.add("bridge link set dev %s isolated %s", dev, pick(rng, []string{"on", "on", "off"}))
	case 2:
		c.add("bridge link set dev %s hairpin %s", dev, pick(rng, []string{"on", "on", "off"}))
	case 3:
		c.add("bridge link set dev %s learning %s", dev, pick(rng, []string{"off", "on"}))
	case 4:
		c.add("bridge link set dev %s flood %s", dev, pick(rng, []string{"off", "on"}))
	case 5:
		c.add("bridge link set dev %s %s off", dev, pick(rng, []string{"mcast_flood", "bcast_flood"}))
	case 6:
		c.add("bridge link set dev %s state %d", dev, pick(rng, []int{0, 1, 2, 3, 3, 4}))
	case 7:
		c.add("bridge link set dev %s %s", dev, pick(rng, []string{"cost 7", "priority 8", "mcast_router 2", "fastleave on", "guard on", "root_block on"}))
	}
}

// entry makes or removes an entry of the forwarding database: of a station that packets go to, or of one behind a port by hand.
func (c *Config) entry() {
	rng := c.Bridging
	p := pick(rng, c.Bridged)
	mac := hostMAC(pick(rng, c.Bridged), pick(rng, []int{0, 1, 9, 9, 9}))
	switch rng.IntN(10) {
	case 0:
		c.add("bridge fdb replace %s dev br0 self permanent", mac)
	case 1:
		c.add("bridge fdb replace %s dev %s master permanent", mac, portName(p))
	case 2:
		c.add("bridge fdb replace %s dev %s master dynamic", mac, portName(p))
	case 3:
		c.add("bridge fdb replace %s dev %s master static sticky", mac, portName(p))
	case 4:
		c.add("bridge fdb del %s dev %s master", mac, portName(p))
	case 5:
		c.add("bridge fdb replace %s dev %s master dynamic extern_learn", mac, portName(p))
	default:
		c.add("bridge fdb replace %s dev %s master static", mac, portName(p))
	}
}

// changeBridge is a change of the bridge under traffic.
func (c *Config) changeBridge() {
	rng := c.Bridging
	if len(c.Bridged) == 0 || !chance(rng, 60) {
		return
	}
	p := portName(pick(rng, c.Bridged))
	switch rng.IntN(12) {
	case 10, 11:
		c.showing()
	case 0, 1, 2:
		c.portSetting(false)
	case 3, 4:
		c.entry()
	case 5:
		c.add("ip link set br0 type bridge fdb_flush")
	case 6:
		c.add("ip link set %s nomaster", p)
		if chance(rng, 50) {
			c.add("ip link set %s master br0", p)
		}
	case 7:
		c.add("ip link set %s down", pick(rng, []string{"br0", p}))
		if chance(rng, 50) {
			c.add("ip link set br0 up")
			c.add("ip link set %s up", p)
		}
	case 8:
		c.add("ip link set %s mtu %d", p, pick(rng, []int{1000, 1300, 1500, 2000}))
	case 9:
		c.add("ip link set br0 address 02:00:00:00:b0:%02x", 1+rng.IntN(2))
	}
}

// showing turns one of br_netfilter's switches: that of a family for all bridges, that of the bridge, or one of those for packets that have a header before that of IP.
func (c *Config) showing() {
	rng := c.Bridging
	c.Slow.Shown = true
	family := pick(rng, []string{"iptables", "iptables", "ip6tables", "ip6tables", "arptables"})
	switch rng.IntN(4) {
	case 0, 1:
		c.add("sysctl net.bridge.bridge-nf-call-%s=%d", family, rng.IntN(2))
	case 2:
		c.add("ip link set br0 type bridge nf_call_%s %d", family, rng.IntN(2))
		c.Slow.Bridge = true // a bridge's own switch leaves its frames to Linux
	case 3:
		c.add("sysctl net.bridge.bridge-nf-%s=%d", pick(rng, []string{"filter-vlan-tagged", "filter-pppoe-tagged", "pass-vlan-input-dev"}), rng.IntN(2))
	}
}

// spreadExcuses: what excuses one port of a bridge by what the bridge is set to excuses all.
func (c *Config) spreadExcuses() {
	for _, list := range []*[]int{&c.Slow.In, &c.Slow.Out} {
		if slices.ContainsFunc(*list, func(p int) bool { return slices.Contains(c.Bridged, p) }) {
			*list = append(*list, c.Bridged...)
		}
	}
}

// routerMAC is the address by which hosts at a port send to the router.
func (c *Config) routerMAC(port int) net.HardwareAddr {
	if slices.Contains(c.Bridged, port) {
		return bridgeMAC
	}
	return portMAC(port)
}

// between gives most frames for a port of the bridge addresses that the bridge has to find a way for.
func (g *packetGen) between(port int, frame []byte) []byte {
	rng := g.c.Bridging
	if !slices.Contains(g.c.Bridged, port) || len(frame) < 14 || !chance(rng, 65) {
		return frame
	}
	frame = slices.Clone(frame)
	copy(frame, g.stationTo(port))
	copy(frame[6:], g.stationFrom(port))
	return frame
}

// stationFrom is whom a frame into a port claims to come from: one of its stations, seldom one that was elsewhere, or nobody who can be.
func (g *packetGen) stationFrom(port int) net.HardwareAddr {
	rng := g.c.Bridging
	switch n := rng.IntN(100); {
	case n < 90:
		return hostMAC(port, pick(rng, []int{0, 0, 0, 1, 1, 5}))
	case n < 94:
		return hostMAC(pick(rng, g.c.Bridged), rng.IntN(2))
	case n < 97:
		return hostMAC(port, 9+rng.IntN(3))
	case n < 98:
		return pick(rng, []net.HardwareAddr{bridgeMAC, portMAC(port), portMAC((port + 1) % Ports)})
	}
	return pick(rng, []net.HardwareAddr{{0, 0, 0, 0, 0, 0}, {1, 0, 0x5e, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x03, 0, 0, 1, byte(port + 1), 2}})
}

// stationTo is whom it is for.
func (g *packetGen) stationTo(port int) net.HardwareAddr {
	rng := g.c.Bridging
	switch n := rng.IntN(100); {
	case n < 65:
		for range 4 {
			if to := pick(rng, g.c.Bridged); to != port {
				return hostMAC(to, rng.IntN(2))
			}
		}
	case n < 72:
		return hostMAC(port, rng.IntN(2))
	case n < 78:
		return hostMAC(pick(rng, g.c.Bridged), 9+rng.IntN(3))
	case n < 86:
		return bridgeMAC
	case n < 90:
		return portMAC(rng.IntN(Ports))
	}
	return pick(rng, []net.HardwareAddr{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {1, 0, 0x5e, 1, 1, 1}, {0x33, 0x33, 0, 0, 0, 1}, {1, 0x80, 0xc2, 0, 0, byte(rng.IntN(16))}, {0x03, 0, 0, 0, 0, 7}, {0, 0, 0, 0, 0, 0}})
}
