// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
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
	{"ipset create z hash:ip", "ipset add z 10.0.0.10", "ipset add n 10.0.0.10 nomatch", "ipset add n 10.0.0.0/24", "ipset add l n", "ipset add l z after n"}, // an exception in one set says nothing of the next one
	{"ipset create k hash:ip counters", "ipset add k 10.0.0.10", "ipset swap a k"}, {"ipset swap a k", "ipset destroy k"},                                     // what counts in its elements is Linux's from the first packet on
	{"ipset flush l", "ipset destroy z", "ipset del n 10.0.0.10", "ipset del n 10.0.0.0/24", "ipset add s 53"}, {"ipset add b 10.0.0.10"}, {"ipset del b 10.0.0.10"}, {"ipset del s 80"}, {"ipset flush p"}, {"ipset add p 10.5.1.1,tcp:80"}, {"ipset add q 10.5.1.1,tcp:53 -exist"},
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

// ifaceBegin are sets by networks and interfaces, and by the addresses of frames. In i and i6 one network hides a wider one, whatever interface that is for; elements with physdev are for nobody.
func ifaceBegin() string {
	own := hostMAC(0, 0).String()
	return "ipset restore\n" + strings.Join([]string{
		"create i hash:net,iface", "add i 10.0.0.0/16,p0", "add i 10.3.4.0/24,p1", "add i 10.3.0.0/16,p0", "add i 10.3.0.0/16,physdev:p0",
		"create o hash:net,iface", "add o 10.1.0.0/16,p1", "add o 10.1.7.0/24,p1 nomatch", "add o 10.5.0.0/16,p wildcard", "add o 10.5.1.1,p1", "add o 10.2.0.0/15,p1",
		"create i6 hash:net,iface family inet6", "add i6 fd00::/16,p0", "add i6 2001:db8:3::/48,p1", "add i6 2001:db8::/32,p0",
		"create o6 hash:net,iface family inet6", "add o6 2001:db8:1::/48,p1", "add o6 2001:db8:5::/48,p wildcard", "add o6 2001:db8:1::9,p1 nomatch",
		"create m hash:net,iface", "create l list:set", "add l i", "add l m", "add l i6",
		"create b bitmap:ip,mac range 10.0.0.0/24", "add b 10.0.0.10," + own, "add b 10.0.0.11", "create c bitmap:ip,mac range 10.3.0.0/16 timeout 0", "add c 10.3.4.5," + own, "",
	}, "\n")
}

func ifaceRules(six string) []string {
	out := []string{
		"-p udp -m set --match-set i" + six + " src,src -j DROP", "-p tcp -m set --match-set o" + six + " dst,dst -j DROP", "-p icmp -m set --match-set l src,src -j DROP",
		"-p tcp -m tcp --dport 53 -m set ! --match-set o" + six + " dst,dst -j DROP", "-p udp -m udp --dport 80 -m set ! --match-set i" + six + " src,dst -j DROP",
	}
	if six == "" {
		out = append(out, "-p tcp -m tcp --dport 80 -m set --match-set b src,src -j DROP", "-p udp -m set --match-set c src,src -j DROP", "-p sctp -m set ! --match-set b src,dst -j DROP")
	}
	return out
}

