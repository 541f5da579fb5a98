// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

// showFlows is one look of a second.
func showFlows(g *global) *cobra.Command {
	a := &asking{global: g}
	var most int
	c := &cobra.Command{
		Use: "flows", Short: "the heaviest flows of a second", Args: noArgs,
		Long: "The heaviest flows of the next second, fast or not, as a sample of one packet of 64 shows them. \"shunt top --flows\" goes on until it is interrupted.",
		RunE: func(c *cobra.Command, _ []string) error { return a.topFlows(c, time.Second, 1, most) },
	}
	c.Flags().IntVarP(&most, "most", "n", 20, "how many to show")
	return a.options(c, true)
}

// topFlows shows the heaviest flows of each interval until interrupted, or after so many intervals.
func (a *asking) topFlows(c *cobra.Command, every time.Duration, rounds, most int) error {
	if most < 1 {
		return usagef("--most %d: at least 1", most)
	}
	w := newScreen(c.OutOrStdout())
	var old api.Flows
	then := time.Now()
	for n := 0; rounds == 0 || n <= rounds; n++ {
		var now api.Flows
		if err := a.client().Call(c.Context(), api.VerbShow, api.ShowArgs{What: api.ShowFlows}, &now); err != nil {
			return err
		}
		read := time.Now()
		if n > 0 {
			recent := flowsBetween(&old, &now)
			recent.Flows = recent.Flows[:min(most, len(recent.Flows))]
			if a.json {
				if err := printJSON(c.OutOrStdout(), recent); err != nil {
					return err
				}
			} else {
				printFlows(w, recent, read.Sub(then))
				if w.err != nil {
					return w.err
				}
			}
		}
		old, then = now, read
		if rounds > 0 && n == rounds {
			break
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
	return nil
}

// flowsBetween is what was added between two looks; all of the second one where sampling began anew in between.
func flowsBetween(old, now *api.Flows) *api.Flows {
	out := *now
	if !old.Since.Equal(now.Since) {
		return &out
	}
	type key struct{ protocol, from, to string }
	keyOf := func(f api.FlowRow) key { return key{f.Protocol, f.From.String(), f.To.String()} }
	before := map[key]uint64{}
	for _, f := range old.Flows {
		before[keyOf(f)] = f.Packets
	}
	out.Packets -= min(old.Packets, now.Packets)
	out.Flows = []api.FlowRow{}
	for _, f := range now.Flows {
		f.Packets -= min(before[keyOf(f)], f.Packets)
		if f.Packets > 0 {
			out.Flows = append(out.Flows, f)
		}
	}
	slices.SortStableFunc(out.Flows, func(a, b api.FlowRow) int { return cmp.Compare(b.Packets, a.Packets) })
	return &out
}

// printFlows prints flows in place on a terminal.
func printFlows(w *screen, f *api.Flows, passed time.Duration) {
	w.wipe()
	w.printf("%s  about %s packets/s, one of %d looked at\n\n", time.Now().Format("15:04:05"), decimal(float64(f.Packets)/passed.Seconds()).text, f.Each)
	rows := [][]cell{heads(">PACKETS/S", ">SHARE %", "PROTOCOL", "FROM", "TO")}
	for _, flow := range f.Flows {
		rows = append(rows, []cell{decimal(float64(flow.Packets) / passed.Seconds()), decimal(100 * float64(flow.Packets) / float64(max(f.Packets, 1))),
			{text: flow.Protocol}, {text: flow.From.String()}, {text: flow.To.String()}})
	}
	w.table(rows)
}
