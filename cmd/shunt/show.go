// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

func newShow(g *global) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "show one part of what the daemon knows",
		Args: func(c *cobra.Command, args []string) error {
			const subjects = "interfaces, graph, rules, sets, flows, reasons, programs, events or neighbours"
			if len(args) > 0 {
				return usagef("cannot show %q; there are %s", args[0], subjects)
			}
			return usagef("show what? %s", subjects)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(
		showInterfaces(g),
		showGraph(g),
		showRules(g),
		showSets(g),
		showFlows(g),
		showReasons(g),
		showTable(g, api.ShowPrograms, "the loaded programs", programRows),
		showTable(g, api.ShowEvents, "the last rounds: what changed, how long it took", eventRows),
		showTable(g, api.ShowNeighbours, "next hops that XDP programs use; the daemon keeps them alive", neighbourRows),
	)
	return c
}

// showTable is a command that asks for a list and prints it as a table.
func showTable[R any](g *global, what, short string, rows func([]R) [][]cell) *cobra.Command {
	return showPart(g, what, what, short, func(list []R) []R { return list }, rows)
}

// showPart is one that makes the list of an answer.
func showPart[A, R any](g *global, name, what, short string, part func(A) []R, rows func([]R) [][]cell) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use: name, Short: short, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var answer A
			if err := a.client().Call(c.Context(), api.VerbShow, api.ShowArgs{What: what}, &answer); err != nil {
				return err
			}
			list := part(answer)
			if list == nil {
				list = []R{} // for programs, an empty list is one
			}
			if a.json {
				return printJSON(c.OutOrStdout(), list)
			}
			w := newScreen(c.OutOrStdout())
			w.table(rows(list))
			return w.err
		},
	}
	return a.options(c, true)
}

func showReasons(g *global) *cobra.Command {
	var all bool
	c := showTable(g, api.ShowReasons, "packets by reason", func(list []api.ReasonRow) [][]cell { return reasonRows(list, all) })
	c.Long = "Packets by the reason that they left shunt's programs for, since those were attached. With --all, or --json, all reasons that there are, also those that no packet had: " +
		"the closed list of docs/reasons.md."
	c.Flags().BoolVar(&all, "all", false, "reasons that no packet had, too")
	return c
}

func reasonRows(list []api.ReasonRow, all bool) [][]cell {
	rows := [][]cell{heads("REASON", "CLASS", ">PACKETS", "MEANING")}
	for _, r := range list {
		if all || r.Packets > 0 {
			rows = append(rows, []cell{{text: r.Reason}, {text: r.Class, sgr: dim}, number(r.Packets), {text: r.Doc}})
		}
	}
	return rows
}

func programRows(list []api.ProgramRow) [][]cell {
	rows := [][]cell{heads("INTERFACE", "HOOK", "TIER", ">ID", ">INSTRUCTIONS", ">VERIFIED", ">JITED BYTES", "TAG")}
	for _, p := range list {
		tag := p.Tag
		if p.ID == 0 {
			tag = "stub only: everything goes to Linux"
		}
		rows = append(rows, []cell{{text: p.Interface}, {text: p.Hook}, {text: orDash(p.Tier)}, number(p.ID), number(p.Instructions), number(p.Verified), number(p.JITed), {text: tag}})
	}
	return rows
}

func neighbourRows(list []api.NeighbourRow) [][]cell {
	rows := [][]cell{heads("INTERFACE", "ADDRESS", "STATE", "MAC")}
	for _, n := range list {
		rows = append(rows, []cell{{text: n.Interface}, {text: n.Address}, {text: n.State}, {text: orDash(n.MAC)}})
	}
	return rows
}

func eventRows(list []api.Event) [][]cell {
	rows := [][]cell{heads("TIME", ">ROUND", ">MS", "READ", "CHANGED")}
	for _, e := range list {
		lines := append(append([]string{}, e.Changes...), e.Failures...)
		sgr := ""
		if e.Error != "" {
			lines, sgr = append(lines, "failed: "+e.Error), red
		}
		for i, line := range lines {
			if i > 0 {
				rows = append(rows, []cell{{}, {}, {}, {}, {text: line, sgr: sgr}})
				continue
			}
			rows = append(rows, []cell{{text: e.When.Format("15:04:05.000")}, number(e.Generation), {text: fmt.Sprintf("%.2f", e.TookMS), right: true},
				{text: partList(e.Parts), sgr: dim}, {text: line, sgr: sgr}})
		}
	}
	return rows
}

