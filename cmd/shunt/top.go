// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

func newTop(g *global) *cobra.Command {
	a := &asking{global: g}
	var every time.Duration
	var rounds, most int
	var flows bool
	c := &cobra.Command{
		Use:   "top",
		Short: "show packet rates, refreshed",
		Long: "Show packet rates of interfaces or, with --flows, of the heaviest flows, refreshed.\n\n" +
			"Flows are estimated: while someone looks, one packet of 64 is looked at, fast or slow, at a cost of some nanoseconds per packet. Nothing is sampled otherwise.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usagef("--interval %s: at least 100ms", every)
			}
			if rounds < 0 {
				return usagef("--count %d: at least 1, or 0 for until interrupted", rounds)
			}
			if flows {
				return a.topFlows(c, every, rounds, most)
			}
			if a.json || c.Flags().Changed("most") {
				return usagef("--json and --most are for --flows; `shunt status --json` has the counters of interfaces")
			}
			w := newScreen(c.OutOrStdout())
			var old api.Status
			then := time.Now()
			for n := 0; rounds == 0 || n <= rounds; n++ {
				var s api.Status
				if err := a.client().Call(c.Context(), api.VerbStatus, nil, &s); err != nil {
					return err
				}
				now := time.Now()
				if n > 0 {
					printRates(w, &old, &s, now.Sub(then))
				}
				if w.err != nil {
					return w.err
				}
				old, then = s, now
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
		},
	}
	c.Flags().DurationVar(&every, "interval", time.Second, "time between two looks")
	c.Flags().IntVar(&rounds, "count", 0, "end after so many looks (default: when interrupted)")
	c.Flags().BoolVar(&flows, "flows", false, "the heaviest flows instead of interfaces")
	c.Flags().IntVarP(&most, "most", "n", 20, "with --flows: how many to show")
	return a.options(c, true)
}

// printRates prints what happened between two looks, in place on a terminal.
func printRates(w *screen, old, s *api.Status, passed time.Duration) {
	w.wipe()
	w.printf("shunt %s  %s\n\n", s.Version, time.Now().Format("15:04:05"))
	before := map[int]api.Interface{}
	for _, i := range old.Interfaces {
		before[i.Ifindex] = i
	}
	rows := [][]cell{heads("INTERFACE", "HOOK", "STATE", ">FAST/S", ">MBIT/S", ">DROP/S", ">SLOW/S", ">FAST %", "SLOW BECAUSE")}
	for _, i := range s.Interfaces {
		if i.Hook == "none" {
			continue
		}
		b := before[i.Ifindex].Packets
		fast, slow := rate(b.Fast, i.Packets.Fast, passed), rate(total(b.Slow), total(i.Packets.Slow), passed)
		dropped := rate(total(b.Dropped), total(i.Packets.Dropped), passed)
		share := "-"
		if all := fast + dropped + slow; all > 0 {
			share = fmt.Sprintf("%.1f", 100*(fast+dropped)/all)
		}
		recent := map[string]uint64{}
		for reason, n := range i.Packets.Slow {
			if n > b.Slow[reason] {
				recent[reason] = n - b.Slow[reason]
			}
		}
		rows = append(rows, []cell{{text: i.Name}, {text: i.Hook}, stateCell(i.State), decimal(fast), decimal(8 * rate(b.Bytes, i.Packets.Bytes, passed) / 1e6),
			decimal(dropped), decimal(slow), {text: share, right: true}, {text: topReasons(recent), sgr: dim}})
	}
	w.table(rows)
}

func rate(old, now uint64, passed time.Duration) float64 {
	if now < old {
		return 0 // attached anew in between
	}
	return float64(now-old) / passed.Seconds()
}

func decimal(v float64) cell {
	if v < 10 {
		return cell{text: fmt.Sprintf("%.1f", v), right: true}
	}
	return cell{text: fmt.Sprintf("%.0f", v), right: true}
}
