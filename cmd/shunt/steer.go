// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/daemon"
)

func newPause(g *global) *cobra.Command {
	return steer(g, api.VerbPause, "pause [IFACE]", "let Linux forward, all or what comes in or leaves by one interface",
		`Everything, or what comes in or leaves by IFACE, goes to Linux from the next packet on. The daemon keeps following Linux; "shunt resume" ends it, as does a
new daemon. The pause of an interface follows it when it is renamed, and outlives it: a later one of that name is paused, too.`)
}

func newResume(g *global) *cobra.Command {
	return steer(g, api.VerbResume, "resume [IFACE]", "undo pause", `Make fast again what "shunt pause" took out. Without IFACE every pause ends. While everything is paused, no single interface can be resumed.`)
}

func steer(g *global, verb api.Verb, use, short, long string) *cobra.Command {
	a := &asking{global: g}
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: between(0, 1, "[IFACE]"), ValidArgsFunction: interfaceNames,
		RunE: func(c *cobra.Command, args []string) error {
			var p api.PauseArgs
			if len(args) > 0 {
				if args[0] == "" { // a script's empty variable is not to be taken for all
					return usagef("%s: an interface has no empty name; without one it is about all", c.CommandPath())
				}
				p.Interface = interfaceName(args[0])
			}
			return a.client().Call(c.Context(), verb, p, nil)
		},
	}
	return a.options(c, false)
}

var stopLimit = 30 * time.Second

func newStop(g *global) *cobra.Command {
	var detach bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "end the daemon",
		Long: `End the daemon and wait until it has ended. The XDP stubs stay attached and pass everything to Linux, so that neither this nor the start of a new
daemon loses a packet. With --detach everything is removed from the kernel and the file system; some drivers lose packets at that moment. Where no
daemon runs any more, --detach removes what an earlier one left in this network namespace and in those that it served by name, and tells what that was.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(c.Context(), stopLimit, errHung)
			defer cancel()
			client := &api.Client{RuntimeDir: g.runtimeDir}
			err := client.Call(ctx, api.VerbStop, api.StopArgs{Detach: detach}, nil) // answered when all is gone but the process
			if gone := (*api.Error)(nil); detach && errors.As(err, &gone) && gone.Kind == api.KindNoDaemon {
				return clean(newScreen(c.OutOrStdout()), g.runtimeDir)
			}
			if errors.Is(err, errHung) {
				return hung(client.PID(c.Context()))
			}
			return err
		},
	}
	c.Flags().BoolVar(&detach, "detach", false, "remove everything from the kernel and the file system")
	return c
}

var errHung = errors.New("the daemon did not end")

// hung says how to get rid of a daemon that does not answer.
func hung(pid int) error {
	who := "its PID"
	if pid != 0 {
		who = fmt.Sprint(pid)
	}
	return fmt.Errorf("%w within %s; its log says why. If it hangs: kill -9 %s, then `shunt stop --detach`, which removes what it leaves", errHung, stopLimit, who)
}

// clean removes what a daemon left that is gone, and says so.
func clean(w *screen, runtimeDir string) error {
	removed, err := daemon.Clear(runtimeDir)
	for _, what := range removed {
		w.printf("removed %s\n", what)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintln(w, "no daemon runs, and nothing of shunt is left")
	}
	if err == nil {
		err = w.err
	}
	return err
}
