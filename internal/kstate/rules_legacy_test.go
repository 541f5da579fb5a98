// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// saved are the rules that a save command lists: by table and chain, without "-A CHAIN".
func saved(t *testing.T, ns netns, command string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	table := ""
	for _, line := range strings.Split(ns.output(t, command), "\n") {
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			out[table+" "+chain] = nil
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			out[table+" "+chain] = append(out[table+" "+chain], rule)
		}
	}
	return out
}

// compareSaved compares the text of every rule of a family with what a save command lists.
func compareSaved(t *testing.T, ns netns, family ruleset.Family, command string) *ruleset.Ruleset {
	t.Helper()
	want := saved(t, ns, command)
	r := readAll(t)
	chains := 0
	for i := range r.Ruleset.Tables {
		table := &r.Ruleset.Tables[i]
		if table.Family != family || table.Dialect != ruleset.Legacy {
			continue
		}
		for _, c := range table.Chains {
			chains++
			rules, ok := want[table.Name+" "+c.Name]
			if !ok || len(rules) != len(c.Rules) {
				t.Errorf("chain %s %s: %d rules, listed are %d", table.Name, c.Name, len(c.Rules), len(rules))
				continue
			}
			for n, rule := range c.Rules {
				listed := strings.TrimSpace(rules[n])
				if _, err := os.Stat("/etc/protocols"); err != nil {
					listed = strings.ReplaceAll(listed, "-p 47", "-p gre") // iptables has no names then
				}
				if got := strings.TrimSpace(rule.Text); got != listed {
					t.Errorf("%s %s %d\n  read   %s\n  listed %s", table.Name, c.Name, n+1, got, rules[n])
				}
			}
		}
	}
	if chains != len(want) {
		t.Errorf("%d chains, listed are %d", chains, len(want))
	}
	return &r.Ruleset
}

// legacyRules are options of iptables that are read back as iptables-save writes them.
const legacyRules = `
-s 10.0.0.0/8 -d 192.0.2.1/32 -i eth0 -o eth1 -p tcp -m tcp --sport 1024:65535 --dport 80 -j ACCEPT
! -s 10.0.0.0/8 ! -i eth+ ! -p udp -j DROP
-s 10.0.0.0/255.0.255.0 -j DROP
-i eth+ -j RETURN
-p tcp -m tcp --tcp-flags SYN,RST,ACK SYN -j DROP
-p tcp -m tcp ! --dport 22 ! --tcp-flags FIN,SYN FIN -j DROP
-p tcp -m tcp -j ACCEPT
-p udp -m udp --dport 53 -j ACCEPT
-p icmp -m icmp --icmp-type 8 -j ACCEPT
-p icmp -m icmp --icmp-type 3/4 -j ACCEPT
-p icmp -m icmp ! --icmp-type 0 -j ACCEPT
-p 47 -j ACCEPT
-f -j DROP
! -f -j DROP
-p tcp -m multiport --dports 80,443,1000:2000 -j ACCEPT
-p udp -m multiport ! --sports 1,2 -j ACCEPT
-p udp -m multiport --ports 53 -j ACCEPT
-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-m conntrack ! --ctstate INVALID,NEW,UNTRACKED -j ACCEPT
-m conntrack --ctstate NEW,DNAT -j ACCEPT
-m conntrack --ctdir REPLY -j ACCEPT
-m conntrack --ctstatus ASSURED -j ACCEPT
-m state --state RELATED,ESTABLISHED -j ACCEPT
-m mark --mark 0x10 -j ACCEPT
-m mark ! --mark 0x10/0xf0 -j ACCEPT
-m connmark --mark 0x1 -j ACCEPT
-m comment --comment word -j ACCEPT
-m comment --comment "two words" -j ACCEPT
-m addrtype --dst-type LOCAL -j ACCEPT
-m addrtype ! --src-type UNICAST,LOCAL -j ACCEPT
-m iprange --src-range 192.0.2.1-192.0.2.9 -j ACCEPT
-m iprange ! --dst-range 192.0.2.1-192.0.2.9 -j ACCEPT
-m mac --mac-source 00:11:22:33:44:55 -j ACCEPT
-m length --length 100:200 -j ACCEPT
-m pkttype --pkt-type broadcast -j ACCEPT
-m dscp --dscp 0x2e -j ACCEPT
-m tos --tos 0x10/0x3f -j ACCEPT
-m ttl --ttl-eq 5 -j ACCEPT
-m ttl --ttl-lt 5 -j ACCEPT
-m physdev --physdev-in p0 -j ACCEPT
-m physdev ! --physdev-in veth+ -j ACCEPT
-m physdev --physdev-is-bridged -j ACCEPT
-m physdev --physdev-in p0 --physdev-out p1 --physdev-is-bridged -j DROP
-m physdev --physdev-is-in --physdev-is-out -j DROP
-m policy --dir in --pol none -j ACCEPT
-m policy --dir out --pol ipsec -j ACCEPT
-m policy --dir in --pol ipsec --reqid 1 --proto esp --mode tunnel --tunnel-dst 192.0.2.1 --tunnel-src 198.51.100.0/24 -j ACCEPT
-m policy --dir in --pol ipsec --strict --spi 0x10 --proto esp --next ! --reqid 2 -j ACCEPT
-m limit --limit 5/sec -j ACCEPT
-m limit --limit 10/min --limit-burst 3 -j ACCEPT
-m statistic --mode random --probability 0.50000000000 -j ACCEPT
-j USER
-g USER
-s 192.0.2.9/32
-j LOG --log-prefix "gone: "
-j REJECT --reject-with icmp-port-unreachable
-p tcp -j REJECT --reject-with tcp-reset
`

