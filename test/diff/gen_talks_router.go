// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"
)

// setup is what the router is told at first.
func (g *talkGen) setup() (out []string) {
	out = append(out, "sysctl net.ipv4.conf.all.send_redirects=0", "sysctl net.ipv4.conf.p0.send_redirects=0")
	if g.short {
		out = append(out, "sysctl net.netfilter.nf_conntrack_tcp_timeout_established=8", "sysctl net.netfilter.nf_conntrack_udp_timeout_stream=8", "sysctl net.netfilter.nf_conntrack_udp_timeout=8")
	}
	for _, s := range []string{"tcp_loose=0", "tcp_be_liberal=1", "acct=1", "checksum=0"} {
		if chance(g.rng, 8) {
			out = append(out, "sysctl net.netfilter.nf_conntrack_"+s)
		}
	}
	return slices.Concat(out, g.translation(), g.filters(), g.zone())
}

// portRules are rules for ports of bridges, where the place has some.
func (g *talkGen) portRules() (out []string) {
	if g.tables == "" {
		return nil
	}
	for _, v6 := range []bool{false, true} {
		out = append(out, g.at.rules(g.tool(v6))...)
	}
	return out
}

// translation loads what translates the conversations, and tracks them at least.
func (g *talkGen) translation() []string {
	if g.tables == "" {
		pre, post := map[bool][]string{}, map[bool][]string{}
		for _, t := range g.talks {
			ip := map[bool]string{false: "ip", true: "ip6"}[t.v6]
			at := func(addr string, port uint16) string {
				if t.v6 {
					return fmt.Sprintf("[%s]:%d", addr, port)
				}
				return fmt.Sprintf("%s:%d", addr, port)
			}
			if t.real != "" {
				pre[t.v6] = append(pre[t.v6], fmt.Sprintf("%s daddr %s %s dport %d counter dnat to %s", ip, t.server, t.proto(), t.dport, at(t.real, t.realPort)))
			}
			switch t.nat {
			case "masquerade":
				post[t.v6] = append(post[t.v6], fmt.Sprintf("%s saddr %s oifname p1 counter masquerade", ip, t.client))
			case "snat", "both":
				post[t.v6] = append(post[t.v6], fmt.Sprintf("%s saddr %s counter snat to %s", ip, t.client, t.seen))
			case "netmap":
				post[t.v6] = append(post[t.v6], fmt.Sprintf("%s saddr %s counter snat prefix to ip saddr map { 10.3.0.0/24 : 10.77.0.0/24 }", ip, t.client))
			}
		}
		var out []string
		for _, v6 := range []bool{false, true} {
			out = append(out, natTable(map[bool]string{false: "ip", true: "ip6"}[v6], strings.Join(append(pre[v6], "counter"), "; "), strings.Join(append(post[v6], "counter"), "; ")))
		}
		return out
	}
	var out []string
	for _, v6 := range []bool{false, true} {
		lines := []string{":PREROUTING ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]; :shared - [0:0]", "-A POSTROUTING -j shared"}
		for _, t := range g.talks {
			if t.v6 != v6 {
				continue
			}
			if t.real != "" {
				to := fmt.Sprintf("%s:%d", t.real, t.realPort)
				if v6 {
					to = fmt.Sprintf("[%s]:%d", t.real, t.realPort)
				}
				lines = append(lines, fmt.Sprintf("-A PREROUTING -d %s -p %s -m %[2]s --dport %d -j DNAT --to-destination %s", t.server, t.proto(), t.dport, to))
			}
			switch t.nat {
			case "masquerade":
				lines = append(lines, fmt.Sprintf("-A shared -s %s -o p1 -j MASQUERADE", t.client))
			case "snat", "both":
				lines = append(lines, fmt.Sprintf("-A shared -s %s -j SNAT --to-source %s", t.client, t.seen))
			case "netmap":
				lines = append(lines, fmt.Sprintf("-A shared -s %s -j NETMAP --to 10.77.0.0/24", t.client))
			}
		}
		out = append(out, restore(g.tool(v6), "nat", lines[0], lines[1:]...))
	}
	return out
}

// asked are rules that ask for connections or write what they remember; a verdict, if it stands behind them, follows.
var asked4nft = []string{
	"ct state established,related", "ct state established", "ct state new", "ct status snat", "ct status dnat", "ct status assured", "ct direction reply", "ct direction original", "ct mark 5", "ct mark 0",
	"tcp flags & (fin | rst) != 0", "tcp flags syn", "meta l4proto udp", "meta length > 600", "ct state new ct mark set 5", "meta mark set ct mark", "ct mark set meta mark", "ct mark set 5", "meta mark 5", "ct state untracked", "ct state { established, new }",
	"ct state vmap { established : accept, invalid : continue }", "tcp dport 80", "tcp sport 80", "iifname p0", "oifname p1",
}