// ifaceChanges are changes of them. That of p0's name is in force once shunt knows it.
var ifaceChanges = [][]string{
	{"ipset add i 10.0.0.0/24,p1"}, {"ipset add i 10.0.0.0/24,p0"}, {"ipset del i 10.0.0.0/24,p1"}, {"ipset add i 10.0.0.0/24,p0 nomatch -exist"}, {"ipset del i 10.0.0.0/24,p0"}, {"ipset del i 10.3.4.0/24,p1"}, {"ipset add i 0.0.0.0/0,p0"},
	{"ipset add i 10.0.0.0/28,pqrstuvwxyzabcd"}, {"ipset add o 10.1.2.0/24,p12"}, {"ipset flush i6"}, {"ipset add i6 ::/0,p0"}, {"ipset add o6 2001:db8:5::1,p0"}, {"ipset add o 10.5.1.0/24,p2 wildcard"}, {"ipset del o 10.5.1.1,p1"},
	{"ipset del o 10.5.1.0/24,p2"}, {"ipset create t hash:net,iface timeout 100", "ipset add t 10.0.0.0/16,p0", "ipset add t 10.0.0.10,p0 nomatch timeout 1", "ipset swap i t"}, {"sleep 1200ms"}, {"ipset add i 10.0.0.10,p1 timeout 0"},
	{"ipset add m 10.0.0.0/8,p0"}, {"ipset swap m o"}, {"ipset flush l"}, {"ipset del b 10.0.0.10"}, {"ipset add b 10.0.0.10"}, {"ipset del b 10.0.0.10", "ipset add b 10.0.0.10,02:00:00:00:00:99"},
	{"ipset create d bitmap:ip,mac range 10.0.0.0/24", "ipset add d 10.0.0.10," + portMAC(0).String(), "ipset swap b d"}, {"ipset del c 10.3.4.5"}, {"ipset add c 10.3.4.5 timeout 1"},
}

// fromNobody are packets whose frames say 00:00:00:00:00:00 for their sender, which no set holds and bitmap:ip,mac's elements without an address do not take.
func fromNobody() (out []Packet) {
	for _, pair := range [][2]string{{h0, "10.1.2.3"}, {"10.0.0.11", "10.2.9.9"}, {"10.3.4.5", "10.5.1.1"}, {h0v6, "2001:db8:1::9"}, {"2001:db8:3::4", "2001:db8:5::1"}} {
		f := flowOf(0, pair[0], pair[1])
		for _, dport := range []uint16{53, 80, 2000} {
			f.DstPort = dport
			for _, frame := range [][]byte{f.UDP("nobody"), f.TCP("S", 1, ""), f.Echo(1, 1, "")} {
				out = append(out, in(0, lab.Edited(frame, lab.L2(6, 0, 0, 0, 0, 0, 0)))...)
				out = append(out, in(0, lab.Edited(frame, lab.L2(6, hostMAC(0, 1)...)))...)
			}
		}
	}
	return out
}

// markBegin are sets by marks, and hashes by the addresses of frames, which not every kernel has.
func markBegin() string {
	own := hostMAC(0, 0).String()
	return "ipset restore\n" + strings.Join([]string{
		"create k hash:ip,mark", "add k 10.0.0.10,0x11", "add k 10.3.4.5,0", "create k6 hash:ip,mark family inet6 markmask 0xf0", "add k6 fd00::1:0:0:0:10,0x10", "add k6 2001:db8:3::4,0x0",
		"create e hash:mac", "add e " + own, "create f hash:ip,mac", "add f 10.3.4.5," + own, "add f 10.0.0.10," + hostMAC(0, 1).String(), "create f6 hash:ip,mac family inet6", "add f6 2001:db8:3::4," + own,
		"add f6 fd00::1:0:0:0:10," + hostMAC(0, 1).String(), "create g hash:mac", "create l list:set", "add l k", "add l k6", "add l f", "add l f6", "add l g", "",
	}, "\n")
}

func markRules(six string) []string {
	return []string{
		"-p udp -m udp --dport 2000 -m set --match-set k" + six + " src,src -j DROP", "-p udp -m udp --sport 53 -m set --match-set l src,src -j DROP", "-p tcp -m set --match-set f" + six + " src,src -j DROP",
		"-p tcp -m tcp --dport 80 -m set --match-set e src -j DROP", "-p tcp -m tcp --dport 53 -m set ! --match-set g src -j DROP", "-p udp -m udp --dport 80 -m set --match-set f" + six + " dst,dst -j DROP",
		"-p udp -m udp --dport 53 -m set --match-set e dst -j DROP",
	}
}

