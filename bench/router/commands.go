// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

// command is a change of Linux's configuration that takes a packet's fast path, and the one that gives it back: each as system calls
// of this process, and as the command that a person would type.
type command struct {
	name     string
	src, dst string // of the packet that it decides over
	do, undo func() error
	typed    [2]string
}

// commands of the lane with three ports.
func commands(b *suite.Bench, l *suite.Lane) ([]command, error) {
	ns := l.Node(lab.Dut)
	nl := ns.Netlink()
	alt, err := nl.LinkByName("alt")
	if err != nil {
		return nil, err
	}
	source := &netlink.Addr{IPNet: host("10.0.0.2")}
	blackhole := &netlink.Route{Dst: host("16.0.3.9"), Type: unix.RTN_BLACKHOLE}
	hop := neighbour(l.Out().Index, "10.0.1.2", l.RX().MAC)
	altHop := neighbour(l.Port(lab.Dut, "alt").Index, "10.0.2.2", l.Port(lab.SinkNode, "alt").MAC)
	altRoute := &netlink.Route{Dst: &net.IPNet{IP: net.IP{40, 0, 0, 0}, Mask: net.CIDRMask(24, 32)}, Gw: net.IP{10, 0, 2, 2}}
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = host("10.0.0.77"), 100, 500
	if err := ns.Exec("ip route add blackhole default table 100"); err != nil {
		return nil, err
	}
	rpFilter, err := sysctl(b, ns, "net/ipv4/conf/in/rp_filter")
	if err != nil {
		return nil, err
	}
	addRule, flushRules, err := nftRules(b, ns, net.IP{16, 0, 3, 9})
	if err != nil {
		return nil, err
	}
	const src, dst = "10.0.0.2", "16.0.3.9"
	return []command{
		{"address", src, dst, func() error { return nl.AddrAdd(alt, source) }, func() error { return nl.AddrDel(alt, source) },
			[2]string{"ip addr add 10.0.0.2/32 dev alt", "ip addr del 10.0.0.2/32 dev alt"}},
		{"route", src, dst, func() error { return nl.RouteAdd(blackhole) }, func() error { return nl.RouteDel(blackhole) },
			[2]string{"ip route add blackhole 16.0.3.9", "ip route del blackhole 16.0.3.9"}},
		{"link", src, "40.0.0.9", func() error { return nl.LinkSetDown(alt) }, func() error {
			if err := nl.LinkSetUp(alt); err != nil {
				return err
			}
			if err := nl.NeighSet(altHop); err != nil {
				return err
			}
			return nl.RouteAdd(altRoute)
		}, [2]string{"ip link set alt down", fmt.Sprintf("ip link set alt up\nip neigh replace 10.0.2.2 lladdr %s nud permanent dev alt\nip route add 40.0.0.0/24 via 10.0.2.2", altHop.HardwareAddr)}},
		{"neighbour", src, dst, func() error { return nl.NeighDel(hop) }, func() error { return nl.NeighSet(hop) },
			[2]string{"ip neigh del 10.0.1.2 dev out", fmt.Sprintf("ip neigh replace 10.0.1.2 lladdr %s nud permanent dev out", hop.HardwareAddr)}},
		{"sysctl rp_filter", "16.0.9.9", dst, func() error { return rpFilter("1") }, func() error { return rpFilter("0") },
			[2]string{"sysctl -qw net.ipv4.conf.in.rp_filter=1", "sysctl -qw net.ipv4.conf.in.rp_filter=0"}},
		{"ip rule", "10.0.0.77", dst, func() error { return nl.RuleAdd(rule) }, func() error { return nl.RuleDel(rule) },
			[2]string{"ip rule add from 10.0.0.77 lookup 100 pref 500", "ip rule del from 10.0.0.77 lookup 100 pref 500"}},
		{"nft rule", src, dst, addRule, flushRules, [2]string{"nft add rule ip bench way ip daddr 16.0.3.9 drop", "nft flush chain ip bench way"}},
	}, nil
}

func host(addr string) *net.IPNet {
	return &net.IPNet{IP: net.ParseIP(addr).To4(), Mask: net.CIDRMask(32, 32)}
}

func neighbour(index int, addr string, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: net.ParseIP(addr).To4(), HardwareAddr: mac}
}

// sysctl opens a setting inside the namespace; what it returns sets it with one system call.
func sysctl(b *suite.Bench, ns *lab.NS, path string) (set func(string) error, err error) {
	var file *os.File
	err = ns.Do(func() (err error) {
		file, err = os.OpenFile("/proc/sys/"+path, os.O_WRONLY, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.Later(file.Close)
	return func(value string) error { _, err := file.WriteAt([]byte(value), 0); return err }, nil
}

// nftRules makes an empty chain at the forward hook; what it returns adds a rule that drops what goes to dst, and takes
// all of its rules away.
func nftRules(b *suite.Bench, ns *lab.NS, dst net.IP) (add, flush func() error, err error) {
	conn, err := suite.Nftables(b, ns)
	if err != nil {
		return nil, nil, err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "bench"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "way", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	if err := conn.Flush(); err != nil {
		return nil, nil, fmt.Errorf("making a chain: %w", err)
	}
	rule := suite.NftDrop(table, chain, suite.NftDestination, dst.To4())
	return func() error { conn.AddRule(rule); return conn.Flush() }, func() error { conn.FlushChain(chain); return conn.Flush() }, nil
}