// legacyRestore is a script for iptables-restore with these rules, and some in the other tables.
func legacyRestore() string {
	restore := "*filter\n:USER - [0:0]\n"
	for _, r := range strings.Split(strings.TrimSpace(legacyRules), "\n") {
		restore += "-A FORWARD " + r + "\n"
	}
	return restore + `-A USER -j RETURN
COMMIT
*mangle
-A PREROUTING -j MARK --set-xmark 0x1/0xff
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A POSTROUTING -j DSCP --set-dscp 0x0a
-A POSTROUTING -j CLASSIFY --set-class 1:1f
-A POSTROUTING -j TOS --set-tos 0x10/0x3f
COMMIT
*raw
-A PREROUTING -j CT --notrack
COMMIT
*nat
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.2:8080
-A PREROUTING -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 8081
-A POSTROUTING -o eth0 -j MASQUERADE --random-fully
-A POSTROUTING -o eth1 -j SNAT --to-source 192.0.2.3-192.0.2.4
COMMIT
`
}

// TestLegacyRulesAsIPTablesPrintsThem loads rules with iptables-legacy and compares what is read of each with what
// iptables-legacy-save lists, for all tables.
func TestLegacyRulesAsIPTablesPrintsThem(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "iptables-legacy-restore <<'EOT'\n"+legacyRestore()+"EOT\niptables-legacy -P FORWARD DROP")
	r := compareSaved(t, ns, ruleset.IP4, "iptables-legacy-save")
	forward := r.Table(ruleset.IP4, "filter").Chain("FORWARD")
	if b := forward.Base; b.Hook != ruleset.Forward || b.Policy != ruleset.Drop || b.Priority != 0 || b.Counter == ruleset.NoCounter || len(b.Unknown) > 0 {
		t.Errorf("FORWARD: %+v", b)
	}
	if b := r.Table(ruleset.IP4, "nat").Chain("POSTROUTING").Base; b.Type != "nat" || b.Priority != 100 {
		t.Errorf("nat POSTROUTING: %+v", b)
	}
}

