// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
)

// overflow keeps the daemon from reading while far more routes change than its socket holds, ending in a state that differs from the
// first in what the daemon mirrors: routes with an MTU of their own.
func overflow(b *suite.Bench) error {
	n, err := b.BuildLine(lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
	if err != nil {
		return fmt.Errorf("building a line: %w", err)
	}
	b.Later(n.Close)
	dut := n.Node(lab.Dut)
	e, err := b.StartEngine(dut, graph.Policy{Hook: "xdp"})
	if err != nil {
		return err
	}
	count := 100_000
	if b.Size.Name == "smoke" {
		count = 20_000
	}
	churned := lab.V4Prefixes(count)
	churned.First = netip.MustParsePrefix("60.0.0.0/24")
	for round := range min(b.Size.Rounds, 3) {
		b.Say("overflow %d: %d routes come, %d go", round+1, count, count/2)
		if err := overflowOnce(b, e, dut, churned, round); err != nil {
			return err
		}
	}
	return nil
}

func overflowOnce(b *suite.Bench, e *suite.Engine, dut *lab.NS, churned lab.Prefixes, round int) error {
	const c, variant = "overflow", "shunt"
	before := e.State().Reader
	hold, held := make(chan struct{}), make(chan error, 1)
	go func() {
		held <- e.Do(context.Background(), func(*datapath.Datapath) error { <-hold; return nil })
	}()
	start := time.Now()
	half := churned
	half.Count /= 2
	err := dut.ChangeRoutes(churned, "10.0.1.2", true)
	if err == nil {
		err = dut.ChangeRoutes(half, "10.0.1.2", false)
	}
	if err == nil {
		err = dut.Exec("ip route replace 61.0.%d.0/24 via 10.0.1.2 dev out mtu %d", round, 600+round)
	}
	took := time.Since(start)
	close(hold)
	released := time.Now()
	if holdErr := <-held; err == nil {
		err = holdErr
	}
	if err != nil {
		return err
	}
	b.Add(c, variant, "churn", "changes/s", float64(churned.Count+half.Count+1)/took.Seconds())
	for e.State().Reader.Resyncs == before.Resyncs {
		if time.Since(released) > 10*time.Second {
			return fmt.Errorf("%d changes while nobody read did not overflow the socket", churned.Count+half.Count)
		}
		time.Sleep(time.Millisecond)
	}
	b.Add(c, variant, "resynchronised after", "ms", micros(time.Since(released))/1e3)
	e.Settle()
	different, err := inconsistent(dut, e.State().Network)
	if err != nil {
		return err
	}
	same := 1.0
	if different != "" {
		b.Say("overflow %d: the daemon believes otherwise than a fresh reading: %s", round+1, different)
		same = 0
	}
	b.Add(c, variant, "consistent", "share", same)
	rest := churned
	rest.First, rest.Count = churned.At(half.Count), churned.Count-half.Count
	err = dut.ChangeRoutes(rest, "10.0.1.2", false)
	e.Settle()
	return err
}

// inconsistent compares what the daemon believes with a fresh reading, and says what is not the same.
func inconsistent(ns *lab.NS, believed *model.Network) (different string, err error) {
	err = ns.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		reader, err := kstate.Open(kstate.Options{})
		if err != nil {
			return fmt.Errorf("opening a second reader: %w", err)
		}
		defer reader.Close()
		fresh, err := reader.Read(kstate.All)
		if err != nil {
			return fmt.Errorf("reading everything anew: %w", err)
		}
		different = cmp.Diff(believed.Routes, fresh.Routes, exact) + cmp.Diff(believed.Addrs, fresh.Addrs, exact) + cmp.Diff(believed.Rules, fresh.Rules, exact)
		return nil
	})
	return different, err
}

var exact = cmp.Exporter(func(reflect.Type) bool { return true })
