// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// ipsets are sets of every type with what is read of them. A kernel need not have all types.
var ipsets = []struct{ name, create, add, want string }{
	{"ip", "hash:ip", "10.0.0.1 10.0.0.7", "[32] a000001 | a000007"},
	{"ip6", "hash:ip family inet6", "2001:db8::1", "[128] 20010db8000000000000000000000001"},
	{"masked", "hash:ip netmask 24", "10.0.0.1 10.0.1.1", "[32] interval a000000-a0000ff | a000100-a0001ff"},
	{"net", "hash:net", "10.0.0.0/8 10.1.0.0/16,nomatch 192.0.2.1", "[32] interval a000000-affffff | a010000-a01ffff nomatch | c0000201"},
	{"net6", "hash:net family inet6", "2001:db8::/32", "[128] interval 20010db8000000000000000000000000-20010db8ffffffffffffffffffffffff"},
	{"ipport", "hash:ip,port", "10.0.0.1,80 10.0.0.1,udp:53 10.0.0.2,icmp:8/0", "[32 8 16] a000001 11 35 | a000001 6 50 | a000002 1 800"},
	{"ipportip", "hash:ip,port,ip", "10.0.0.1,80,10.0.0.2", "[32 8 16 32] a000001 6 50 a000002"},
	{"ipportnet", "hash:ip,port,net", "10.0.0.1,80,10.1.0.0/16", "[32 8 16 32] interval a000001 6 50 a010000-a01ffff"},
	{"netport", "hash:net,port", "10.0.0.0/8,80", "[32 8 16] interval a000000-affffff 6 50"},
	{"netiface", "hash:net,iface", "10.0.0.0/8,eth0", "[32 128] interval a000000-affffff 65746830000000000000000000000000"},
	{"wild", "hash:net,iface", "10.0.0.0/8,eth,wildcard", "[32 128] interval a000000-affffff 65746800000000000000000000000000-657468ffffffffffffffffffffffffff"},
	{"netnet", "hash:net,net", "10.0.0.0/8,10.1.0.0/16", "[32 32] interval a000000-affffff a010000-a01ffff"},
	{"netportnet", "hash:net,port,net", "10.0.0.0/8,80,10.1.0.0/16", "[32 8 16 32] interval a000000-affffff 6 50 a010000-a01ffff"},
	{"ipmark", "hash:ip,mark", "10.0.0.1,0x10", "[32 32] a000001 10"},
	{"mac", "hash:mac", "00:11:22:33:44:55", "[48] 1122334455"},
	{"ipmac", "hash:ip,mac", "10.0.0.1,00:11:22:33:44:55", "[32 48] a000001 1122334455"},
	{"bip", "bitmap:ip range 10.0.0.0/24", "10.0.0.1 10.0.0.2", "[32] a000001 | a000002"},
	{"bipmac", "bitmap:ip,mac range 10.0.0.0/24", "10.0.0.1,00:11:22:33:44:55", "[32 48] a000001 1122334455"},
	{"bipany", "bitmap:ip,mac range 10.0.0.0/24", "10.0.0.1", "[32 48] unknown (an element without MAC address is not modelled) a000001 0-ffffffffffff"},
	{"bport", "bitmap:port range 0-1023", "80", "[8 16] 11 50 | 6 50"},
	{"aging", "hash:ip timeout 100", "10.0.0.1 10.0.0.2,timeout,0", "[32] timeout a000001 expires | a000002"},
	{"physdev", "hash:net,iface", "10.0.0.0/8,physdev:eth0", "[32 128] interval unknown (elements with physdev are not modelled)"},
	{"list", "list:set", "ip ip6", "[]"},
}

// makeIPSets makes those sets of which the kernel has the type.
func makeIPSets(t *testing.T, ns netns) map[string]string {
	t.Helper()
	made := map[string]string{}
	for _, s := range ipsets {
		if !ns.try("ipset create "+s.name+" "+s.create+" 2>/dev/null") && s.name != "ip" {
			t.Logf("this kernel has no %s", s.create)
			continue
		}
		for _, e := range strings.Fields(s.add) {
			ns.run(t, "ipset add "+s.name+" "+ipsetOption.ReplaceAllString(e, " $1 "))
		}
		made[s.name] = s.want
	}
	return made
}

// ipsetScript makes sets of the types that every kernel has, without those whose elements age.
func ipsetScript() (out string) {
	for _, s := range ipsets {
		switch s.name {
		case "ip", "net", "ip6", "ipport", "ipportnet", "netiface", "bport", "bipany", "list":
		default:
			continue
		}
		out += "ipset create " + s.name + " " + s.create + "\n"
		for _, e := range strings.Fields(s.add) {
			out += "ipset add " + s.name + " " + ipsetOption.ReplaceAllString(e, " $1 ") + "\n"
		}
	}
	return out + "iptables-nft -A FORWARD -m set ! --match-set ipport src,dst -j DROP\n"
}

var ipsetOption = regexp.MustCompile(`,(nomatch|wildcard|timeout),?`)

