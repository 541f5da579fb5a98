// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"strings"
)

// ipsetsBegin are sets of every type that is asked live, and elements that some of the packets are in.
func ipsetsBegin() string {
	var b strings.Builder
	b.WriteString("ipset restore\n")
	for _, line := range []string{
		"create a hash:ip", "add a 10.3.4.5", "create n hash:net", "add n 10.1.0.0/16", "add n 10.1.7.0/24 nomatch", "add n 10.2.0.0/15",
		"create p hash:ip,port", "add p 10.5.1.1,udp:2000", "add p 10.5.1.1,sctp:53", "add p 10.5.1.1,icmp:8/0", "add p 10.5.1.1,47:0",
		"create q hash:net,port", "add q 10.5.0.0/16,tcp:80", "add q 10.5.1.0/24,tcp:53", "add q 10.5.1.1,tcp:53 nomatch",
		"create b bitmap:ip range 10.0.0.0-10.0.0.255", "add b 10.0.0.11", "create s bitmap:port range 0-1999", "add s 80", "create l list:set", "add l a", "add l p",
		"create m hash:ip netmask 16", "add m 172.21.0.0",
		"create a6 hash:ip family inet6", "add a6 2001:db8:3::4", "create n6 hash:net family inet6", "add n6 2001:db8:1::/48", "add n6 2001:db8:1::9 nomatch", "add n6 2001:db8:2::/47",
		"create p6 hash:ip,port family inet6", "add p6 2001:db8:5::1,udp:2000", "create q6 hash:net,port family inet6", "add q6 2001:db8:5::/48,tcp:80", "add q6 2001:db8:5::1,tcp:53", "add l a6",
	} {
		b.WriteString(line + "\n")
	}
	for i := range 99 {
		fmt.Fprintf(&b, "add a 172.20.0.%d\nadd a6 2001:db8:f::%d\n", i+1, i+1)
	}
	return b.String()
}

// ipsetRules ask them; six by the sets of IPv6 addresses.
func ipsetRules(six string) []string {
	out := []string{
		"-m set --match-set a" + six + " src -j DROP", "-p udp -m set --match-set n" + six + " dst -j DROP", "-m set --match-set p" + six + " dst,dst -j DROP",
		"-p tcp -m set --match-set q" + six + " dst,dst -j DROP", "-p tcp -m set ! --match-set n" + six + " dst -m set --match-set s src", "-m set --match-set l src -j DROP",
		"-m set ! --match-set l src,src -p tcp -m tcp --dport 2000 -m set --match-set s src -j DROP", "-p udp -m set --match-set s dst -j DROP",
	}
	if six == "" {
		out = append(out, "-m set --match-set b src -j DROP", "-m set --match-set m src -j DROP")
	}
	return out
}

// ipsetChanges are changes of them, each in force with the next packet. Names stay with the places that rules ask.
var ipsetChanges = [][]string{
	{"ipset add a 10.0.0.10"}, {"ipset del a 10.0.0.10"}, {"ipset add n 10.5.0.0/16"}, {"ipset add n 10.5.1.0/24 nomatch"}, {"ipset del n 10.5.1.0/24"}, {"ipset flush n"}, {"ipset add a6 fd00::1:0:0:0:10"}, {"ipset flush a6"},
	{"ipset create x hash:ip", "ipset add x 10.0.0.10", "ipset swap a x"}, {"ipset rename x y", "ipset destroy y"}, {"ipset create x bitmap:ip range 10.0.0.0/16", "ipset swap a x"}, {"ipset swap a x"},
	{"ipset create t hash:ip timeout 100", "ipset add t 10.0.0.10 timeout 1", "ipset swap a t"}, {"sleep 1200ms"}, {"ipset add a 10.0.0.10 timeout 0"}, {"ipset del l p", "ipset add l n"}, {"ipset del l n"}, {"ipset flush l"},
	{"ipset add s 53"}, {"ipset add b 10.0.0.10"}, {"ipset del b 10.0.0.10"}, {"ipset del s 80"}, {"ipset flush p"}, {"ipset add p 10.5.1.1,tcp:80"}, {"ipset add q 10.5.1.1,tcp:53 -exist"},
}

