// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// The user's firewall: what an administrator of 50 customers' networks would have written, in three dialects. The measured
// packets go by all rules of FORWARD and are accepted by the last.
const (
	ipsets = `create banned hash:ip
add banned 198.51.100.7
add banned 198.51.100.8
add banned 203.0.113.99
`
	native = `table inet guard {
	set blocked { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.18.0.0/15 } }
	chain forward {
		type filter hook forward priority 10; policy accept;
		ip saddr @blocked drop
		tcp dport { 23, 445, 3389 } drop
		udp dport { 111, 1900, 11211 } drop
	}
}
`
)

func iptables() string {
	var s strings.Builder
	s.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	s.WriteString("-A FORWARD -p tcp -m set --match-set banned src -j DROP\n")
	for i := range prefixes {
		fmt.Fprintf(&s, "-A FORWARD -d 16.0.%d.0/24 -p tcp -m multiport --dports 80,443 -j ACCEPT\n", i)
		fmt.Fprintf(&s, "-A FORWARD -s 203.0.113.%d/32 -d 16.0.%d.0/24 -j DROP\n", i+1, i)
	}
	s.WriteString("-A FORWARD -i in -s 10.0.0.0/24 -p udp -m udp --dport 1024:65535 -j ACCEPT\nCOMMIT\n")
	return s.String()
}

// gateway is the router with a firewall that is there before shunt is, and that shunt is told nothing about.
func (d *demo) gateway() (err error) {
	d.screen.title("A gateway: your own firewall, as it is")
	rules := iptables()
	for _, step := range []struct{ input, command string }{{ipsets, "ipset restore"}, {rules, "iptables-restore"}, {native, "nft -f -"}} {
		if err := d.router.dut.Feed(step.input, "%s", step.command); err != nil {
			return err
		}
	}
	d.screen.command(fmt.Sprintf("ipset restore <banned; iptables-restore <rules; nft -f guard.nft     # %d rules, %d sets", strings.Count(rules+native, "-A ")+3, 2), head(rules, 5, 4))
	if d.linuxRules, err = d.router.measure(); err != nil {
		return err
	}
	d.screen.rate("Linux", d.linuxRules, nil)
	d.screen.say("without rules it took %.0f ns per packet", d.linux.PerPacket())
	return nil
}

// accelerate starts shunt beside the firewall. Whether the rules are fast is for its status to say.
func (d *demo) accelerate() (err error) {
	d.screen.title("The same with shunt")
	d.rulesFast = true
	for _, hook := range []struct {
		name, label string
		m           *lab.Sample
	}{{"tc", "shunt, TC", &d.tcRules}, {"xdp", "shunt, XDP", &d.xdpRules}} {
		if err := d.shunt.run(d.ctx, hook.name); err != nil {
			return err
		}
		d.screen.command("shunt run --hook "+hook.name+" &", "")
		st, err := d.shunt.settled(d.ctx)
		if err != nil {
			return err
		}
		d.standing(st)
		d.rulesFast = d.rulesFast && port(st, "in") != nil && port(st, "in").IP4 == api.StateFast
		if *hook.m, err = d.router.measure(); err != nil {
			return err
		}
		d.screen.rate(hook.label, *hook.m, &d.linuxRules)
		if hook.name == "tc" {
			if err := d.shunt.remove(); err != nil {
				return err
			}
		}
	}
	return nil
}

// standing says whether packets from the source are fast, and if not, why, in the words of the status.
func (d *demo) standing(st *api.Status) {
	i := port(st, "in")
	if i == nil {
		d.screen.say("shunt does not know the interface in")
		return
	}
	if fast(st, "in") {
		d.screen.say("in: %s", d.screen.paint("32", i.State))
	} else {
		d.screen.say("in: ip4 %s, ip6 %s. What is not fast goes through Linux and its rules, as without shunt:", d.screen.paint("33", i.IP4), d.screen.paint("33", i.IP6))
	}
	const most = 4
	var said []string
	for _, r := range i.Reasons {
		if text := fmt.Sprintf("%s  (%s)", d.screen.paint("33", r.Reason), r.Detail); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	for _, text := range said[:min(most, len(said))] {
		d.screen.say("  %s", text)
	}
	if len(said) > most {
		d.screen.say("  … and %d more: shunt status", len(said)-most)
	}
}

// askRules lets shunt say what it makes of the rules, and of three packets.
func (d *demo) askRules() error {
	d.screen.title("Which rule? Asked of shunt")
	out, err := d.shunt.ask("show", "rules")
	if err != nil {
		return err
	}
	d.screen.command("shunt show rules", head(out, 9, 0))
	for _, packet := range []string{
		"udp 203.0.113.8:1000 > 16.0.7.1:2000", // a rule drops it
		"udp 10.0.0.2:1000 > 16.0.7.1:2000",    // the measured traffic
		"tcp 198.51.100.7:1000 > 16.0.7.1:80",  // banned by the ipset
	} {
		if err := d.show("explain", "in", packet); err != nil {
			return err
		}
	}
	return nil
}

// ban adds a rule while packets flow: what has been fast must obey at once.
func (d *demo) ban() error {
	d.screen.title("A rule is added while packets flow")
	const add, remove = "iptables -I FORWARD 1 -s 10.0.0.2 -j DROP", "iptables -D FORWARD 1"
	const watch = 500 * time.Millisecond
	var before, banned, after uint64
	_, err := d.router.count(d.pace(), func() (err error) {
		if err = d.router.dut.Exec("%s", add); err != nil {
			return err
		}
		if before, err = d.router.received(); err != nil {
			return err
		}
		time.Sleep(watch)
		if banned, err = d.router.received(); err != nil {
			return err
		}
		if err = d.router.dut.Exec("%s", remove); err != nil {
			return err
		}
		time.Sleep(watch)
		after, err = d.router.received()
		return err
	})
	if err != nil {
		return err
	}
	d.screen.command(add, "")
	d.screen.say("in half a second from the command's return on, %s packets came through", d.screen.paint("1;32", fmt.Sprint(banned-before)))
	d.screen.command(remove, "")
	d.screen.say("and in half a second after that, %d", after-banned)
	st, err := d.shunt.settled(d.ctx)
	if err != nil {
		return err
	}
	d.standing(st)
	d.screen.say("the last change was in force %.2f ms after its first event", st.Sync.LastChangeMS)
	return d.shunt.remove()
}

// head is a text's first lines from a line on, and how many more there are.
func head(text string, n, from int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[min(from, len(lines)):]
	if len(lines) <= n {
		return strings.Join(lines, "\n")
	}
	return strings.Join(append(lines[:n:n], fmt.Sprintf("… %d lines more", len(lines)-n)), "\n")
}