var markChanges = [][]string{
	{"ipset add k 10.0.0.10,0x12"}, {"ipset del k 10.0.0.10,0x11"}, {"ipset flush k6"}, {"ipset add k6 fd00::1:0:0:0:10,0x1f"}, {"ipset add g " + hostMAC(0, 0).String()}, {"ipset del e " + hostMAC(0, 0).String(), "ipset add e " + portMAC(0).String()},
	{"ipset add f 10.0.0.10," + hostMAC(0, 0).String()}, {"ipset add f6 fd00::1:0:0:0:10," + hostMAC(0, 0).String()}, {"ipset add f 10.5.1.1," + portMAC(0).String()}, {"ipset flush g"}, {"ipset add l e"},
	{"ipset create t hash:ip,mac timeout 100", "ipset add t 10.0.0.10," + hostMAC(0, 0).String() + " timeout 90", "ipset swap f t"}, {"ipset create u bitmap:ip,mac range 10.0.0.0/24", "ipset add u 10.0.0.10," + hostMAC(0, 0).String(), "ipset swap f u"},
	{"ipset create v hash:ip,mark markmask 0xf comment", "ipset add v 10.0.0.10,0xf1", "ipset swap k v"}, {"ipset create w hash:ip,mark markmask 0xf0 forceadd", "ipset add w 10.0.0.10,0x1f", "ipset swap k w"},
}

// netsBegin are sets whose keys are two networks, alone or with a port, which not every kernel has. The first network's length counts before the second's: in v and v6 an exception of a
// longer first hides what has a shorter one, and in w one with a longer second does so for its own first only.
var netsBegin = "ipset restore\n" + strings.Join([]string{
	"create v hash:net,net", "add v 10.0.0.0/24,10.5.0.0/16", "add v 10.0.0.10,10.5.1.0/24 nomatch", "add v 10.0.0.0/16,10.5.1.1", "add v 10.3.0.0/16,10.0.0.0/8", "add v 10.0.0.0/24,10.1.0.0/16",
	"create r hash:net,net", "add r 10.5.0.0/16,10.0.0.0/24", "add r 10.1.2.0/23,10.0.0.0/8", "add r 10.1.2.3,10.0.0.10 nomatch",
	"create w hash:net,port,net", "add w 10.0.0.0/24,tcp:80,10.5.0.0/16", "add w 10.0.0.10,tcp:53,10.5.0.0/16", "add w 10.0.0.10,tcp:53,10.5.1.1 nomatch", "add w 10.0.0.0/8,tcp:53,10.5.1.1",
	"add w 10.0.0.0/16,icmp:8/0,10.0.0.0/9", "add w 10.0.0.8/30,sctp:53,10.5.1.0/25", "add w 10.0.0.10,47:0,10.0.0.0/8",
	"create v6 hash:net,net family inet6", "add v6 fd00::/16,2001:db8:5::/48", "add v6 fd00::1:0:0:0:10,2001:db8:5::/64 nomatch", "add v6 2001:db8:3::/48,2001:db8::/32", "add v6 fd00::/64,2001:db8:1::9",
	"create r6 hash:net,net family inet6", "add r6 2001:db8:5::/48,fd00::/16", "add r6 2001:db8:1::9,fd00::/8 nomatch", "add r6 2001:db8:1::/48,fd00::1:0:0:0:10",
	"create w6 hash:net,port,net family inet6", "add w6 fd00::/16,tcp:80,2001:db8:5::/48", "add w6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::/48", "add w6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::1 nomatch",
	"add w6 fd00::/8,47:0,2001:db8::/32", "add w6 fd00::/16,icmpv6:128/0,2001:db8::/33", "create l list:set", "add l v", "add l w", "add l v6", "add l w6", "",
}, "\n")

