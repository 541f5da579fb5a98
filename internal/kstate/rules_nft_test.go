// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// output runs shell lines in the namespace and gives what they print.
func (ns netns) output(t *testing.T, lines string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--net=/run/netns/"+string(ns), "bash", "-euc", lines).Output()
	if err != nil {
		t.Fatalf("%s: %v", lines, err)
	}
	return string(out)
}

func readAll(t *testing.T) *RuleReading {
	t.Helper()
	r := ReadRules(nil)
	for _, f := range r.Faults {
		t.Errorf("not read: %s: %s", f.Part, f.Err)
	}
	return r
}

// troubles names every part of a rule that shunt does not model, and everything that it leaves to the kernel.
func troubles(r ruleset.Rule) (out []string) {
	for _, s := range r.Steps {
		switch s := s.(type) {
		case ruleset.Unknown:
			out = append(out, "unknown "+s.Name)
		case ruleset.Slow:
			out = append(out, "slow "+s.Name)
		}
	}
	return out
}

// nftRules are the rules that nft itself lists, by handle, without the numbers of counters.
func nftRules(t *testing.T, ns netns) map[string]string {
	t.Helper()
	out := map[string]string{}
	counters := regexp.MustCompile(`counter packets \d+ bytes \d+`)
	table, depth := "", 0
	var rule string
	for _, line := range strings.Split(ns.output(t, "nft -a list ruleset"), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "table ") {
			table, depth = strings.Join(strings.Fields(line)[1:3], " "), 0
		}
		text, handle, ok := strings.Cut(line, " # handle ")
		if strings.HasSuffix(text, "{") && !strings.Contains(text, "vmap") && !strings.Contains(text, "map {") {
			depth++
			rule = ""
			continue
		}
		if !ok { // a long set is printed over several lines
			rule += text + " "
			if text == "}" || strings.HasPrefix(text, "type ") || strings.HasPrefix(text, "comment ") {
				rule = ""
			}
			continue
		}
		out[table+" "+handle] = counters.ReplaceAllString(rule+text, "counter")
		rule = ""
	}
	return out
}

// TestNFTRulesAsNFTPrintsThem loads rules and compares what is read of each with what nft lists.
func TestNFTRulesAsNFTPrintsThem(t *testing.T) {
	ns := namespace(t)
	rules := strings.Split(strings.TrimSpace(nativeRules), "\n")
	ns.run(t, "nft -f - <<'EOT'\n"+nativeTable(nativeRules)+"\nEOT")
	listed := nftRules(t, ns)
	read := readAll(t)
	table := read.Ruleset.Table(ruleset.Inet, "f")
	if table == nil {
		t.Fatal("the table was not read")
	}
	chain := table.Chain("forward")
	if b := chain.Base; b == nil || b.Hook != ruleset.Forward || b.Policy != ruleset.Drop || b.Type != "filter" || len(b.Unknown) > 0 {
		t.Errorf("chain forward: %+v", chain.Base)
	}
	if len(chain.Rules) != len(rules) {
		t.Fatalf("%d rules, want %d", len(chain.Rules), len(rules))
	}
	for i, r := range chain.Rules {
		want := listed[fmt.Sprintf("inet f %d", r.Handle)]
		if r.Text != want && !sameRule(t, ns, r, want) {
			t.Errorf("rule %d %q\n  read  %s\n  nft   %s", i+1, rules[i], r.Text, want)
		}
	}
}

// sameRule says whether another version's spelling of a rule is the same rule: nft takes the text that was read, and what it makes of it is
// the rule that it lists.
func sameRule(t *testing.T, ns netns, rule ruleset.Rule, listed string) bool {
	t.Helper()
	t.Logf("this nft writes %q as %q", rule.Text, listed)
	ns.run(t, "nft add chain inet f spelling; nft flush chain inet f spelling; nft -f - <<'EOT'\nadd rule inet f spelling "+rule.Text+"\nEOT")
	again := readAll(t).Ruleset.Table(ruleset.Inet, "f").Chain("spelling").Rules[0]
	return again.Text == rule.Text && nftRules(t, ns)[fmt.Sprintf("inet f %d", again.Handle)] == listed
}

