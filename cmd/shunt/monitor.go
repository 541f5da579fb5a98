// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
)

func newMonitor(g *global) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use:   "monitor",
		Short: "print changes as they happen",
		Long: `Print each round that changed something, or failed, until interrupted or the daemon ends: when, how long from the first event of the kernel to the
effect, and what is different. Without --netns those of all namespaces that are served. With --json one event in a line.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := newScreen(c.OutOrStdout())
			err := a.client().Stream(c.Context(), api.VerbMonitor, nil, func(raw json.RawMessage) error {
				if a.json {
					_, err := fmt.Fprintln(w, string(raw))
					return err
				}
				var e api.Event
				if err := json.Unmarshal(raw, &e); err != nil {
					return fmt.Errorf("understanding the daemon's answer: %w", err)
				}
				printEvent(w, &e)
				return w.err
			})
			if errors.Is(err, context.Canceled) {
				return nil // interrupted, which is how it ends
			}
			return err
		},
	}
	return a.options(c, true)
}

func printEvent(w *screen, e *api.Event) {
	head := e.When.Format("15:04:05.000")
	if e.Netns != "" {
		head += " " + e.Netns
	}
	if e.Error != "" {
		w.printf("%s  %s\n", head, w.paint(red, "failed: "+e.Error))
		return
	}
	text := strings.Join(append(append([]string{}, e.Changes...), e.Failures...), "; ")
	w.printf("%s  %s  %s\n", head, w.paint(dim, fmt.Sprintf("%6.2f ms", e.TookMS)), text)
}