// TestIPSets compares every set with what was put into it, and the number of its elements with what ipset lists.
func TestIPSets(t *testing.T) {
	ns := namespace(t)
	want := makeIPSets(t, ns)
	sets := readAll(t).Ruleset.Sets
	if len(sets) != len(want) {
		t.Errorf("%d sets, want %d", len(sets), len(want))
	}
	for _, s := range sets {
		got := setWords(s)
		if s.Type == "bitmap:port" && len(s.Elements) != 2 || s.Name == "physdev" {
			got, _, _ = strings.Cut(got, ") ")
			got = strings.TrimSuffix(got, ")") + ")"
		}
		if got != want[s.Name] {
			t.Errorf("set %s (%s)\n  got  %s\n  want %s", s.Name, s.Type, got, want[s.Name])
		}
		var listed int
		fmt.Sscanf(ns.output(t, "ipset list "+s.Name+" | grep 'Number of entries'"), "Number of entries: %d", &listed)
		if n := len(s.Elements) + len(s.Members); n != listed && s.Type != "bitmap:port" {
			t.Errorf("set %s has %d elements, ipset lists %d", s.Name, n, listed)
		}
	}
}

// TestIPSetOfManyMessages reads a set that needs many messages, with counters before and after packets.
func TestIPSetOfManyMessages(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link set lo up
		{ echo create big hash:ip counters; for i in $(seq 1 2000); do echo add big 10.0.$((i/250)).$((i%250)); done; echo add big 127.0.0.2; } | ipset restore
		iptables-legacy -A OUTPUT -m set --match-set big dst -j ACCEPT`)
	counted := func() (uint64, uint64) {
		r := readAll(t).Ruleset
		if len(r.Sets) != 1 || len(r.Sets[0].Elements) != 2001 {
			t.Fatalf("%d sets", len(r.Sets))
		}
		for _, e := range r.Sets[0].Elements {
			if e.Key[0].Lo.Is4().String() == "127.0.0.2" {
				return r.Counters[e.Counter].Packets, r.Counters[e.Counter].Bytes
			}
		}
		t.Fatal("an element is missing")
		return 0, 0
	}
	if p, b := counted(); p != 0 || b != 0 {
		t.Errorf("%d packets, %d bytes before", p, b)
	}
	ns.run(t, "ping -q -c 3 -i 0.01 -s 72 127.0.0.2 >/dev/null")
	if p, b := counted(); p != 3 || b != 300 {
		t.Errorf("%d packets, %d bytes after three of 100", p, b)
	}
}

// TestMatchSet looks at rules that ask sets, in legacy tables and by iptables-nft.
func TestMatchSet(t *testing.T) {
	for _, flavour := range []string{"legacy", "nft"} {
		t.Run(flavour, func(t *testing.T) {
			ns := namespace(t)
			made := makeIPSets(t, ns)
			iptables := "iptables-" + flavour
			for _, c := range []struct{ set, options, want string }{
				{"ip", "-m set --match-set ip src -j DROP", "lookup ip saddr, count, drop"},
				{"ip", "-m set ! --match-set ip dst -j DROP", "not lookup ip daddr, count, drop"},
				{"net", "-m set --match-set net src -j DROP", "lookup ip saddr, count, drop"},
				{"ipport", "-m set --match-set ipport dst,dst -j DROP", "lookup ip daddr l4proto set dport, count, drop"},
				{"ipportip", "-m set --match-set ipportip src,dst,dst -j DROP", "lookup ip saddr l4proto set dport ip daddr, count, drop"},
				{"ipportnet", "-m set --match-set ipportnet src,src,dst -j DROP", "lookup ip saddr l4proto set sport ip daddr, count, drop"},
				{"netport", "-m set --match-set netport src,dst -j DROP", "lookup ip saddr l4proto set dport, count, drop"},
				{"netiface", "-m set --match-set netiface src,dst -j DROP", "lookup ip saddr oifname, count, drop"},
				{"bport", "-m set --match-set bport dst -j DROP", "lookup l4proto set dport, count, drop"},
				{"bip", "-m set --match-set bip src,src -j DROP", "lookup ip saddr, count, drop"},
				{"list", "-m set --match-set list src -j DROP", "lookup of [ip saddr], count, drop"},
				{"bipany", "-m set --match-set bipany src,src -j DROP", "unknown xt match set, count, drop"},
				{"ip", "-m set --match-set ip src --return-nomatch -j DROP", "unknown xt match set, count, drop"},
				{"ip", "-m set --match-set ip src --packets-gt 5 -j DROP", "unknown xt match set, count, drop"},
				{"ip", "-j SET --add-set ip src", "count, slow set"},
			} {
				if made[c.set] == "" {
					continue
				}
				ns.run(t, iptables+" -F FORWARD; "+iptables+" -A FORWARD "+c.options)
				r := readAll(t).Ruleset
				rules := r.Table(ruleset.IP4, "filter").Chain("FORWARD").Rules
				if len(rules) != 1 {
					t.Fatalf("%s: %d rules", c.options, len(rules))
				}
				if got := steps(rules[0]); got != c.want {
					t.Errorf("%s\n  got  %s\n  want %s", c.options, got, c.want)
				}
				for _, s := range rules[0].Steps {
					if l, ok := s.(ruleset.Lookup); ok && r.Sets[l.Set].Name != c.set {
						t.Errorf("%s asks set %s", c.options, r.Sets[l.Set].Name)
					}
				}
				for _, s := range r.Sets {
					if want := c.set == s.Name && strings.HasPrefix(c.options, "-j SET"); s.Dynamic != want {
						t.Errorf("%s: set %s is dynamic: %v", c.options, s.Name, s.Dynamic)
					}
				}
			}
		})
	}
}