// nativeTable is a table with the rules in its forward chain, and the sets that they name.
func nativeTable(rules string) string {
	return `table inet f {
		counter c { }
		set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.1.1-192.168.1.9, 203.0.113.5 } }
		set v6 { type ipv6_addr . inet_service; flags interval; elements = { 2001:db8::/32 . 80-90 } }
		set d { type ipv4_addr; size 128; flags dynamic,timeout; timeout 1m; }
		map m { type ipv4_addr . inet_service : verdict; elements = { 192.0.2.4 . 80 : drop, 192.0.2.5 . 81 : jump u } }
		chain u { }
		chain forward { type filter hook forward priority filter; policy drop;
		` + rules + `
		}
		}`
}

// nativeRules are rules that are read back as nft writes them.
const nativeRules = `
ct state established,related accept
ct state invalid counter drop
ct state vmap { invalid : drop, established : accept, related : accept }
ct status dnat accept
ct direction reply accept
meta nfproto ipv6 fib saddr . mark . iif oif missing drop
ct mark 0x00000010 accept
ct mark & 0x000000f0 == 0x00000010 accept
ip saddr 10.0.0.0/8 ip daddr 10.1.2.3 tcp dport { 80, 443, 1000-2000 } counter accept
ip saddr 10.64.0.0/10 drop
ip saddr != 192.0.2.0/24 drop
ip saddr 192.0.2.1-192.0.2.9 drop
ip saddr 192.0.2.1 ip daddr 192.0.2.2 drop
ip saddr { 192.0.2.1, 192.0.2.7 } drop
ip saddr @s drop
ip saddr != @s accept
ip6 saddr fe80::/10 accept
ip6 daddr 2001:db8::1 tcp dport 22 accept
ip6 saddr . tcp dport @v6 accept
ip daddr . tcp dport vmap @m
iifname "eth*" oifname != "lo" accept
iifname { "eth0", "eth1" } accept
meta mark 0x00000010 drop
meta mark & 0x0000ff00 == 0x00001200 drop
meta mark != 0x00000000 drop
meta mark set 0x00000007
meta mark set meta mark & 0xfffffff0 | 0x00000003
meta mark set meta mark | 0x00000010
ip dscp 0x08 accept
ip dscp set 0x10
ip6 dscp set 0x2e
ip6 dscp 0x05 ip6 flowlabel 3 accept
ip protocol 6 accept
ip protocol != 17 drop
meta l4proto 17 accept
meta l4proto { 6, 17 } accept
meta nfproto ipv4 accept
meta pkttype broadcast drop
tcp flags syn / fin,syn,rst,ack accept
tcp flags syn,rst drop
tcp sport != 1024-65535 drop
tcp dport > 1024 drop
udp dport 53 accept
udp dport >= 5000 accept
udp sport 67 udp dport 68 accept
sctp dport 5000 accept
th dport 443 accept
icmp type echo-request accept
icmp type { echo-reply, echo-request } accept
icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
ip ttl < 5 drop
ip6 hoplimit 255 accept
ip frag-off & 8191 != 0 drop
ip length 100-200 accept
meta length > 1400 drop
ether saddr 00:11:22:33:44:55 accept
fib daddr type local accept
counter name "c" accept
limit rate 5/second burst 6 packets accept
limit rate over 10/minute burst 5 packets drop
tcp dport 22 ct count over 3 drop
log prefix "dropped: " drop
meta mark 0x00000001 reject
tcp dport 25 reject with tcp reset
ip saddr 192.0.2.66 jump u comment "a word"
goto u
notrack
quota over 1000 bytes drop
ip saddr 192.0.2.77 return
drop
`

