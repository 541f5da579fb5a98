// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// rule is a rule as every dialect can say it. The zero value of a field asks for nothing.
type rule struct {
	src, dst     netip.Prefix
	notSrc       bool
	proto        string   // "tcp", "udp", "icmp"
	sport, dport [2]int   // from, to
	ports        []int    // of the destination: one of these
	in           string   // interface
	states       []string // of the connection: "established" …
	set          string   // the source is in it
	does         string   // ACCEPT, DROP, RETURN, or a chain
}

// table is a filter table: the chain FORWARD, the chains that it jumps to, and sets of IPv4 addresses.
type table struct {
	forward []rule
	chains  map[string][]rule
	order   []string // of chains, for a text that is the same each time
	sets    []addressSet
}

// size is the number of rules.
func (t table) size() int {
	n := len(t.forward)
	for _, c := range t.chains {
		n += len(c)
	}
	return n
}

// addressSet is an ipset or nft set; with a verdict in map form.
type addressSet struct {
	name     string
	kind     string // of the ipset: hash:ip, hash:net
	elements []netip.Prefix
	verdicts map[netip.Prefix]string // nft: makes it a map
}

// host is the i-th of many addresses that no traffic comes from unless it is asked to.
func host(i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 20<<24+1+uint32(i))
	return netip.AddrFrom4(a)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// trafficSource is where the usual stream comes from.
var trafficSource = netip.MustParseAddr("10.0.0.2")

// source makes n rules by source: all but the last drop what does not come, the last accepts the traffic.
func source(n int) table {
	var rs table
	for i := range n {
		r := rule{src: single(host(i)), does: "DROP"}
		if i == n-1 {
			r = rule{src: single(trafficSource), does: "ACCEPT"}
		}
		rs.forward = append(rs.forward, r)
	}
	return rs
}

// sourceRandom makes n rules that each accept one source; the traffic is to come from all of them at random.
func sourceRandom(n int) table {
	var rs table
	for i := range n {
		rs.forward = append(rs.forward, rule{src: single(host(i)), does: "ACCEPT"})
	}
	return rs
}

// mixed makes n rules of many shapes: five-tuples, ranges, negation, lists of ports, interfaces, and a user chain that the traffic goes
// through, with a tenth of them. Only the last one decides over the traffic.
func mixed(n int) table {
	rs := table{chains: map[string][]rule{"zone": nil}, order: []string{"zone"}}
	if n < 3 {
		return source(n)
	}
	rs.forward = append(rs.forward, rule{in: "in", proto: "udp", does: "zone"})
	for i := range n - 2 {
		a := host(i * 7)
		other, _ := host(i << 8).Prefix(24)
		p := 1 + i%1000
		r := []rule{
			{src: other, dst: single(a), proto: "tcp", dport: [2]int{p, p}, does: "ACCEPT"},
			{src: other, proto: "udp", dport: [2]int{30000 + p, 31000 + p}, does: "DROP"},
			{dst: single(a), proto: "udp", dport: [2]int{2000, 2000}, does: "DROP"},
			{src: netip.MustParsePrefix("10.0.0.0/8"), notSrc: true, proto: "tcp", sport: [2]int{1, 1023}, does: "DROP"},
			{src: single(a), proto: "udp", ports: []int{53, 123, 2000 + p}, does: "DROP"},
			{in: fmt.Sprintf("lan%d", i%50), dst: other, does: "ACCEPT"},
			{src: single(a), proto: "icmp", does: "ACCEPT"},
			{src: other, dst: other, does: "DROP"},
		}[i%8]
		if i%10 == 9 {
			rs.chains["zone"] = append(rs.chains["zone"], r)
		} else {
			rs.forward = append(rs.forward, r)
		}
	}
	rs.forward = append(rs.forward, rule{src: netip.MustParsePrefix("10.0.0.0/24"), in: "in", proto: "udp", dport: [2]int{2000, 2000}, does: "ACCEPT"})
	return rs
}

// oneSet drops n sources by one rule with one set.
func oneSet(n int) table {
	return table{forward: []rule{{set: "black", does: "DROP"}}, sets: []addressSet{{name: "black", kind: "hash:ip", elements: hosts(n)}}}
}

// oneMap is nft's verdict map: n sources that are dropped, and the traffic, which is accepted.
func oneMap(n int) table {
	s := addressSet{name: "black", verdicts: map[netip.Prefix]string{single(trafficSource): "ACCEPT"}, elements: append(hosts(n-1), single(trafficSource))}
	for _, p := range s.elements[:n-1] {
		s.verdicts[p] = "DROP"
	}
	return table{forward: []rule{{set: "black"}}, sets: []addressSet{s}}
}

func hosts(n int) (out []netip.Prefix) {
	for i := range n {
		out = append(out, single(host(i)))
	}
	return out
}

// stateful puts "established, related accept" before the rules.
func stateful(rs table) table {
	rs.forward = append([]rule{{states: []string{"established", "related"}, does: "ACCEPT"}}, rs.forward...)
	return rs
}

// saved is the rules as iptables-save writes them.
func (rs table) saved() string {
	var s strings.Builder
	s.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	for _, name := range rs.order {
		fmt.Fprintf(&s, ":%s - [0:0]\n", name)
	}
	for _, r := range rs.forward {
		fmt.Fprintf(&s, "-A FORWARD%s\n", r.iptables())
	}
	for _, name := range rs.order {
		for _, r := range rs.chains[name] {
			fmt.Fprintf(&s, "-A %s%s\n", name, r.iptables())
		}
	}
	s.WriteString("COMMIT\n")
	return s.String()
}