// TestLegacySteps looks at what rules of iptables mean, once in a legacy table and once by iptables-nft.
func TestLegacySteps(t *testing.T) {
	for _, six := range []bool{false, true} {
		command, family := "iptables", ruleset.IP4
		if six {
			command, family = "ip6tables", ruleset.IP6
		}
		cases := map[string]string{
			"-p tcp -m tcp -j ACCEPT":                                    "l4proto 6-6, not dport, count, accept",
			"-p tcp -m tcp --dport 80 -j ACCEPT":                         "l4proto 6-6, dport 50-50, count, accept",
			"-p tcp -m tcp --syn -j DROP":                                "l4proto 6-6, not dport, tcp flags&17 2-2, count, drop",
			"-p udp -m multiport --ports 53,60:70 -j DROP":               "l4proto 11-11, not dport, or sport 35-35 3c-46 or dport 35-35 3c-46, count, drop",
			"-p udp -m multiport ! --dports 53 -j DROP":                  "l4proto 11-11, not dport 35-35, count, drop",
			"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT":       "not ct state&6 0-0, count, accept",
			"-m conntrack ! --ctstate NEW -j ACCEPT":                     "ct state&8 0-0, count, accept",
			"-m conntrack --ctstate UNTRACKED,SNAT -j ACCEPT":            "not ct state&c0 0-0, count, accept",
			"-m conntrack --ctstate INVALID --ctdir REPLY -j ACCEPT":     "unknown xt match conntrack, count, accept",
			"-m conntrack --ctproto tcp --ctorigdstport 80:90 -j ACCEPT": "ct protocol 6-6, ct original proto-dst 50-5a, count, accept",
			"-m conntrack ! --ctproto udp ! --ctorigsrcport 80 -j DROP":  "not ct protocol 11-11, not ct original proto-src 50-50, count, drop",
			"-m conntrack --ctreplsrcport 80 -j ACCEPT":                  "unknown xt match conntrack, count, accept",
			"-m conntrack --ctstate ESTABLISHED --ctdir REPLY -j ACCEPT": "not ct state&2 0-0, ct direction 1-1, count, accept",
			"-m conntrack --ctexpire 6 -j ACCEPT":                        "unknown xt match conntrack, count, accept",
			"-m mark --mark 0x10/0xf0 -j MARK --set-xmark 0x1/0xff":      "mark&f0 10-10, count, set mark &ffffff00 ^1",
			"-m comment --comment c -j RETURN":                           "count, return",
			"-m limit --limit 5/min -j ACCEPT":                           "unknown xt match limit, count, accept",
			"-m string --algo bm --string x -j ACCEPT":                   "unknown xt match string, count, accept",
			"-i eth+ ! -o lo -j ACCEPT":                                  "iifname 65746800000000000000000000000000-657468ffffffffffffffffffffffffff, not oifname 6c6f0000000000000000000000000000-6c6f0000000000000000000000000000, count, accept",
			"-m mac --mac-source 00:11:22:33:44:55 -j DROP":              "ether saddr 1122334455-1122334455, count, drop",
			"-m pkttype --pkt-type multicast -j DROP":                    "pkttype 2-2, count, drop",
			"-m addrtype --dst-type LOCAL -j DROP":                       "fib daddr type 2-2, count, drop",
			"-m physdev --physdev-is-in ! --physdev-in a+ -j DROP":       "not physin 0-0, not physin 61000000000000000000000000000000-61ffffffffffffffffffffffffffffff, count, drop",
			"-m physdev --physdev-is-bridged --physdev-out a -j DROP":    "physout 61000000000000000000000000000000-61000000000000000000000000000000, not physout 0-0, count, drop",
			"-m physdev ! --physdev-is-bridged -j DROP":                  "none or not physout 0-0, count, drop",
			"-m policy --dir in --pol none -j DROP":                      "ipsec in 0-0, count, drop",
			"-m policy --dir out --pol ipsec --reqid 1 -j DROP":          "ipsec out 1-1, count, drop",
			"-m length --length 10:20 -j DROP":                           "length a-14, count, drop",
			"-m dscp --dscp 46 -j DROP":                                  "dsfield&fc b8-b8, count, drop",
			"-m devgroup --src-group 1 -j DROP":                          "iifgroup 1-1, count, drop",
			"-j LOG":                                                     "count, slow log",
			"-j REJECT":                                                  "count, slow reject",
			"-g U":                                                       "count, goto U",
		}
		if six {
			cases["-p ipv6-icmp -m icmp6 --icmpv6-type 128/0 -j DROP"] = "l4proto 3a-3a, icmp type-code 8000-8000, count, drop"
			cases["-s fd00::/8 -j DROP"] = "ip6 saddr fd000000000000000000000000000000-fdffffffffffffffffffffffffffffff, count, drop"
			cases["-m hl --hl-gt 5 -j DROP"] = "ttl 6-ff, count, drop"
			cases["-m addrtype --dst-type MULTICAST -j DROP"] = "ip6 daddr ff000000000000000000000000000000-ffffffffffffffffffffffffffffffff, count, drop"
			cases["-m addrtype --src-type UNICAST -j DROP"] = "not ip6 saddr 0-0 ffff00000000-ffffffffffff ff000000000000000000000000000000-ffffffffffffffffffffffffffffffff, count, drop"
			cases["-m addrtype ! --src-type UNSPEC -j DROP"] = "not ip6 saddr 0-0, count, drop"
			cases["-m addrtype --src-type LOCAL,ANYCAST,MULTICAST ! --dst-type LOCAL -j DROP"] = "ip6 saddr ff000000000000000000000000000000-ffffffffffffffffffffffffffffffff, fib saddr type 2-2 4-4, not fib daddr type 2-2, count, drop"
			cases["-m addrtype ! --src-type MULTICAST,UNREACHABLE -j DROP"] = "or not ip6 saddr ff000000000000000000000000000000-ffffffffffffffffffffffffffffffff or not fib saddr type 6-6 7-7 8-8 9-9, count, drop"
			cases["-m addrtype --src-type LOCAL --limit-iface-in -j DROP"] = "unknown xt match addrtype, count, drop"
		} else {
			cases["-m addrtype --src-type UNICAST,LOCAL ! --dst-type BROADCAST -j DROP"] = "fib saddr type 1-1 2-2, not fib daddr type 3-3, count, drop"
			cases["-p icmp -m icmp --icmp-type 3/4 -j DROP"] = "l4proto 1-1, icmp type-code 304-304, count, drop"
			cases["-p icmp -m icmp --icmp-type any -j DROP"] = "l4proto 1-1, not icmp type-code, count, drop"
			cases["! -s 10.0.0.0/8 -j DROP"] = "not ip saddr a000000-affffff, count, drop"
			cases["-f -j DROP"] = "not ip frag-off&1fff 0-0, count, drop"
			cases["-m ttl --ttl-lt 5 -j DROP"] = "ttl 0-4, count, drop"
			cases["-m iprange --src-range 192.0.2.1-192.0.2.9 -j DROP"] = "ip saddr c0000201-c0000209, count, drop"
		}
		for _, flavour := range []string{"legacy", "nft"} {
			t.Run(command+"-"+flavour, func(t *testing.T) {
				ns := namespace(t)
				ns.run(t, command+"-"+flavour+" -N U")
				for options, want := range cases {
					ns.run(t, fmt.Sprintf("%s-%s -F FORWARD; %s-%s -A FORWARD %s", command, flavour, command, flavour, options))
					rules := readAll(t).Ruleset.Table(family, "filter").Chain("FORWARD").Rules
					if len(rules) != 1 {
						t.Fatalf("%s: %d rules", options, len(rules))
					}
					got := steps(rules[0])
					if flavour == "nft" {
						got, want = asNative(got), asNative(want)
					}
					if got != want {
						t.Errorf("%s\n  got  %s\n  want %s", options, got, want)
					}
				}
			})
		}
	}
}

