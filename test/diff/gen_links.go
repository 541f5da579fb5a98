// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"math/rand/v2"
	"net/netip"
	"slices"
)

// genLinks chooses how many ports take part and their MTUs.
func genLinks(rng *rand.Rand, c *Config) {
	c.N = 2 + rng.IntN(Ports-1)
	for i := range c.N {
		if chance(rng, 20) {
			c.MTU[i] = pick(rng, []int{576, 1000, 1280, 1400, 1492, 1600, 2000, 3000, 9000})
			c.add("ip link set %s mtu %d", portName(i), c.MTU[i])
		}
	}
}

// genAddresses gives ports addresses: plain, several, overlapping, /31 and /32, none.
func genAddresses(rng *rand.Rand, c *Config) {
	for i := range c.N {
		if !chance(rng, 95) || c.Unaddressed && slices.Contains(c.Bridged, i) {
			continue
		}
		c.address(i, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24))
		c.address(i, netip.PrefixFrom(addr6(i, 0, 1), 64))
		for chance(rng, 25) {
			c.address(i, pick(rng, []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(2 + rng.IntN(250))}), 24),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rng.IntN(Ports)), 200}), 16),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), byte(rng.IntN(2))}), 31),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, 0, byte(i + 1)}), 32),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 129}), 25),
				netip.PrefixFrom(addr6(i, 1, 1), 64),
				netip.PrefixFrom(addr6(i, 2, 3), 127),
				netip.PrefixFrom(addr6(9, 0, byte(i+1)), 128),
			}))
		}
	}
	if chance(rng, 20) {
		c.add("ip address add 10.7.7.7/32 dev lo")
		c.Own = append(c.Own, OwnAddr{-1, netip.MustParsePrefix("10.7.7.7/32")})
	}
}

// addr6 is an address of net n, subnet s.
func addr6(n, s int, last byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 0, 0, 0, 0, 0, byte(s), byte(n + 1), 15: last})
}

func (c *Config) address(port int, p netip.Prefix) {
	c.add("ip address add %s dev %s%s", p, c.dev(port), map[bool]string{true: " nodad"}[p.Addr().Is6()])
	c.Own = append(c.Own, OwnAddr{port, p})
}

// genHosts puts neighbours on the wires: two with fixed entries at each port so that most packets
// have somewhere to go, and some that answer, that do not, or whose entry is failed.
func genHosts(rng *rand.Rand, c *Config) {
	for i := range c.N {
		for n := range 2 {
			c.permanent(i, netip.AddrFrom4([4]byte{10, 0, byte(i), byte(10 + n)}), n)
			c.permanent(i, addr6(i, 0, byte(0x10+n)), n)
		}
		if chance(rng, 50) {
			c.answers(i, netip.AddrFrom4([4]byte{10, 0, byte(i), 20}), 5)
			c.answers(i, addr6(i, 0, 0x20), 5)
		}
		if chance(rng, 20) {
			c.Hosts = append(c.Hosts, Host{i, netip.AddrFrom4([4]byte{10, 0, byte(i), 30}), nil, "silent"})
		}
	}
}

func (c *Config) permanent(port int, a netip.Addr, n int) {
	c.add("ip neighbour replace %s lladdr %s dev %s nud permanent", a, hostMAC(port, n), c.dev(port))
	c.Hosts = append(c.Hosts, Host{port, a, hostMAC(port, n), "static"})
}

func (c *Config) answers(port int, a netip.Addr, n int) {
	c.add("host %d %s %s", port, a, hostMAC(port, n))
	c.Hosts = append(c.Hosts, Host{port, a, hostMAC(port, n), "answers"})
}

// genStates takes a port down, or its carrier away.
func genStates(rng *rand.Rand, c *Config) {
	if c.N > 2 && chance(rng, 8) {
		p := c.port(rng)
		c.add("ip link set %s down", portName(p))
		c.excusePort(p)
		if chance(rng, 50) {
			c.add("ip link set %s up", portName(p))
		}
	}
	if chance(rng, 5) {
		p := c.port(rng)
		c.add("ip link set %s arp off", portName(p))
	}
	if chance(rng, 5) {
		p := c.port(rng)
		c.add("ip link set %s promisc on", portName(p))
	}
}

// genChanges changes what is there: addresses go and come, neighbours move, MTUs change.
func genChanges(rng *rand.Rand, c *Config) {
	p := c.port(rng)
	switch rng.IntN(6) {
	case 0:
		c.address(p, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(p), 11}), 24))
	case 1:
		c.add("ip address del 10.0.%d.1/24 dev %s", p, c.dev(p))
	case 2:
		c.add("ip neighbour replace 10.0.%d.10 lladdr %s dev %s nud permanent", p, hostMAC(p, 7), c.dev(p))
	case 3:
		c.add("ip link set %s mtu 1300", portName(p))
		c.MTU[p] = 1300
	case 4:
		c.add("sysctl net.ipv4.conf.%s.rp_filter=%d", c.dev(p), rng.IntN(3))
		c.Slow.In = append(c.Slow.In, p)
	case 5:
		c.add("sysctl net.ipv4.conf.%s.forwarding=%d", c.dev(p), rng.IntN(2))
		c.Slow.In = append(c.Slow.In, p)
	}
}