// TestNFTSteps looks at the steps of rules with each kind of expression.
func TestNFTSteps(t *testing.T) {
	ns := namespace(t)
	var sets []ruleset.Set
	rule := func(text string) ruleset.Rule {
		t.Helper()
		ns.run(t, "nft -f - <<'EOT'\nflush ruleset\ntable inet f {\n chain forward { type filter hook forward priority 0;\n"+text+"\n }\n }\nEOT")
		read := readAll(t).Ruleset
		sets = read.Sets
		chain := read.Table(ruleset.Inet, "f").Chain("forward")
		if len(chain.Rules) != 1 {
			t.Fatalf("%s: %d rules", text, len(chain.Rules))
		}
		return chain.Rules[0]
	}
	for _, c := range []struct {
		rule string
		want string
	}{
		{"ip saddr 10.0.0.0/8 drop", "nfproto 2-2, ip saddr a000000-affffff, drop"},
		{"ip saddr 10.64.0.0/10 drop", "nfproto 2-2, ip saddr a400000-a7fffff, drop"},
		{"ip6 saddr fe80::/10 drop", "nfproto a-a, ip6 saddr fe800000000000000000000000000000-febfffffffffffffffffffffffffffff, drop"},
		{"tcp dport 22-23 accept", "l4proto 6-6, dport 16-17, accept"},
		{"tcp dport != 22 accept", "l4proto 6-6, not dport 16-16, accept"},
		{"ip saddr 192.0.2.1 ip daddr != 192.0.2.2 drop", "nfproto 2-2, ip saddr c0000201-c0000201, not ip daddr c0000202-c0000202, drop"},
		{"tcp sport 1 tcp dport 2 drop", "l4proto 6-6, sport 1-1, dport 2-2, drop"},
		{"ct state established accept", "not ct state&2 0-0, accept"},
		{"ip dscp ef accept", "nfproto 2-2, dsfield&fc b8-b8, accept"},
		{"ip6 dscp ef accept", "nfproto a-a, dsfield&fc b8-b8, accept"},
		{"ip6 dscp != ef accept", "nfproto a-a, not dsfield&fc b8-b8, accept"},
		{"icmp type echo-request accept", "nfproto 2-2, l4proto 1-1, icmp type-code&ff00 800-800, accept"},
		{"icmp code 3 accept", "nfproto 2-2, l4proto 1-1, icmp type-code&ff 3-3, accept"},
		{"icmpv6 type { 133-136 } accept", "nfproto a-a, l4proto 3a-3a, icmp type-code&ff00 8500-8800, accept"},
		{"tcp flags & (syn|ack) == syn accept", "l4proto 6-6, tcp flags&12 2-2, accept"},
		{"meta mark 0x100-0x1ff accept", "mark 100-1ff, accept"},
		{"meta mark set 7", "set mark &0 ^7"},
		{"meta mark set ct mark", "not ct mark, set mark &0 ^0 ^ct mark&ffffffff"},
		{"meta mark set ct mark & 0xff", "not ct mark, set mark &0 ^0 ^ct mark&ff"},
		{"meta mark set ip saddr map { 10.0.0.1 : 1, 10.1.0.0/16 : 0x2000003 }", "nfproto 2-2, set mark ip saddr map a000001-a000001=1 a010000-a01ffff=2000003"},
		{"meta mark set ip saddr . udp dport map { 10.0.0.1 . 53 : 7 }", "nfproto 2-2, l4proto 11-11, set mark ip saddr dport map a000001-a000001.35-35=7"},
		{"meta mark set meta mark map { 1 : 2 }", "set mark mark map 1-1=2"},
		{"meta priority set tcp dport map { 80 : 1:7 }", "l4proto 6-6, set priority dport map 50-50=10007"},
		{"meta priority set 1:10 counter", "set priority &0 ^10010, count"},
		{"meta priority set none", "set priority &0 ^0"},
		{"ct mark set tcp dport map { 80 : 7 }", "l4proto 6-6, slow ct mark set"},
		{"ip dscp set cs2", "nfproto 2-2, set dsfield &3 ^40"},
		{"ip6 dscp set cs2", "nfproto a-a, set dsfield &3 ^40"},
		{"ip ttl set 5", "nfproto 2-2, slow payload set"},
		{"fib daddr type local accept", "fib daddr type 2-2, accept"},
		{"fib daddr type { local, broadcast } accept", "lookup fib daddr type, accept"},
		{"fib daddr type != { local, broadcast } accept", "not lookup fib daddr type, accept"},
		{"fib saddr type != local accept", "not fib saddr type 2-2, accept"},
		{"fib saddr type vmap { local : drop, unicast : accept }", "vmap fib saddr type"},
		{"fib saddr type . iifname { local . \"e0\" } drop", "lookup fib saddr type iifname, drop"},
		{"meta l4proto . fib daddr type vmap { tcp . local : drop }", "vmap l4proto fib daddr type"},
		{"fib saddr . iif oif missing drop", "fib saddr . iif oif 0-0, drop"},
		{"fib saddr . mark . iif oif missing drop", "fib saddr . iif oif 0-0, drop"},
		{"fib saddr . mark oif exists accept", "fib saddr oif 1-1, accept"},
		{"fib saddr . iif oif 0 drop", "fib saddr . iif oif 0-0, drop"},
		{"fib saddr . mark oif != 0 accept", "not fib saddr oif 0-0, accept"},
		{"fib saddr . iif oif \"lo\" drop", "unknown fib saddr . iif oif, drop"},
		{"meta mark set 5 fib saddr . mark . iif oif 0 drop", "set mark &0 ^5, fib saddr . iif oif 0-0, drop"},
		{"fib daddr . iif oif missing drop", "unknown fib daddr . iif oif, drop"},
		{"fib saddr oifname \"e0\" accept", "unknown fib saddr oifname, accept"},
		{"ip frag-off & 0x1fff != 0 drop", "nfproto 2-2, not ip frag-off&1fff 0-0, drop"},
		{"ip version 4 accept", "nfproto 2-2, not nfproto, accept"},
		{"ip version != 4 accept", "nfproto 2-2, nfproto, accept"},
		{"ip6 version 6 accept", "nfproto a-a, not nfproto, accept"},
		{"ip6 version 4 accept", "nfproto a-a, nfproto, accept"},
		{"ip6 nexthdr tcp accept", "nfproto a-a, l4proto 6-6, accept"},
		{"ip6 nexthdr icmpv6 icmpv6 type echo-request accept", "nfproto a-a, l4proto 3a-3a, icmp type-code&ff00 8000-8000, accept"},
		{"ip6 nexthdr { tcp, udp } accept", "nfproto a-a, lookup l4proto, accept"},
		{"exthdr frag exists drop", "nfproto a-a, nfproto, drop"},
		{"exthdr frag missing accept", "nfproto a-a, not nfproto, accept"},
		{"rt type 0 drop", "nfproto a-a, nfproto, drop"},
		{"frag more-fragments 1 drop", "nfproto a-a, nfproto, drop"},
		{"mh type 1 drop", "nfproto a-a, unknown extension header 135, drop"},
		{"ip option lsrr exists drop", "nfproto 2-2, nfproto, drop"},
		{"@th,0,8 5 accept", "sport&ff00 500-500, accept"},
		{"@ih,0,8 5 accept", "unknown @base 3,0,8, accept"},
		{"tcp option maxseg size 1400 accept", "unknown tcp option 2, accept"},
		{"meta skuid 0 accept", "unknown meta skuid, accept"},
		{"numgen random mod 2 0 accept", "unknown numgen random mod 2, accept"},
		{"ct original ip saddr 192.0.2.1 accept", "ct original ip saddr c0000201-c0000201, accept"},
		{"ct original ip daddr & 255.255.255.0 != 192.0.2.0 accept", "not ct original ip daddr c0000200-c00002ff, accept"},
		{"ct original ip6 daddr 2001:db8::/32 accept", "ct original ip6 daddr 20010db8000000000000000000000000-20010db8ffffffffffffffffffffffff, accept"},
		{"meta l4proto tcp ct original proto-dst 80 accept", "l4proto 6-6, ct original proto-dst 50-50, accept"},
		{"meta l4proto tcp ct original proto-src { 80, 90-99 } accept", "l4proto 6-6, lookup ct original proto-src, accept"},
		{"meta l4proto tcp ct reply proto-src 80 accept", "l4proto 6-6, unknown ct reply proto-src, accept"},
		{"ct reply ip saddr 192.0.2.1 accept", "unknown ct reply ip saddr, accept"},
		{"ct protocol udp accept", "ct protocol 11-11, accept"},
		{"ct mark set 5", "save 0 5 0"},
		{"ct mark set meta mark & 0xff | 0x100", "save 0 100 ff"},
		{"ct mark set ct mark & 0xff | 0x100", "not ct mark, save ff 100 0"},
		{"ct zone set 5", "ct zone set 5 back"},
		{"ct original zone set 5", "ct original zone set 5 back"},
		{"ct reply zone set 65535", "ct reply zone set 65535 back"},
		{"ct zone set numgen inc mod 4", "slow ct zone set"},
		{"ct zone set iif map { 2 : 6 }", "set ct zone iif map 2-2=6"},
		{"ct original zone set iif map { 1 : 5, 2 : 6 }", "slow ct zone set"},
		{"udp dport vmap { 53 : accept, 54 : drop }", "l4proto 11-11, vmap dport"},
		{"icmp type vmap { 8 : accept }", "nfproto 2-2, l4proto 1-1, vmap icmp type-code"},
		{"ip saddr . udp dport { 192.0.2.1 . 53 } accept", "nfproto 2-2, l4proto 11-11, lookup ip saddr dport, accept"},
		{"ip saddr != { 192.0.2.1 } accept", "nfproto 2-2, not ip saddr c0000201-c0000201, accept"},
		{"ct state new notrack", "not ct state&8 0-0, notrack"},
	} {
		r := rule(c.rule)
		if got := steps(r, sets...); got != c.want {
			t.Errorf("%s\n  got  %s\n  want %s", c.rule, got, c.want)
		}
	}
}

