// SPDX-License-Identifier: Apache-2.0

package rulesets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// others is where the readers' own tests keep rule sets that are used here too.
const others = "../../internal/kstate/testdata/rules"

// fixture is a rule set with the network that it was made for.
type fixture struct {
	name, from string
	files      []string // in the order in which they are loaded
	lan, wan   side
	tracked    bool // connection tracking sees the packets
	bench      *bench
	always     int // at how many hooks it is sent with every run of the test, and not only when the page is written
}

// side is a device of the router and addresses behind it.
type side struct{ device, four, six string }

// bench is a rule set of internal/rules/classbench.
type bench struct {
	kind  classbench.Kind
	rules int
}

var (
	inside  = side{"eth1", "10.0.0.0/24", "2001:db8:1::/64"}
	outside = side{"eth0", "198.18.0.0/15", "2001:db8:2::/48"}
)

// fixtures are all rule sets.
func fixtures() []fixture {
	lan, wan := side{"br-lan", "192.168.1.0/24", "2001:db8:1::/64"}, side{"wan", outside.four, outside.six}
	docker, pods := side{"docker0", "172.17.0.2/32", ""}, side{"cni0", "10.42.0.0/24", ""}
	out := []fixture{
		{name: "ufw", from: "ufw 0.36.2-1: incoming and routed denied, a LAN let out, one service let in, one network denied", files: []string{"ufw.iptables", "ufw.ip6tables"}, lan: inside, wan: outside, tracked: true},
		{name: "firewalld", from: "firewalld 1.3.3-1~deb12u2: zones internal and external, a policy between them, a rich rule", files: []string{"firewalld.nft"}, lan: inside, wan: outside, tracked: true},
		{name: "firewalld, gateway", from: "the same version: zone external masquerades and forwards a port, a policy lets zone internal out", files: []string{"firewalld-gateway.nft"}, lan: inside, wan: outside, tracked: true},
		{name: "fail2ban, iptables", from: "fail2ban 1.0.2-2, iptables-multiport in FORWARD, two jails, three addresses each", files: []string{"fail2ban-iptables.iptables", "fail2ban-iptables.ip6tables"}, lan: inside, wan: outside},
		{name: "fail2ban, nftables", from: "the same with nftables-multiport", files: []string{"fail2ban-nftables.nft"}, lan: inside, wan: outside},
		{name: "fail2ban, ipset", from: "the same with iptables-ipset-proto6", files: []string{"fail2ban-ipset.ipset", "fail2ban-ipset.iptables"}, lan: inside, wan: outside, always: 1},
		{name: "home router", from: "written by hand: nft, NAT, a port forwarded, guests kept apart", files: []string{"home-router.nft"}, lan: inside, wan: outside, tracked: true, always: 1},
		{name: "OpenWrt", from: "written by hand as firewall4 of OpenWrt 24.10 does: its default configuration and a port forwarded, no flow offloading", files: []string{"openwrt.nft"}, lan: lan, wan: wan, tracked: true},
		{name: "Docker 20.10", from: "Docker 20.10, iptables, a container with two published ports", files: []string{others + "/docker-20.10.iptables"}, lan: docker, wan: outside, tracked: true},
		{name: "Docker 28.5", from: "Docker 28.5, iptables, a container with a published port", files: []string{others + "/docker-28.5.iptables"}, lan: docker, wan: outside, tracked: true},
		{name: "kube-proxy, iptables", from: "kube-proxy 1.36 and flannel, mode iptables, without its accounting objects (nfacct)", files: []string{others + "/kube-proxy-1.36.iptables"}, lan: pods, wan: outside, tracked: true},
		{name: "kube-proxy, nftables", from: "kube-proxy 1.36, mode nftables", files: []string{others + "/kube-proxy-1.36.nft"}, lan: pods, wan: outside, tracked: true},
	}
	for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
		for _, n := range []int{1000, 10000} {
			out = append(out, fixture{name: fmt.Sprintf("%s, %d rules", kind, n), from: fmt.Sprintf("ClassBench-like, internal/rules/classbench, seed %d, iptables", classbench.Seed), lan: inside, wan: outside, bench: &bench{kind, n}})
		}
	}
	return out
}

// accounting are kube-proxy's accounting objects, which not every kernel has, and which would have to be there.
var accounting = regexp.MustCompile(`-m nfacct --nfacct-name +\S+ `)

// load is what to run, and its standard input, for each file.
func (f *fixture) load() (out [][2]string, err error) {
	if f.bench != nil {
		return [][2]string{{"iptables-legacy-restore", saved(classbench.Rules(f.bench.kind, f.bench.rules, classbench.Seed))}}, nil
	}
	for _, file := range f.files {
		path := file
		if !strings.Contains(file, "/") {
			path = filepath.Join("testdata", file)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a rule set: %w", err)
		}
		text = accounting.ReplaceAll(text, nil)
		out = append(out, [2]string{map[string]string{".iptables": "iptables-nft-restore", ".ip6tables": "ip6tables-nft-restore", ".nft": "nft -f -", ".ipset": "ipset restore"}[filepath.Ext(path)], string(text)})
	}
	return out, nil
}

// saved writes a rule set of classbench as iptables-save would.
func saved(rs *ruleset.Ruleset) string {
	var b strings.Builder
	b.WriteString("*filter\n:FORWARD DROP [0:0]\n")
	for _, r := range rs.Tables[0].Chains[0].Rules {
		b.WriteString("-A FORWARD" + savedRule(r) + "\n")
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func savedRule(r ruleset.Rule) string {
	var address, proto, ports, target string
	for _, s := range r.Steps {
		switch s := s.(type) {
		case ruleset.Test:
			lo, hi := s.Ranges[0].Lo.Lo, s.Ranges[0].Hi.Lo
			switch s.Field {
			case ruleset.IP4Src, ruleset.IP4Dst:
				bits := 32
				for n := hi - lo; n > 0; n >>= 1 {
					bits--
				}
				address += fmt.Sprintf(" %s %s/%d", map[ruleset.Field]string{ruleset.IP4Src: "-s", ruleset.IP4Dst: "-d"}[s.Field], ruleset.Num(lo).Is4(), bits)
			case ruleset.L4Proto:
				proto = fmt.Sprintf(" -p %d", lo)
				if name := map[uint64]string{6: "tcp", 17: "udp"}[lo]; name != "" {
					proto += " -m " + name
				}
			case ruleset.SPort, ruleset.DPort:
				ports += fmt.Sprintf(" %s %d:%d", map[ruleset.Field]string{ruleset.SPort: "--sport", ruleset.DPort: "--dport"}[s.Field], lo, hi)
			}
		case ruleset.Verdict:
			target = map[ruleset.Code]string{ruleset.Accept: " -j ACCEPT", ruleset.Drop: " -j DROP"}[s.Code]
		}
	}
	return address + proto + ports + target
}