func netsRules(six string) []string {
	return []string{
		"-p udp -m set --match-set v" + six + " src,dst -j DROP", "-p udp -m udp --sport 53 -m set --match-set r" + six + " dst,src -j DROP", "-p tcp -m set --match-set w" + six + " src,dst,dst -j DROP",
		"-m set --match-set l src,dst,dst -j DROP", "-p tcp -m set ! --match-set v" + six + " src,dst -m tcp --dport 2000 -m set ! --match-set w" + six + " dst,src,src -j DROP",
		"-m set --match-set r" + six + " dst,src -j DROP",
	}
}

// byLength are elements of two networks, of a length each, in which no packet is.
func byLength(do, set, net string, from, to int) string {
	var b strings.Builder
	b.WriteString("ipset restore\n")
	for n := from; n <= to; n++ {
		fmt.Fprintf(&b, "%s %s %s/%d,%s/%d\n", do, set, net, n, net, n)
	}
	return b.String()
}

// netsChanges are changes of them: of elements, of the lengths that there are, and beyond the number of pairs of lengths that is tried here, and back.
var netsChanges = [][]string{
	{"ipset add v 10.0.0.8/29,10.4.0.0/15 nomatch"}, {"ipset del v 10.0.0.10,10.5.1.0/24"}, {"ipset del v 10.0.0.8/29,10.4.0.0/15"}, {"ipset add v 0.0.0.0/1,0.0.0.0/1"}, {"ipset del v 0.0.0.0/1,0.0.0.0/1"}, {"ipset flush v6"},
	{"ipset add v6 8000::/1,2000::/3"}, {"ipset add v6 fd00::1:0:0:0:10,2001:db8:5::1 nomatch"}, {"ipset del w 10.0.0.10,tcp:53,10.5.1.1"}, {"ipset add w 10.0.0.10/31,udp:2000,10.5.1.1"}, {"ipset del w 10.0.0.0/16,icmp:8/0,10.0.0.0/9"},
	{"ipset del w6 fd00::1:0:0:0:10,tcp:53,2001:db8:5::1", "ipset add w6 fc00::/7,tcp:2000,2001:db8:5::/47"}, {"ipset del r 10.1.2.3,10.0.0.10", "ipset del r6 2001:db8:1::9,fd00::/8"}, {"ipset flush w"}, {"ipset flush r"},
	{"ipset create x hash:net,net", "ipset add x 10.0.0.10,10.0.0.0/8", "ipset swap v x"}, {"ipset create y hash:net,port,net comment", "ipset add y 10.0.0.0/8,udp:2000,10.5.1.0/26", "ipset swap w y"},
	{byLength("add", "v6", "4000::", 8, 27)}, {byLength("add", "v", "64.0.0.0", 8, 31)}, {byLength("add", "v6", "4000::", 28, 47) + "add v6 fd00::/16,2001:db8:5::/127\n"}, {byLength("del", "v6", "4000::", 8, 27)}, {"ipset flush v6"},
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
	byIface := hand{name: "rules live ipset iface", loads: true, why: "ipsets by interface and by the address of the frame are asked where the kernel keeps them", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}}
	framed := join(all, fromNobody())
	byIface.steps = append(byIface.steps, step(framed, append(to5(gw1, gw1v6), ifaceBegin(), forwardChain("iptables-legacy", "ACCEPT", ifaceRules("")...), forwardChain("ip6tables-nft", "ACCEPT", ifaceRules("6")...),
		restore("iptables-nft", "mangle", ":PREROUTING ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A PREROUTING -m set --match-set o dst,dst -j DROP", "-A POSTROUTING -p udp -m udp --sport 53 -m set --match-set i src,src -j DROP"))...))
	for _, do := range ifaceChanges {
		byIface.steps = append(byIface.steps, atOnce(framed, do...))
	}
	swap := []string{"ip link set p3 name q3", "ip link set p0 name p3", "ip link set q3 name p0"}
	byIface.steps = append(byIface.steps, step(framed, append([]string{"ipset flush i", "ipset flush i6", "ipset add i 10.0.0.0/16,p0", "ipset add i6 fd00::/16,p3"}, swap...)...), step(framed, swap...))
	byMark := hand{name: "rules live ipset mark", needs: "ipset hash:ip,mark", loads: true, why: "ipsets by mark, and hashes by the address of the frame, are asked where the kernel keeps them, or left to Linux", slow: Excuse{Rules: true}}
	if slices.Contains(ruleset.LiveTypes, "hash:ip,mark") {
		byMark.reasons = []string{drop, "fast"}
	}
	byMark.steps = append(byMark.steps, step(all, append(to5(gw1, gw1v6), markBegin(), forwardChain("iptables-legacy", "ACCEPT", markRules("")...), forwardChain("ip6tables-nft", "ACCEPT", markRules("6")...),
		restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -p udp -j MARK --set-xmark 0x10/0xff", "-A FORWARD -p udp -m set ! --match-set l src,src -j MARK --set-xmark 0x1/0xf", "-A FORWARD -p udp -m set ! --match-set k src,src -j MARK --set-xmark 0x1/0x1"),
		restore("ip6tables-nft", "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p udp -j MARK --set-xmark 0x1f/0xff"))...))
	for _, do := range markChanges {
		byMark.steps = append(byMark.steps, atOnce(all, do...))
	}
	// What has passed away before the first packet: nothing that ends while packets flow ends in both routers at once.
	byMark.steps = append(byMark.steps, step(all, "ipset create x hash:ip,mac timeout 90", "ipset add x 10.0.0.10,"+hostMAC(0, 0).String()+" timeout 1", "ipset swap f x", "sleep 2500ms"))
	out = append(out, byIface, byMark)
	byNets := hand{name: "rules live ipset nets", needs: "ipset hash:net,port,net", loads: true, why: "ipsets of two networks are asked where the kernel keeps them, up to some number of pairs of prefix lengths", slow: Excuse{Rules: true}, reasons: []string{drop, "fast", "netfilter-rule"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), netsBegin, forwardChain("iptables-legacy", "ACCEPT", netsRules("")...), forwardChain("ip6tables-nft", "ACCEPT", netsRules("6")...))...)}}
	for _, do := range netsChanges {
		byNets.steps = append(byNets.steps, atOnce(all, do...))
	}
	// What has passed away before the first packet, as above; and sets that cut addresses, which kernels before 6.3 refuse.
	byNets.steps = append(byNets.steps, step(all, "ipset create z hash:net,net timeout 90", "ipset add z 10.0.0.0/24,10.5.0.0/16", "ipset add z 10.0.0.10,10.5.1.1 nomatch timeout 1", "ipset swap v z", "sleep 2500ms"))
	cut := hand{name: "rules live ipset nets cut", needs: "ipset hash:net,net netmask 24", why: "what ipsets of two networks cut addresses to", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{step(all, append(to5(gw1, gw1v6),
		"ipset create c hash:net,net bitmask 255.255.0.255", "ipset add c 10.0.0.10,10.5.0.0/16", "ipset create c6 hash:net,net family inet6 netmask 64", "ipset add c6 fd00::1:0:0:0:10,2001:db8:5::/48",
		forwardChain("iptables-legacy", "ACCEPT", "-p udp -m set --match-set c src,dst -j DROP"), forwardChain("ip6tables-nft", "ACCEPT", "-p udp -m set --match-set c6 src,dst -j DROP"))...),
		atOnce(all, "ipset add c 10.0.0.10,10.5.1.1 nomatch", "ipset add c6 fd00::/15,2001:db8:1::/64"), atOnce(all, "ipset flush c", "ipset flush c6")}}
	out = append(out, byNets, cut)
	frozenSets := hand{name: "rules live ipset frozen", loads: true, why: "the same while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{
		step(some(), append(to5(gw1, gw1v6), ipsetsBegin(), forwardChain("iptables-legacy", "ACCEPT", ipsetRules("")...))...)}}
	for _, do := range ipsetChanges[:9] {
		frozenSets.steps = append(frozenSets.steps, frozen(some(), do...), step(some()))
	}
	return append(out, frozenSets)
}
