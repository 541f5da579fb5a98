// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/packet"
)

func newExplain(g *global) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use:   "explain IFACE PACKET",
		Short: "say what happens to one packet, and why",
		Long: `Run the very programs that are loaded on one packet that IFACE would receive, without sending anything, and say which node decided. Where Linux has
rules for forwarded packets, they are followed too, one by one: which matched, and which accepts, drops or leaves the packet to Linux.

PACKET is a description or a whole frame in hex:

    udp|tcp ADDR[:PORT] > ADDR[:PORT] [OPTION]...
    icmp|icmp6|arp|ip ADDR > ADDR [OPTION]...

Options:

` + optionTable(),
		Example: `  shunt explain eth0 "udp 10.0.0.1:53 > 10.2.0.9:4000"
  shunt explain eth0 "tcp [fd00::1]:1024 > [fd00:2::9]:80 flags=S ttl=1"
  shunt explain eth0 "icmp 10.0.0.1 > 10.2.0.9 len=1600 df"
  shunt explain eth0 02aa0000000902000000000108004500...`,
		RunE: func(c *cobra.Command, args []string) error {
			var x api.Explanation
			err := a.client().Call(c.Context(), api.VerbExplain, api.ExplainArgs{Interface: interfaceName(args[0]), Packet: strings.Join(args[1:], " ")}, &x)
			if err != nil {
				return err
			}
			if a.json {
				err = printJSON(c.OutOrStdout(), x)
			} else {
				w := newScreen(c.OutOrStdout())
				printExplanation(w, &x)
				err = w.err
			}
			if err == nil && x.Rules != nil && x.Rules.Disagree != "" {
				return errors.New("the loaded program and the rules disagree: " + x.Rules.Disagree + "; this is a fault of shunt, \"shunt pause\" turns it off")
			}
			return err
		},
	}
	c.ValidArgsFunction = interfaceNames
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) < 2 {
			return usagef("usage: shunt explain IFACE PACKET, for example: shunt explain eth0 %s", packet.Example)
		}
		if _, err := packet.Parse(strings.Join(args[1:], " ")); err != nil {
			return usageError{err}
		}
		return nil
	}
	return a.options(c, true)
}

func optionTable() string {
	var b strings.Builder
	for _, o := range packet.Options {
		fmt.Fprintf(&b, "    %-8s %s\n", o.Name, o.Doc)
	}
	return b.String()
}

func printExplanation(w *screen, x *api.Explanation) {
	w.printf("%s receives %s\n", w.paint(bold, x.Interface), x.Packet)
	if x.Assumed != "" {
		w.printf("  %s\n", w.paint(dim, "assuming that "+x.Assumed))
	}
	for _, s := range x.Steps {
		switch {
		case s.Reason == "fast":
			w.printf("  %s  %s out of %s\n", at(s.Hook), w.paint(green, "forwarded"), w.paint(bold, s.Egress))
		case s.Reason == "rule-drop":
			w.printf("  %s  %s by rules: %s\n", at(s.Hook), w.paint(red, "dropped"), w.paint(bold, s.Reason))
		case s.Loaded:
			w.printf("  %s  %s by node %s: %s\n", at(s.Hook), w.paint(yellow, "to Linux"), s.Node, w.paint(bold, s.Reason))
		default:
			w.printf("  %s  %s, no program looks at it here: %s\n", at(s.Hook), w.paint(yellow, "to Linux"), w.paint(bold, s.Reason))
		}
		w.printf("       %s\n", s.Doc)
		if len(s.Passed) > 0 {
			w.printf("       %s\n", w.paint(dim, "passed "+strings.Join(s.Passed, " → ")))
		}
		for _, r := range s.Because {
			w.printf("       because %s\n", strings.TrimSpace(strings.Join([]string{r.Input, r.Family, r.Reason, r.Detail}, " ")))
		}
	}
	if x.Route != "" {
		w.printf("  route %s\n", x.Route)
	}
	for _, c := range x.Changes {
		w.printf("  %s\n", c)
	}
	if x.Rules != nil {
		printWalk(w, x.Rules)
	}
}

// printWalk lists the rules that the packet matches on its way.
func printWalk(w *screen, r *api.RuleWalk) {
	w.printf("%s\n", w.paint(bold, "rules"))
	for _, m := range r.Met {
		w.printf("  %-12s %s", m.Hook, m.Rule)
		if m.Text != "" {
			w.printf(": %s", m.Text)
		}
		fmt.Fprintln(w)
	}
	switch r.Outcome {
	case "slow":
		w.printf("  %s by %s: %s\n", w.paint(yellow, "to Linux"), r.By, r.Why)
	case "unknown":
		w.printf("  %s by %s: %s\n", w.paint(yellow, "not followed further"), r.By, r.Why)
	case "drop":
		w.printf("  %s by %s\n", w.paint(red, "dropped"), r.By)
	default:
		w.printf("  %s\n", w.paint(green, "accepted"))
	}
	if r.Assumed != "" {
		w.printf("  %s\n", w.paint(dim, "assuming "+r.Assumed))
	}
	if r.Disagree != "" {
		w.printf("  %s\n", w.paint(red, "DISAGREES: "+r.Disagree))
	}
}

func at(hook string) string { return fmt.Sprintf("%-4s", hook) }