// partList names what was read, short where that was everything.
func partList(parts []string) string {
	if len(parts) >= 10 {
		return "all"
	}
	return strings.Join(parts, "+")
}

func showInterfaces(g *global) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use: "interfaces", Short: "interfaces with their nodes, packets by hook, and reasons", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s api.Status
			if err := a.client().Call(c.Context(), api.VerbStatus, nil, &s); err != nil {
				return err
			}
			if a.json {
				return printJSON(c.OutOrStdout(), s.Interfaces)
			}
			w := newScreen(c.OutOrStdout())
			for n, i := range s.Interfaces {
				if n > 0 {
					fmt.Fprintln(w)
				}
				printInterface(w, &i)
			}
			return w.err
		},
	}
	return a.options(c, true)
}

func printInterface(w *screen, i *api.Interface) {
	state := stateCell(i.State)
	w.printf("%s (%d) %s", w.paint(bold, i.Name), i.Ifindex, w.paint(state.sgr, state.text))
	if i.Kind != "" {
		w.printf(", %s", i.Kind)
	}
	if !i.Up {
		fmt.Fprint(w, ", down")
	}
	if i.Hook != "none" {
		w.printf(", %s (%s)", i.Hook, i.Mode)
	}
	fmt.Fprintln(w)
	if len(i.Graph) > 0 {
		w.printf("  nodes   %s\n", strings.Join(i.Graph, " → "))
	}
	if i.Bridge != nil {
		w.printf("  bridge  %s: %s\n", i.Bridge.Name, i.Bridge.State)
	}
	for _, in := range i.Inputs {
		if len(in.VLANs) > 0 {
			w.printf("  vlan %v → %s: ip4 %s, ip6 %s\n", in.VLANs, in.Name, in.IP4, in.IP6)
		}
	}
	for _, hook := range []string{"xdp", "tc"} {
		p, ok := i.Hooks[hook]
		if !ok {
			continue
		}
		w.printf("  %-7s %d fast", hook, p.Fast)
		if top := topReasons(p.Dropped); top != "" {
			w.printf("; %d dropped: %s", total(p.Dropped), top)
		}
		if top := topReasons(p.Slow); top != "" {
			w.printf("; %d to Linux: %s", total(p.Slow), top)
		}
		fmt.Fprintln(w)
	}
	say := func(what string, r api.Reason) {
		w.printf("  %s:%s %s%s\n", what, spaced(r.Input, r.Family, r.Hook), w.paint(yellow, r.Reason), spaced(r.Detail))
	}
	for _, r := range i.Reasons {
		if r.Part {
			say("to Linux in part", r)
		} else {
			say("not fast", r)
		}
	}
	for _, r := range i.Egress {
		say("no way out from", r)
	}
}

// spaced puts a space before each word that there is.
func spaced(words ...string) (out string) {
	for _, word := range words {
		if word != "" {
			out += " " + word
		}
	}
	return out
}

func showGraph(g *global) *cobra.Command {
	a := &asking{global: g}
	var dot, svg bool
	c := &cobra.Command{
		Use: "graph", Short: "the processing graph: nodes, ways out, and what is left to Linux", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			args := api.ShowArgs{What: api.ShowGraph, Format: "text"}
			switch {
			case a.json && dot || a.json && svg || dot && svg:
				return usagef("choose one of --json, --dot and --svg")
			case a.json:
				args.Format = ""
			case dot:
				args.Format = "dot"
			case svg:
				args.Format = "svg"
			}
			var raw json.RawMessage
			if err := a.client().Call(c.Context(), api.VerbShow, args, &raw); err != nil {
				return err
			}
			if a.json {
				return printJSON(c.OutOrStdout(), raw)
			}
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return fmt.Errorf("understanding the daemon's answer: %w", err)
			}
			_, err := fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().BoolVar(&dot, "dot", false, "print it in the language of Graphviz")
	c.Flags().BoolVar(&svg, "svg", false, "print it as an SVG picture")
	return a.options(c, true)
}
