// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/check"
)

func newCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "look at kernel, drivers, offloads and conflicts, with advice",
		Long: `Print one line for each thing that shunt depends on: [OK], [WARN] where something works, but less or slower than it could, or [FAIL] where it does not, with what would help.
It needs no daemon and changes nothing. Exit status: 0 without failures, 3 with.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			results := check.All()
			if asJSON {
				if err := printJSON(c.OutOrStdout(), results); err != nil {
					return err
				}
			} else {
				w := newScreen(c.OutOrStdout())
				if printResults(w, results); w.err != nil {
					return w.err
				}
			}
			for _, r := range results {
				if r.Level == check.Fail {
					return silentError{exitUnsupported}
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

func printResults(w *screen, results []check.Result) {
	rows := [][]cell{heads("RESULT", "SUBJECT", "FOUND")}
	for _, r := range results {
		text := r.Text
		if r.Advice != "" {
			text += "; " + r.Advice
		}
		rows = append(rows, []cell{{text: "[" + string(r.Level) + "]", sgr: map[check.Level]string{check.OK: green, check.Warn: yellow, check.Fail: red}[r.Level]},
			{text: r.Subject}, {text: text}})
	}
	w.table(rows)
}
