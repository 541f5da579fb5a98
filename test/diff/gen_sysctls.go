// SPDX-License-Identifier: Apache-2.0

package diff

import "math/rand/v2"

// genSysctls turns the switches that forwarding depends on. Reverse path filters excuse nothing where a check passes; ports
// whose check may be left to Linux by name are excused.
func genSysctls(rng *rand.Rand, c *Config) {
	if chance(rng, 3) {
		c.add("sysctl net.ipv4.ip_forward=0")
		c.Slow.IP4 = true
	}
	if chance(rng, 4) {
		c.add("sysctl net.ipv6.conf.all.forwarding=0")
		c.Slow.IP6 = true
		if chance(rng, 50) {
			c.add("sysctl net.ipv6.conf.p0.forwarding=1")
		}
	}
	if chance(rng, 25) {
		c.add("sysctl net.ipv4.conf.all.rp_filter=%d", 1+rng.IntN(2))
	}
	for i := range c.N {
		c.devSysctls(rng, i)
	}
	for _, s := range []struct {
		percent int
		setting string
		slow    func()
	}{
		{8, "net.ipv4.conf.all.accept_local=1", nil},
		{5, "net.ipv4.conf.all.route_localnet=1", nil},
		{15, "net.ipv4.conf.all.send_redirects=0", nil},
		{5, "net.ipv4.conf.all.src_valid_mark=1", func() { c.Slow.IP4 = true }},
		{5, "net.ipv4.ip_forward_use_pmtu=1", func() { c.Slow.IP4 = true }},
		{5, "net.ipv4.conf.all.accept_source_route=1", nil},
		{5, "net.ipv4.conf.all.ignore_routes_with_linkdown=1", nil},
		{5, "net.ipv4.conf.all.bc_forwarding=1", nil},
		{5, "net.ipv4.icmp_echo_ignore_broadcasts=0", nil},
		{5, "net.ipv4.icmp_echo_ignore_all=1", nil},
		{8, "net.ipv4.ip_forward_update_priority=0", nil},
		{10, "net.ipv4.fib_multipath_hash_policy=1", func() { c.Notes["hash4"] = true }},
		{3, "net.ipv4.fib_multipath_hash_policy=2", func() { c.Notes["hash4"] = true }},
		{10, "net.ipv6.fib_multipath_hash_policy=1", func() { c.Notes["hash6"] = true }},
		{5, "net.ipv4.fib_multipath_use_neigh=1", nil},
		{5, "net.ipv4.ip_early_demux=0", nil},
		{5, "net.ipv4.conf.all.proxy_arp=1", nil},
		{4, "net.ipv6.conf.all.proxy_ndp=1", nil},
		{4, "net.ipv6.conf.all.accept_source_route=1", nil},
		{5, "net.ipv4.conf.all.log_martians=1", nil},
		{4, "net.ipv4.icmp_errors_use_inbound_ifaddr=1", nil},
	} {
		if chance(rng, s.percent) {
			c.add("sysctl %s", s.setting)
			if s.slow != nil {
				s.slow()
			}
		}
	}
}

func (c *Config) devSysctls(rng *rand.Rand, i int) {
	dev := c.dev(i)
	if chance(rng, 25) {
		c.add("sysctl net.ipv4.conf.%s.rp_filter=%d", dev, rng.IntN(3))
	}
	for _, s := range []struct {
		percent int
		format  string
		in, out bool
	}{
		{4, "net.ipv4.conf.%s.forwarding=0", true, true},
		{3, "net.ipv6.conf.%s.disable_ipv6=1", true, true},
		{4, "net.ipv6.conf.%s.forwarding=0", true, true},
		{3, "net.ipv4.conf.%s.accept_local=1", false, false},
		{3, "net.ipv4.conf.%s.route_localnet=1", false, false},
		{5, "net.ipv4.conf.%s.send_redirects=0", false, false},
		{3, "net.ipv4.conf.%s.proxy_arp=1", false, false},
		{3, "net.ipv4.conf.%s.src_valid_mark=1", true, false},
		{3, "net.ipv4.conf.%s.drop_unicast_in_l2_multicast=1", false, false},
		{3, "net.ipv6.conf.%s.mtu=1280", false, false},
		{3, "net.ipv6.conf.%s.seg6_enabled=1", false, false},
		{3, "net.ipv4.conf.%s.ignore_routes_with_linkdown=1", false, false},
		{3, "net.ipv4.conf.%s.disable_policy=1", false, false},
		{3, "net.ipv6.conf.%s.proxy_ndp=1", false, false},
	} {
		if !chance(rng, s.percent) {
			continue
		}
		c.add("sysctl "+s.format, dev)
		if s.in {
			c.Slow.In = append(c.Slow.In, i)
		}
		if s.out {
			c.Slow.Out = append(c.Slow.Out, i)
		}
	}
}