// iptables is the rule in the words of iptables, behind "-A CHAIN".
func (r rule) iptables() string {
	var s strings.Builder
	option := func(name string, p netip.Prefix, not bool) {
		switch {
		case p.IsValid() && not:
			fmt.Fprintf(&s, " ! %s %s", name, p)
		case p.IsValid():
			fmt.Fprintf(&s, " %s %s", name, p)
		}
	}
	option("-s", r.src, r.notSrc)
	option("-d", r.dst, false)
	if r.in != "" {
		fmt.Fprintf(&s, " -i %s", r.in)
	}
	if r.proto != "" {
		fmt.Fprintf(&s, " -p %s", r.proto)
	}
	if r.sport != [2]int{} {
		fmt.Fprintf(&s, " -m %s --sport %d:%d", r.proto, r.sport[0], r.sport[1])
	}
	if r.dport != [2]int{} {
		fmt.Fprintf(&s, " -m %s --dport %d:%d", r.proto, r.dport[0], r.dport[1])
	}
	if len(r.ports) > 0 {
		fmt.Fprintf(&s, " -m multiport --dports %s", list(r.ports))
	}
	if len(r.states) > 0 {
		fmt.Fprintf(&s, " -m conntrack --ctstate %s", strings.ToUpper(strings.Join(r.states, ",")))
	}
	if r.set != "" {
		fmt.Fprintf(&s, " -m set --match-set %s src", r.set)
	}
	return s.String() + " -j " + r.does
}

// restore is the sets as `ipset restore` reads them.
func (rs table) restore() string {
	var s strings.Builder
	for _, set := range rs.sets {
		fmt.Fprintf(&s, "create %s %s hashsize %d maxelem %d\n", set.name, set.kind, max(1024, len(set.elements)), max(65536, len(set.elements)))
		for _, e := range set.elements {
			if e.IsSingleIP() {
				fmt.Fprintf(&s, "add %s %s\n", set.name, e.Addr())
			} else {
				fmt.Fprintf(&s, "add %s %s\n", set.name, e)
			}
		}
	}
	return s.String()
}

// native is the rules in nft's own language, without counters, as they are usually written.
func (rs table) native() string {
	var s strings.Builder
	s.WriteString("table ip bench {\n")
	for _, set := range rs.sets {
		keyword, kind := "set", "ipv4_addr"
		if set.verdicts != nil {
			keyword, kind = "map", "ipv4_addr : verdict"
		}
		var elements []string
		for _, e := range set.elements {
			text := e.String()
			if e.IsSingleIP() {
				text = e.Addr().String()
			}
			if v := set.verdicts[e]; v != "" {
				text += " : " + strings.ToLower(v)
			}
			elements = append(elements, text)
		}
		flags := ""
		if set.kind == "hash:net" {
			flags = "flags interval; "
		}
		fmt.Fprintf(&s, "%s %s { type %s; %selements = { %s }; }\n", keyword, set.name, kind, flags, strings.Join(elements, ", "))
	}
	for _, name := range rs.order {
		fmt.Fprintf(&s, "chain %s {\n", name)
		for _, r := range rs.chains[name] {
			s.WriteString(r.nft(rs) + "\n")
		}
		s.WriteString("}\n")
	}
	s.WriteString("chain forward { type filter hook forward priority 0; policy accept;\n")
	for _, r := range rs.forward {
		s.WriteString(r.nft(rs) + "\n")
	}
	s.WriteString("}\n}\n")
	return s.String()
}

// nft is the rule in nft's words.
func (r rule) nft(rs table) string {
	var s strings.Builder
	if r.in != "" {
		fmt.Fprintf(&s, "iifname %q ", r.in)
	}
	if r.src.IsValid() {
		not := ""
		if r.notSrc {
			not = "!= "
		}
		fmt.Fprintf(&s, "ip saddr %s%s ", not, r.src)
	}
	if r.dst.IsValid() {
		fmt.Fprintf(&s, "ip daddr %s ", r.dst)
	}
	switch {
	case r.sport != [2]int{}:
		fmt.Fprintf(&s, "%s sport %d-%d ", r.proto, r.sport[0], r.sport[1])
	case r.dport != [2]int{} && r.dport[0] == r.dport[1]:
		fmt.Fprintf(&s, "%s dport %d ", r.proto, r.dport[0])
	case r.dport != [2]int{}:
		fmt.Fprintf(&s, "%s dport %d-%d ", r.proto, r.dport[0], r.dport[1])
	case len(r.ports) > 0:
		fmt.Fprintf(&s, "%s dport { %s } ", r.proto, list(r.ports))
	case r.proto != "":
		fmt.Fprintf(&s, "ip protocol %s ", r.proto)
	}
	if len(r.states) > 0 {
		fmt.Fprintf(&s, "ct state %s ", strings.Join(r.states, ","))
	}
	if r.set != "" {
		for _, set := range rs.sets {
			if set.name == r.set && set.verdicts != nil {
				return s.String() + "ip saddr vmap @" + r.set
			}
		}
		fmt.Fprintf(&s, "ip saddr @%s ", r.set)
	}
	switch r.does {
	case "ACCEPT", "DROP", "RETURN":
		return s.String() + strings.ToLower(r.does)
	}
	return s.String() + "jump " + r.does
}

func list(ports []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ","), "[]")
}
