// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

func showRules(g *global) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use: "rules", Short: "Linux's packet filter rules as shunt reads them, and the parts that leave packets to Linux", Args: noArgs,
		Long: "Linux's packet filter rules as shunt reads them, with the parts that leave packets to Linux by name.\n\n" +
			"The counts of packets and bytes are sums of what Linux and the fast path counted, also where Linux's own tools show Linux's part alone: " +
			"to nf_tables (nft, iptables-nft) nothing can be added. To the counters of legacy tables the fast path's part is added once a second, and before this " +
			"command answers, so that \"iptables-legacy -L -v\" shows the sums as well.",
		RunE: func(c *cobra.Command, _ []string) error {
			var r api.Rules
			if err := a.client().Call(c.Context(), api.VerbShow, api.ShowArgs{What: api.ShowRules}, &r); err != nil {
				return err
			}
			if a.json {
				return printJSON(c.OutOrStdout(), r)
			}
			w := newScreen(c.OutOrStdout())
			printRules(w, &r)
			return w.err
		},
	}
	return a.options(c, true)
}

// showSets is the part of the rules' answer that is about sets.
func showSets(g *global) *cobra.Command {
	return showPart(g, "sets", api.ShowRules, "sets and ipsets that rules can ask, and why packets that are looked up in one go to Linux", setsOf, setRows)
}

// ownedSet is a set with where it belongs.
type ownedSet struct {
	Family string `json:"family"`          // "ip", "ip6", "inet" …; "ipset"
	Table  string `json:"table,omitempty"` // of nf_tables
	api.RuleSet
}

func setsOf(r api.Rules) (list []ownedSet) {
	for _, s := range r.IPSets {
		list = append(list, ownedSet{"ipset", "", s})
	}
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			list = append(list, ownedSet{t.Family, t.Name, s})
		}
	}
	return list
}

func setRows(list []ownedSet) [][]cell {
	rows := [][]cell{heads("FAMILY", "TABLE", "SET", "TYPE", ">ELEMENTS", "GOES TO LINUX")}
	for _, s := range list {
		rows = append(rows, []cell{{text: s.Family}, {text: orDash(s.Table)}, {text: s.Name}, {text: orDash(s.Type)}, number(s.Elements), {text: s.Trouble, sgr: yellow}})
	}
	return rows
}

func printRules(w *screen, r *api.Rules) {
	if len(r.Tables)+len(r.IPSets)+len(r.Faults) == 0 {
		fmt.Fprintln(w, "no packet filter rules")
	}
	for _, f := range r.Faults {
		w.printf("%s %s\n", w.paint(red, "not read:"), f)
	}
	for _, s := range r.IPSets {
		w.printf("ipset %s (%s): %s%s\n", s.Name, s.Type, elements(s.Elements), setTrouble(w, &s))
	}
	for n, t := range r.Tables {
		if n > 0 || len(r.IPSets) > 0 {
			fmt.Fprintln(w)
		}
		w.printf("%s (%s)", w.paint(bold, "table "+t.Family+" "+t.Name), t.Dialect)
		if t.Dormant {
			fmt.Fprint(w, ", dormant")
		}
		fmt.Fprintln(w)
		for _, s := range t.Sets {
			w.printf("  set %s: %s%s\n", s.Name, elements(s.Elements), setTrouble(w, &s))
		}
		for _, c := range t.Counters {
			w.printf("  counter %s: %d packets, %d bytes\n", c.Name, *c.Packets, *c.Bytes)
		}
		for i := range t.Chains {
			printChain(w, &t.Chains[i])
		}
	}
}

func elements(n int) string {
	if n == 1 {
		return "1 element"
	}
	return fmt.Sprintf("%d elements", n)
}

func setTrouble(w *screen, s *api.RuleSet) painted {
	if s.Understood && s.Trouble != "" {
		return ", " + w.paint(dim, "left to Linux: "+s.Trouble)
	}
	return troubleOf(w, s.Trouble)
}

func troubleOf(w *screen, text string) painted {
	if text == "" {
		return ""
	}
	return ", " + w.paint(yellow, "not understood: ") + w.paint("", text)
}

func printChain(w *screen, c *api.RuleChain) {
	w.printf("  %s", w.paint(bold, "chain "+c.Name))
	if c.Hook != "" {
		w.printf(": %s at %s, priority %d, policy %s", c.Type, c.Hook, c.Priority, c.Policy)
		if len(c.Devices) > 0 {
			w.printf(", devices %s", strings.Join(c.Devices, " "))
		}
		if c.Packets != nil {
			w.printf(" (%d packets, %d bytes)", *c.Packets, *c.Bytes)
		}
	}
	fmt.Fprintln(w, troubleOf(w, strings.Join(c.Trouble, ", ")))
	if len(c.Rules) == 0 {
		return
	}
	rows := [][]cell{heads("   ", ">HANDLE", ">PACKETS", ">BYTES", "RULE")}
	for _, r := range c.Rules {
		rows = append(rows, []cell{{text: "   "}, place(&r), counter(r.Packets), counter(r.Bytes), {text: r.Text}})
		for _, t := range r.Trouble {
			sgr, why := dim, "  left to Linux: "
			if !t.Understood {
				sgr, why = yellow, "  not understood: "
			}
			rows = append(rows, []cell{{}, {}, {}, {}, {text: why + t.Text, sgr: sgr}})
		}
	}
	w.table(rows)
}

// place is a rule's handle or, where the kernel gives none, its number in the chain.
func place(r *api.Rule) cell {
	if r.Handle == 0 {
		return cell{text: fmt.Sprintf("#%d", r.Number), right: true}
	}
	return number(r.Handle)
}

func counter(n *uint64) cell {
	if n == nil {
		return cell{text: "-", right: true}
	}
	return number(*n)
}