// threeBegin are sets whose keys are two addresses and a port.
var threeBegin = "ipset restore\n" + strings.Join([]string{
	"create t hash:ip,port,ip", "add t 10.0.0.10,udp:2000,10.5.1.1", "add t 10.0.0.10,icmp:8/0,10.1.2.3", "add t 10.0.0.10,47:0,10.5.1.1", "add t 10.0.0.10,sctp:53,10.5.1.1",
	"create u hash:ip,port,net", "add u 10.0.0.10,tcp:80,10.5.0.0/16", "add u 10.0.0.10,tcp:53,10.5.1.0/24", "add u 10.0.0.10,tcp:53,10.5.1.1 nomatch", "add u 10.0.0.10,icmp:8/0,10.0.0.0/8",
	"create t6 hash:ip,port,ip family inet6", "add t6 fd00::1:0:0:0:10,udp:2000,2001:db8:5::1", "add t6 fd00::1:0:0:0:10,47:0,2001:db8:5::1",
	"create u6 hash:ip,port,net family inet6", "add u6 fd00::1:0:0:0:10,tcp:80,2001:db8:5::/48", "add u6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::/64", "add u6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::1 nomatch",
	"create l list:set", "add l t", "add l u", "add l t6", "add l u6", "",
}, "\n")

func threeRules(six string) []string {
	return []string{
		"-m set --match-set t" + six + " src,dst,dst -j DROP", "-m set --match-set u" + six + " src,dst,dst -j DROP",
		"-p udp -m set --match-set l src,src,dst -j DROP", "-p tcp -m set ! --match-set u" + six + " src,dst,dst -m tcp --dport 2000 -m set --match-set t" + six + " src,dst,dst -j DROP",
	}
}

var threeChanges = [][]string{
	{"ipset add t 10.0.0.10,tcp:2000,10.5.1.1"}, {"ipset del t 10.0.0.10,udp:2000,10.5.1.1"}, {"ipset del u 10.0.0.10,tcp:53,10.5.1.1"}, {"ipset add u 10.0.0.10,udp:53,10.5.1.1/32"}, {"ipset del u6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::1"},
	{"ipset flush u6"}, {"ipset create x hash:ip,port,ip timeout 100", "ipset add x 10.0.0.10,tcp:80,10.5.1.1 timeout 1", "ipset swap t x"}, {"sleep 1200ms"}, {"ipset add t 10.0.0.10,tcp:80,10.5.1.1 timeout 0"},
	{"ipset create y hash:ip,port,net timeout 100", "ipset add y 10.0.0.10,tcp:80,10.5.1.0/25", "ipset add y 10.0.0.10,tcp:80,10.5.1.1 nomatch timeout 1", "ipset swap u y"}, {"sleep 1200ms"},
	{"ipset add u6 fd00::1:0:0:0:10,udp:53,2001:db8:4::/47"}, {"ipset flush t6"},
}

// manyIPs fill a set until it has to be made larger several times.
func manyIPs(set string, n int) string {
	var b strings.Builder
	b.WriteString("ipset restore\n")
	for i := range n {
		fmt.Fprintf(&b, "add %s 11.%d.%d.%d\n", set, i>>16, i>>8&255, i&255)
	}
	return b.String()
}

// ipsetTraps are the cases.
func ipsetTraps() []hand {
	all := join(some(), services())
	var out []hand
	for _, kind := range []string{"legacy", "nft"} {
		begin := append(to5(gw1, gw1v6), ipsetsBegin(), forwardChain("iptables-"+kind, "ACCEPT", ipsetRules("")...), forwardChain("ip6tables-"+kind, "ACCEPT", ipsetRules("6")...))
		h := hand{name: "rules live ipset " + kind, loads: true, why: "ipsets are asked where the kernel keeps them: every change holds with the next packet", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"},
			steps: []handStep{step(all, begin...)}}
		for _, do := range ipsetChanges {
			h.steps = append(h.steps, atOnce(all, do...))
		}
		h.steps = append(h.steps, atOnce(all, manyIPs("a", 5000)), atOnce(all, "ipset add a 10.3.4.5"), atOnce(all, "ipset flush a"))
		out = append(out, h)
	}
	three := hand{name: "rules live ipset three", loads: true, why: "ipsets with keys of two addresses and a port are asked where the kernel keeps them", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), threeBegin, forwardChain("iptables-legacy", "ACCEPT", threeRules("")...), forwardChain("ip6tables-nft", "ACCEPT", threeRules("6")...))...)}}
	for _, do := range threeChanges {
		three.steps = append(three.steps, atOnce(all, do...))
	}
	out = append(out, three)
	frozenSets := hand{name: "rules live ipset frozen", loads: true, why: "the same while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{
		step(some(), append(to5(gw1, gw1v6), ipsetsBegin(), forwardChain("iptables-legacy", "ACCEPT", ipsetRules("")...))...)}}
	for _, do := range ipsetChanges[:9] {
		frozenSets.steps = append(frozenSets.steps, frozen(some(), do...), step(some()))
	}
	return append(out, frozenSets)
}