// asNative drops what legacy tables and iptables-nft write differently without meaning anything else: a test for presence that
// the next one implies, and the order of the protocol among the basic conditions.
func asNative(s string) string {
	s = strings.Replace(s, "not dport, tcp flags", "tcp flags", 1)
	s = strings.Replace(s, "unknown xt match limit", "unknown limit", 1)
	return s
}

// TestLegacyCounters reads counters of rules and policies, before and after packets.
func TestLegacyCounters(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link set lo up
		iptables-legacy -A OUTPUT -d 127.0.0.2 -j ACCEPT
		iptables-legacy -A OUTPUT -d 127.0.0.3`)
	ns.run(t, "ping -q -c 3 -i 0.01 -s 72 127.0.0.2 >/dev/null; ping -q -c 2 -i 0.01 -s 72 127.0.0.3 >/dev/null")
	r := readAll(t).Ruleset
	chain := r.Table(ruleset.IP4, "filter").Chain("OUTPUT")
	want := regexp.MustCompile(`\[(\d+):(\d+)\]`).FindStringSubmatch(ns.output(t, "iptables-legacy-save -c | grep ':OUTPUT'"))
	if c := r.Counters[chain.Base.Counter]; fmt.Sprint(c.Packets) != want[1] || fmt.Sprint(c.Bytes) != want[2] || c.Packets == 0 {
		t.Errorf("the policy counted %d packets, %d bytes; iptables says %v", c.Packets, c.Bytes, want)
	}
	for n, packets := range []uint64{3, 2} {
		var id ruleset.CounterID = ruleset.NoCounter
		for _, s := range chain.Rules[n].Steps {
			if c, ok := s.(ruleset.Count); ok {
				id = c.Counter
			}
		}
		if c := r.Counters[id]; c.Packets != packets || c.Bytes != 100*packets || c.At.Kind != ruleset.LegacyCounter {
			t.Errorf("rule %d: %+v", n+1, c)
		}
	}
}

// TestNothingIsCreated: reading must not make the kernel create a legacy table.
func TestNothingIsCreated(t *testing.T) {
	ns := namespace(t)
	if r := readAll(t); len(r.Ruleset.Tables) != 0 {
		t.Errorf("%d tables in a new namespace", len(r.Ruleset.Tables))
	}
	if left := ns.output(t, "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names"); left != "" {
		t.Errorf("tables were created: %s", left)
	}
}

// TestRealRuleSets reads what Docker and kube-proxy make, loaded with iptables-legacy and with iptables-nft.
func TestRealRuleSets(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"docker-20.10", "map[slow dnat:2 slow masquerade:3]"},
		{"docker-28.5", "map[slow dnat:1 slow masquerade:1]"},
		{"kube-proxy-1.36", "map[slow dnat:5 slow masquerade:3 unknown xt match statistic:2]"},
	} {
		for _, flavour := range []string{"legacy", "nft"} {
			t.Run(c.name+"-"+flavour, func(t *testing.T) {
				b, err := os.ReadFile("testdata/rules/" + c.name + ".iptables")
				if err != nil {
					t.Fatal(err)
				}
				// The accounting objects of kube-proxy need a tool that is rarely there.
				script := regexp.MustCompile(`-m nfacct --nfacct-name +\S+ `).ReplaceAllString(string(b), "")
				ns := namespace(t)
				ns.run(t, "iptables-"+flavour+"-restore <<'EOT'\n"+script+"\nEOT")
				var r *ruleset.Ruleset
				if flavour == "legacy" {
					r = compareSaved(t, ns, ruleset.IP4, "iptables-legacy-save")
				} else {
					r = &readAll(t).Ruleset
				}
				want, rules, trouble := strings.Count(script, "\n-A "), 0, map[string]int{}
				for _, table := range r.Tables {
					for _, chain := range table.Chains {
						rules += len(chain.Rules)
						for _, rule := range chain.Rules {
							for _, w := range troubles(rule) {
								trouble[w]++
							}
						}
					}
				}
				if rules != want {
					t.Errorf("%d rules, want %d", rules, want)
				}
				if got := fmt.Sprint(trouble); got != c.want {
					t.Errorf("left to Linux: %s, want %s", got, c.want)
				}
			})
		}
	}
}

// TestRouteBack: -m rpfilter, which Linux takes at prerouting alone.
func TestRouteBack(t *testing.T) {
	ns := namespace(t)
	for _, tool := range []string{"ip6tables-legacy", "ip6tables-nft", "iptables-legacy"} {
		family := ruleset.IP6
		if tool == "iptables-legacy" {
			family = ruleset.IP4
		}
		for options, want := range map[string]string{
			"-m rpfilter":                                 "fib saddr . iif oif 1-1, count, drop",
			"-m rpfilter --validmark --invert":            "not fib saddr . iif oif 1-1, count, drop",
			"-m rpfilter --loose --accept-local --invert": "not fib saddr oif 1-1, count, drop",
		} {
			ns.run(t, fmt.Sprintf("%s -t raw -F PREROUTING; %s -t raw -A PREROUTING %s -j DROP", tool, tool, options))
			tables := readAll(t).Ruleset
			ns.run(t, tool+" -t raw -F")
			table := tables.Table(family, "raw")
			for i := range tables.Tables { // legacy and nft may both have one of the name
				if x := &tables.Tables[i]; x.Family == family && x.Name == "raw" && len(x.Chain("PREROUTING").Rules) > 0 {
					table = x
				}
			}
			rule := table.Chain("PREROUTING").Rules[0]
			if got := steps(rule); got != want || !strings.Contains(rule.Text, options) {
				t.Errorf("%s %s\n  got  %s (%s)\n  want %s", tool, options, got, rule.Text, want)
			}
		}
	}
}