var asked4tables = []string{
	"-m conntrack --ctstate ESTABLISHED,RELATED", "-m state --state ESTABLISHED", "-m conntrack --ctstate NEW", "-m conntrack --ctstate SNAT", "-m conntrack --ctstate DNAT", "-m conntrack ! --ctstate DNAT", "-m conntrack --ctdir REPLY", "-m connmark --mark 5",
	"-p tcp -m tcp --tcp-flags FIN,RST FIN", "-p udp", "-p tcp -m tcp --dport 80", "-p tcp -m tcp --sport 80", "-i p0", "-m conntrack --ctstatus ASSURED", "-m mark --mark 5", "-m conntrack --ctstate UNTRACKED", "-p tcp -m conntrack --ctproto 6",
}

// filters loads chains of a filter that asks for connections.
func (g *talkGen) filters() (out []string) {
	if !chance(g.rng, 80) {
		return nil
	}
	if g.tables != "" {
		for _, v6 := range []bool{false, true} {
			tool := g.tool(v6)
			if chance(g.rng, 30) {
				lines := []string{":PREROUTING ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-mark 5"}
				if v6 {
					lines = append(lines, "-A POSTROUTING -d ff00::/8 -m comment --comment "+unasked+" -j ACCEPT")
				}
				if chance(g.rng, 50) {
					lines = append(lines, "-A PREROUTING -j CONNMARK --restore-mark")
				}
				if chance(g.rng, 50) {
					lines = append(lines, pick(g.rng, []string{"-A PREROUTING -j CONNMARK --save-mark", "-A PREROUTING -j CONNMARK --set-xmark 0x5/0x7"}))
				}
				out = append(out, restore(tool, "mangle", lines[0], lines[1:]...))
			}
			if chance(g.rng, 10) {
				out = append(out, restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", fmt.Sprintf("-A PREROUTING -p %s -m %[1]s --dport 80 -j CT --notrack", pick(g.rng, []string{"tcp", "udp"}))))
			}
			var rules []string
			for range 2 + g.rng.IntN(6) {
				rules = append(rules, pick(g.rng, asked4tables)+pick(g.rng, []string{"", "", " -j ACCEPT"}))
			}
			policy := "ACCEPT"
			if chance(g.rng, 40) {
				rules, policy = append(rules, "-m conntrack --ctstate INVALID -j DROP", "-j ACCEPT"), "DROP"
			}
			out = append(out, forwardChain(tool, policy, rules...))
		}
		return out
	}
	chain := func(hook, priority string) string {
		rules := []string{fmt.Sprintf("ip6 daddr ff00::/8 counter accept comment %q", unasked)}
		for range 1 + g.rng.IntN(6) {
			rule := pick(g.rng, asked4nft)
			if !strings.Contains(rule, "vmap") {
				rule += " counter" + pick(g.rng, []string{"", "", " accept"})
			}
			rules = append(rules, rule)
		}
		if chance(g.rng, 40) {
			rules = append(rules, "ct state invalid counter drop")
		}
		return fmt.Sprintf("chain %s { type filter hook %[1]s priority %s; %s; }; ", hook, priority, strings.Join(append(rules, "counter"), "; "))
	}
	var chains string
	if chance(g.rng, 30) {
		chains += chain("prerouting", "mangle")
	}
	chains += chain("forward", "filter")
	if chance(g.rng, 30) {
		chains += chain("postrouting", "mangle")
	}
	if chance(g.rng, 8) {
		chains += fmt.Sprintf("chain raw { type filter hook prerouting priority raw; %s dport 80 notrack; }; ", pick(g.rng, []string{"tcp", "udp"}))
	}
	return []string{"nft table inet f { " + chains + "}"}
}

// zone has the connections looked up in a zone, or in two by what they come by, of which the replies know.
func (g *talkGen) zone() (out []string) {
	if !chance(g.zones, 20) {
		return nil
	}
	if g.tables == "" {
		return []string{"nft table inet zone { chain p { type filter hook prerouting priority -310; " + pick(g.zones, []string{
			"ct zone set 5", "iifname { p0, p1 } ct zone set 5", "ct zone set iifname map { p0 : 5, p1 : 5 }", "iifname p0 ct original zone set 5", "meta l4proto udp ct zone set 6; ct zone set 5", "ct reply zone set 5",
		}) + "; }; }"}
	}
	rule := pick(g.zones, []string{"-A PREROUTING -j CT --zone 5", "-I PREROUTING -p tcp -j CT --zone 5", "-A PREROUTING -i p0 -j CT --zone-orig 5", "-I PREROUTING -p udp -j CT --zone-reply 5"})
	for _, v6 := range []bool{false, true} {
		out = append(out, g.tool(v6)+" -t raw "+rule)
	}
	return out
}

// change is something that happens to the router meanwhile, and whether packets follow at once.
func (g *talkGen) change() (do []string, atOnce bool) {
	if len(g.undo) > 0 && chance(g.rng, 40) {
		do, g.undo = g.undo[len(g.undo)-1], g.undo[:len(g.undo)-1]
		return do, chance(g.rng, 50)
	}
	t := pick(g.rng, g.talks)
	net, gw := "10.1.0.0/16", "10.0.1.1%d"
	ip := "ip"
	if t.v6 {
		net, gw, ip = "2001:db8:1::/48", "fd00::2:0:0:0:1%d", "ip6"
	}
	then := func(back ...string) { g.undo = append(g.undo, back) }
	switch g.rng.IntN(11) {
	case 0:
		then(fmt.Sprintf("ip route replace %s via "+gw, net, 0))
		return []string{fmt.Sprintf("ip route replace %s via "+gw, net, 1)}, true
	case 1:
		then(fmt.Sprintf("ip route replace %s via "+gw, net, 0))
		return []string{fmt.Sprintf("ip route replace %s via %s", net, strings.Replace(strings.Replace(fmt.Sprintf(gw, 0), "10.0.1", "10.0.2", 1), "fd00::2", "fd00::3", 1))}, true
	case 2:
		then(fmt.Sprintf("ip route replace %s via "+gw, net, 0))
		return []string{fmt.Sprintf("ip route replace %s via "+gw+" mtu lock 1300", net, 0)}, true
	case 3:
		s := pick(g.rng, []string{"tcp_be_liberal=%d", "acct=%d", "checksum=%d", "tcp_loose=%d"})
		n := g.rng.IntN(2)
		return []string{"sysctl net.netfilter.nf_conntrack_" + fmt.Sprintf(s, n)}, chance(g.rng, 50)
	case 4:
		then(g.translation()...)
		if g.tables == "" {
			return []string{"nft delete table " + ip + " gw"}, true
		}
		return []string{g.tool(t.v6) + " -t nat -F", g.tool(t.v6) + " -t nat -X"}, true
	case 5, 6:
		if g.tables == "" {
			then("nft delete table " + ip + " late")
			return []string{fmt.Sprintf("nft table %s late { chain f { type filter hook forward priority 5; %s saddr %s counter drop; }; }", ip, ip, t.client)}, true
		}
		then(g.tool(t.v6) + " -D FORWARD 1")
		return []string{fmt.Sprintf("%s -I FORWARD 1 -s %s -j DROP", g.tool(t.v6), t.client)}, true
	case 7:
		if g.short {
			return []string{"sleep 13s"}, false
		}
		return []string{"sleep 1100ms"}, false
	case 8:
		then("ip rule del pref 50", "ip -6 rule del pref 50")
		return []string{"ip rule add pref 50 iif p0 lookup main", "ip -6 rule add pref 50 iif p0 lookup main"}, true
	case 9:
		own := t.own(1)
		bits := map[bool]string{false: "/24", true: "/64 nodad"}[t.v6]
		return []string{"ip address del " + own + strings.TrimSuffix(bits, " nodad") + " dev p1", "ip address add " + own + bits + " dev p1", fmt.Sprintf("ip route replace %s via "+gw, net, 0)}, false
	}
	return []string{"sysctl net.ipv4.conf.p1.forwarding=" + pick(g.rng, []string{"0", "1", "1"})}, false
}

func (g *talkGen) tool(v6 bool) string {
	return map[bool]string{false: "iptables-", true: "ip6tables-"}[v6] + g.tables
}

// translates says whether something in a case translates addresses.
func (c *Case) translates() bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Commands, func(cmd string) bool {
			return strings.Contains(cmd, "type nat") || strings.Contains(cmd, "-t nat") || strings.Contains(cmd, "*nat")
		})
	})
}