// steps writes the steps of a rule in few words.
func steps(r ruleset.Rule, sets ...ruleset.Set) string {
	var out []string
	hex := func(v ruleset.Value) string {
		if v.Hi != 0 {
			return fmt.Sprintf("%x%016x", v.Hi, v.Lo)
		}
		return fmt.Sprintf("%x", v.Lo)
	}
	var test func(s ruleset.Test) string
	test = func(s ruleset.Test) string {
		text := s.Field.String()
		if s.Not {
			text = "not " + text
		}
		if s.Mask != (ruleset.Value{}) {
			text += "&" + hex(s.Mask)
		}
		for _, r := range s.Ranges {
			text += " " + hex(r.Lo) + "-" + hex(r.Hi)
		}
		return text
	}
	keys := func(fields []ruleset.Field) (out string) {
		for _, f := range fields {
			out += " " + f.String()
		}
		return out
	}
	for _, s := range r.Steps {
		text := ""
		switch s := s.(type) {
		case ruleset.Test:
			text = test(s)
		case ruleset.AnyTest:
			for _, o := range s.Of {
				text += " or " + test(o)
			}
			if s.Not {
				text = " none" + text
			}
			text = text[1:]
		case ruleset.Lookup:
			text = "lookup" + keys(s.Key)
			for _, member := range s.Of {
				text += " of [" + strings.TrimSpace(keys(member.Key)) + "]"
			}
			if s.Not {
				text = "not " + text
			}
		case ruleset.VerdictMap:
			text = "vmap" + keys(s.Key)
		case ruleset.Unknown:
			text = "unknown " + s.Name
		case ruleset.Slow:
			text = "slow " + s.Name
		case ruleset.Verdict:
			text = strings.TrimSpace([]string{"continue", "accept", "drop", "return", "jump", "goto"}[s.Code] + " " + s.Chain)
		case ruleset.Count:
			text = "count"
		case ruleset.SaveMark:
			text = fmt.Sprintf("save %x %x %x", s.And, s.Xor, s.Mask)
		case ruleset.SetField:
			text = fmt.Sprintf("set %s &%x ^%x", s.Field, s.And, s.Xor)
			if s.From != ruleset.NoField {
				text += fmt.Sprintf(" ^%s&%x", s.From, s.Mask)
			}
		case ruleset.SetByMap:
			text = "set " + s.Field.String() + keys(s.Key) + " map"
			if int(s.Set) < len(sets) {
				for _, e := range sets[s.Set].Elements {
					var parts []string
					for _, k := range e.Key {
						parts = append(parts, hex(k.Lo)+"-"+hex(k.Hi))
					}
					text += " " + strings.Join(parts, ".") + "=" + hex(e.Data)
				}
			}
		case ruleset.NoTrack:
			text = "notrack"
		case ruleset.SetZone:
			text = fmt.Sprintf("ct %szone set %d", s.Dir, s.Zone)
			if s.Back {
				text += " back"
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestNFTCounters reads counters of rules, objects, elements and policies, before and after packets.
func TestNFTCounters(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link set lo up
		nft -f - <<-'EOT'
		table ip f {
			counter named { packets 7 bytes 700; }
			set s { type ipv4_addr; counter; elements = { 127.0.0.3, 127.0.0.4 } }
			chain out { type filter hook output priority 0;
				ip daddr 127.0.0.2 counter counter name "named" accept
				ip daddr @s accept
			}
		}
		EOT`)
	count := func() map[string][2]uint64 {
		out := map[string][2]uint64{}
		for _, c := range readAll(t).Ruleset.Counters {
			name := fmt.Sprint(c.At.Kind, " ", c.At.Name)
			if c.At.Kind == ruleset.RuleCounter {
				name = fmt.Sprint(c.At.Kind) // and what its rule says, as a number
			}
			for _, k := range c.At.Key {
				name += " " + k.Lo.Is4().String()
			}
			out[name] = [2]uint64{c.Packets, c.Bytes}
		}
		return out
	}
	before := count()
	rule, named, three, four := fmt.Sprint(ruleset.RuleCounter), fmt.Sprint(ruleset.NamedCounter, " named"), fmt.Sprint(ruleset.ElementCounter, " s 127.0.0.3"), fmt.Sprint(ruleset.ElementCounter, " s 127.0.0.4")
	if len(before) != 4 || before[named] != [2]uint64{7, 700} || before[rule] != [2]uint64{} {
		t.Fatalf("before: %v", before)
	}
	ns.run(t, "ping -q -c 3 -i 0.01 -s 72 127.0.0.2 >/dev/null; ping -q -c 2 -i 0.01 -s 72 127.0.0.3 >/dev/null")
	after := count()
	for name, want := range map[string][2]uint64{rule: {3, 300}, named: {10, 1000}, three: {2, 200}, four: {}} {
		if after[name] != want {
			t.Errorf("%s: %v, want %v", name, after[name], want)
		}
	}
}

// TestNFTSets compares elements with what nft lists.
func TestNFTSets(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `nft -f - <<-'EOT'
		table inet f {
			set plain { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 } }
			set ranges { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.0-192.0.2.6, 192.0.2.7, 255.255.255.255 } }
			set adjacent { type inet_service; flags interval; elements = { 1-10, 11-20, 65535 } }
			set concat { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90, 192.0.2.1 . 443 } }
			set names { type ifname; elements = { "eth0" } }
			set marks { type mark; elements = { 0x10 } }
			set markr { type mark; flags interval; elements = { 0x10-0x1f } }
			set aging { type ipv4_addr; flags timeout; elements = { 192.0.2.9 timeout 100s, 192.0.2.10 } }
			set rest { type inet_service; flags interval; elements = { 80, * } }
			map verdicts { type inet_service : verdict; elements = { 80 : accept, 81 : jump u } }
			map data { type ipv4_addr : ipv4_addr; elements = { 192.0.2.1 : 10.0.0.1 } }
			map objects { type ipv4_addr : counter; }
			set dyn { type ipv4_addr; flags dynamic; size 10; elements = { 192.0.2.1 } }
			set grown { type ipv4_addr; flags dynamic; size 10; }
			set odd { type ipv4_addr . icmp_type . mark . inet_proto; elements = { 192.0.2.1 . 8 . 0x5 . tcp } }
			set raw { typeof @nh,32,16; elements = { 0x1234 } }
			chain u { update @grown { ip saddr }; }
		}
		EOT`)
	want := map[string]string{
		"plain":    "[32] c0000201 | c0000202",
		"ranges":   "[32] interval a000000-affffff | c0000200-c0000206 | c0000207 | ffffffff",
		"adjacent": "[16] interval 1-a | b-14 | ffff",
		"concat":   "[32 16] interval a000000-affffff 50-5a | c0000201 1bb",
		"names":    "[128] 65746830000000000000000000000000",
		"marks":    "[32] 10", "markr": "[32] interval 10-1f",
		"aging":    "[32] timeout c0000209 expires | c000020a",
		"rest":     "[16] interval 50 | 0-ffff",
		"verdicts": "[16] verdicts 50 accept | 51 jump u",
		"data":     "[32] data c0000201 a000001",
		"objects":  "[32] unknown (a map of objects (counter))",
		"dyn":      "[32] c0000201", // by commands alone, as long as no rule does it
		"grown":    "[32] dynamic",
		"odd":      "[32 8 32 8] c0000201 8 5 6",
		"raw":      "[16] 1234",
	}
	sets := readAll(t).Ruleset.Sets
	if len(sets) != len(want) {
		t.Errorf("%d sets, want %d", len(sets), len(want))
	}
	for _, s := range sets {
		if got := setWords(s); got != want[s.Name] {
			t.Errorf("set %s\n  got  %s\n  want %s", s.Name, got, want[s.Name])
		}
	}
}

func setWords(s ruleset.Set) string {
	out := fmt.Sprint(s.Widths)
	for _, f := range []struct {
		on   bool
		name string
	}{{s.Interval, "interval"}, {s.Timeout, "timeout"}, {s.Dynamic, "dynamic"}, {s.Verdicts, "verdicts"}, {s.Data, "data"}} {
		if f.on {
			out += " " + f.name
		}
	}
	if s.Unknown != "" {
		out += " unknown (" + s.Unknown + ")"
	}
	hex := func(v ruleset.Value) string {
		if v.Hi != 0 {
			return fmt.Sprintf("%x%016x", v.Hi, v.Lo)
		}
		return fmt.Sprintf("%x", v.Lo)
	}
	var elements []string
	for _, e := range s.Elements {
		var parts []string
		for _, k := range e.Key {
			if k.Lo == k.Hi {
				parts = append(parts, hex(k.Lo))
			} else {
				parts = append(parts, hex(k.Lo)+"-"+hex(k.Hi))
			}
		}
		if e.NoMatch {
			parts = append(parts, "nomatch")
		}
		if e.Verdict != nil {
			parts = append(parts, strings.TrimSpace([]string{"continue", "accept", "drop", "return", "jump", "goto"}[e.Verdict.Code]+" "+e.Verdict.Chain))
		}
		if s.Data {
			parts = append(parts, hex(e.Data))
		}
		if e.Expires > 0 && e.Expires <= 100_000 {
			parts = append(parts, "expires")
		}
		if e.Counter != ruleset.NoCounter {
			parts = append(parts, "counted")
		}
		elements = append(elements, strings.Join(parts, " "))
	}
	if !s.Interval || s.Dialect == ruleset.IPSet { // in the order of the kernel's hash table
		slices.Sort(elements)
	}
	return strings.TrimSpace(out + " " + strings.Join(elements, " | "))
}

// TestNFTFamilies looks at chains and rules of the other families.
func TestNFTFamilies(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link add e0 type veth peer name e1
		nft -f - <<-'EOT'
		table netdev n {
			chain in { type filter hook ingress device e0 priority -5; policy drop;
				ip saddr 192.0.2.1 udp dport 9 drop
				meta protocol ip6 ip6 saddr fd00::1 accept
				meta length 100 drop
			}
			chain out { type filter hook egress devices = { e0, e1 } priority 0; @nh,96,32 0x0a000001 drop; }
		}
		table bridge b { chain f { type filter hook forward priority 0; ether saddr 00:11:22:33:44:55 ip daddr 192.0.2.1 accept; }; }
		table arp a { chain i { type filter hook input priority 0; arp operation request accept; }; }
		table ip6 six { chain p { type filter hook prerouting priority raw; tcp dport 80 notrack; }; }
		table ip four { flags dormant; chain p { type nat hook postrouting priority srcnat; oifname "e0" masquerade; }; }
		table inet i { chain g { type filter hook ingress device e0 priority 3; ip saddr 192.0.2.1 drop; }; }
		EOT`)
	var got []string
	r := readAll(t).Ruleset
	for _, table := range r.Tables {
		for _, c := range table.Chains {
			line := fmt.Sprintf("%s %s %s %d %s %v", table.Family, c.Name, c.Base.Hook, c.Base.Priority, c.Base.Type, c.Base.Devices)
			if table.Dormant {
				line += " dormant"
			}
			if len(c.Base.Unknown) > 0 {
				line += fmt.Sprint(c.Base.Unknown)
			}
			for _, rule := range c.Rules {
				line += "\n  " + steps(rule)
			}
			got = append(got, line)
		}
	}
	slices.Sort(got)
	want := []string{
		"arp i input 0 filter []\n  unknown @nh,48,16, accept",
		"bridge f forward 0 filter []\n  ether saddr 1122334455-1122334455, ether type 800-800, ip daddr c0000201-c0000201, accept",
		"inet g ingress 3 filter [e0]\n  nfproto 2-2, ip saddr c0000201-c0000201, drop",
		"ip p postrouting 100 nat [] dormant\n  oifname 65300000000000000000000000000000-65300000000000000000000000000000, slow masquerade",
		"ip6 p prerouting -300 filter []\n  l4proto 6-6, dport 50-50, notrack",
		"netdev in ingress -5 filter [e0]\n  ether type 800-800, ip saddr c0000201-c0000201, l4proto 11-11, dport 9-9, drop\n  ether type 86dd-86dd, ip6 saddr fd000000000000000000000000000001-fd000000000000000000000000000001, accept\n  unknown meta length, drop",
		"netdev out egress 0 filter [e0 e1]\n  unknown @nh,96,32, drop",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestKubeProxyNFT reads the rules that kube-proxy makes in its nftables mode.
func TestKubeProxyNFT(t *testing.T) {
	script, err := os.ReadFile("testdata/rules/kube-proxy-1.36.nft")
	if err != nil {
		t.Fatal(err)
	}
	ns := namespace(t)
	ns.run(t, "nft -f - <<'EOT'\n"+string(script)+"\nEOT")
	var listed struct {
		Nftables []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(ns.output(t, "nft -j list ruleset")), &listed); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, o := range listed.Nftables {
		for kind := range o {
			want[kind]++
		}
	}
	r := readAll(t).Ruleset
	got := map[string]int{"table": len(r.Tables), "set": 0, "map": 0}
	trouble := map[string]int{}
	for _, s := range r.Sets {
		if strings.HasPrefix(s.Name, "__") {
			continue
		}
		if s.Unknown != "" {
			t.Errorf("set %s: %s", s.Name, s.Unknown)
		}
		if s.Verdicts || s.Data {
			got["map"]++
		} else {
			got["set"]++
		}
	}
	for _, table := range r.Tables {
		got["chain"] += len(table.Chains)
		for _, c := range table.Chains {
			got["rule"] += len(c.Rules)
			for _, rule := range c.Rules {
				for _, w := range troubles(rule) {
					trouble[w]++
				}
			}
		}
	}
	for kind, n := range got {
		if n != want[kind] {
			t.Errorf("%d of kind %s, nft lists %d", n, kind, want[kind])
		}
	}
	if s, want := fmt.Sprint(trouble), "map[slow dnat:3 slow masquerade:2 slow reject:2]"; s != want {
		t.Errorf("not forwarded by shunt: %s, want %s", s, want)
	}
}
