// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

func newStatus(g *global) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use:   "status",
		Short: "show what is fast, and why the rest is not",
		Long: `Show each interface with its hook, whether forwarding from it is fast for each family, its packets (forwarded, dropped as Linux would, left to Linux), and one line for each reason why it is not.
The names of the reasons are listed by "shunt show reasons" and in docs/reasons.md.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s api.Status
			if err := a.client().Call(c.Context(), api.VerbStatus, nil, &s); err != nil {
				return err
			}
			if a.json {
				return printJSON(c.OutOrStdout(), s)
			}
			w := newScreen(c.OutOrStdout())
			printStatus(w, &s)
			return w.err
		},
	}
	return a.options(c, true)
}

// printStatus tells people; loopback and other interfaces without anything to say come last.
func printStatus(w *screen, s *api.Status) {
	if !s.Ready {
		fmt.Fprintf(w, "shunt %s is starting: it still reads Linux's configuration\n", s.Version)
		return
	}
	printHeadline(w, s)
	printInterfaces(w, s.Interfaces)
	printWhy(w, s.Interfaces)
	if s.NoGeneric != "" {
		fmt.Fprintf(w, "%s a change waits for its programs to be loaded, since the generic one is not there: %s\n", w.paint(yellow, "!"), s.NoGeneric)
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s could not be read: %s\n", w.paint(red, "!"), f)
	}
}

func printHeadline(w *screen, s *api.Status) {
	fast, up := 0, 0
	for _, i := range s.Interfaces {
		if i.State == api.StateFast {
			fast++
		}
		if i.Up && i.Name != "lo" {
			up++
		}
	}
	where := ""
	if s.Netns != "" {
		where = " in " + s.Netns
	}
	fmt.Fprintf(w, "shunt %s%s: %d of %d interfaces fast", s.Version, where, fast, up)
	switch {
	case s.Paused:
		fmt.Fprint(w, w.paint(yellow, ", paused (shunt resume)"))
	case len(s.PausedIf) > 0:
		fmt.Fprint(w, w.paint(yellow, ", "+strings.Join(s.PausedIf, " and ")+" paused (shunt resume)"))
	}
	fmt.Fprintf(w, "; %d kernel events", s.Sync.Events)
	if s.Sync.LastChange != nil {
		fmt.Fprintf(w, ", the last change took %.1f ms", s.Sync.LastChangeMS)
	}
	if s.Sync.Resyncs > 0 {
		fmt.Fprintf(w, ", %d resyncs", s.Sync.Resyncs)
	}
	if s.Sync.Failures > 0 {
		fmt.Fprint(w, w.paint(red, fmt.Sprintf(", %d rounds failed", s.Sync.Failures)))
	}
	fmt.Fprint(w, "\n\n")
	if len(s.Namespaces) > 1 {
		rows := [][]cell{heads("NAMESPACE", "STATE")}
		for _, n := range s.Namespaces {
			rows = append(rows, []cell{{text: orDash(n.Name)}, namespaceState(n)})
		}
		w.table(rows)
		fmt.Fprintln(w)
	}
}

func namespaceState(n api.Namespace) cell {
	switch {
	case n.Error != "":
		return cell{text: n.Error, sgr: red}
	case n.Ready:
		return cell{text: "ready", sgr: green}
	}
	return cell{text: "starting", sgr: yellow}
}

func printInterfaces(w *screen, faces []api.Interface) {
	rows := [][]cell{heads("INTERFACE", "HOOK", "STATE", "IP4", "IP6", ">FAST", ">DROPPED", ">SLOW", "")}
	for _, i := range faces {
		rows = append(rows, []cell{
			{text: i.Name}, {text: hookCell(i)}, stateCell(i.State), stateCell(i.IP4), stateCell(i.IP6),
			number(i.Packets.Fast), number(total(i.Packets.Dropped)), number(total(i.Packets.Slow)), {text: topReasons(i.Packets.Slow), sgr: dim},
		})
	}
	w.table(rows)
}

// hookCell says where programs run, and if it is not those made for the interface.
func hookCell(i api.Interface) string {
	if strings.Contains(i.Tier, "generic") {
		return i.Hook + ", generic"
	}
	return i.Hook
}

func stateCell(state string) cell {
	return cell{text: state, sgr: map[string]string{api.StateFast: green, api.StatePartial: yellow, api.StateSlow: red, api.StateOff: dim}[state]}
}

func total(byReason map[string]uint64) (n uint64) {
	for _, v := range byReason {
		n += v
	}
	return n
}

// topReasons are the three most frequent reasons of packets that were not forwarded.
func topReasons(slow map[string]uint64) string {
	names := make([]string, 0, len(slow))
	for name := range slow {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if slow[a] != slow[b] {
			return int(min(1, max(-1, int64(slow[b])-int64(slow[a]))))
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names[:min(3, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %d", name, slow[name]))
	}
	return strings.Join(parts, ", ")
}

// printWhy gives a line for each reason and what it concerns, with the objects that it speaks of. Loopback never forwards, which is no news.
func printWhy(w *screen, faces []api.Interface) {
	rows := [][]cell{heads("WHY NOT FAST", "", "REASON", "")}
	at := map[api.Reason]int{}
	for _, i := range faces {
		if i.Name == "lo" {
			continue
		}
		for _, r := range i.Reasons {
			what := i.Name
			if r.Input != "" {
				what += " " + r.Input
			}
			key := api.Reason{Reason: r.Reason, Family: r.Family, Hook: r.Hook, Input: what}
			if row, seen := at[key]; seen && r.Detail != "" {
				rows[row][3].text += "; " + r.Detail
				continue
			}
			at[key] = len(rows)
			rows = append(rows, []cell{{text: what}, {text: strings.TrimSpace(r.Family + " " + r.Hook)}, {text: r.Reason, sgr: yellow}, {text: r.Detail}})
		}
	}
	if len(rows) > 1 {
		fmt.Fprintln(w)
		w.table(rows)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
