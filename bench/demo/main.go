// SPDX-License-Identifier: Apache-2.0

// Command demo shows shunt at work on a virtual router and gateway: before and after, in rates and CPU time, what it
// does with single packets, what its sudden death costs, the same with a firewall in three dialects that it is told nothing about, a host with containers on a bridge, and two nodes of a cluster.
//
// Problem: whoever meets shunt wants to see it, on the own machine, in minutes, without risk.
//
// Mechanism: a line of three network namespaces (source, router, sink) joined by veth pairs, a generator
// that makes packets inside the kernel, a sink that counts them, and the real program, bin/shunt, run
// as a user would. Every figure is measured as it is shown; what a step claims, it checks.
//
// Invariant: the namespace that the demo is started in is not touched. Whatever ends the demo, its
// namespaces, processes and folders are removed; after a SIGKILL the next start does so.
//
// It needs root. `make demo` builds and calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	program := flags.String("shunt", "bin/shunt", "program to show")
	interval := flags.Duration("interval", time.Second, "length of one measurement; each figure is the median of three")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and BPF programs need root: sudo make demo")
	}
	if err := lab.Sweep(); err != nil {
		return fmt.Errorf("removing what an earlier run left: %w", err)
	}
	r, err := newRouter(*interval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s, err := newShunt(*program, r.dut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanUp()) }()

	d := &demo{ctx: ctx, router: r, shunt: s, screen: newScreen(os.Stdout)}
	return d.play()
}
