// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var memory = suite.Section{
	Name:  "memory",
	Title: "Memory, start and overflow",
	About: "Resident memory of the daemon's process (VmRSS two seconds after it is ready, and its highest value), and the time from its start until it is ready, by the size of the routing table. " +
		"Then routes are changed as fast as the kernel takes them while the daemon is kept from reading, so that its netlink socket overflows: what it believes afterwards " +
		"is compared with a fresh reading of everything.",
	Run: runMemory,
}

func runMemory(b *suite.Bench) error {
	sizes := []int{extents[b.Size.Name].routes[1], extents[b.Size.Name].routes[len(extents[b.Size.Name].routes)-1]}
	for _, n := range sizes {
		if err := footprint(b, n); err != nil {
			return fmt.Errorf("with %d routes: %w", n, err)
		}
		if err := b.Undo(); err != nil {
			return err
		}
	}
	return overflow(b)
}

func footprint(b *suite.Bench, routes int) error {
	b.Say("making a table of %d routes", routes)
	n, err := b.BuildLine(lab.LineOptions{V4: lab.V4Prefixes(routes), Receive: lab.ReceiveGRO})
	if err != nil {
		return fmt.Errorf("building a line: %w", err)
	}
	b.Later(n.Close)
	d, err := suite.NewDaemon(b, n.Node(lab.Dut))
	if err != nil {
		return err
	}
	c := plural(routes, "route")
	for round := range min(b.Size.Rounds, 3) {
		b.Say("%s: start %d", c, round+1)
		start := time.Now()
		if err := d.Start("xdp"); err != nil {
			return err
		}
		b.Add(c, "shunt", "ready after", "ms", float64(time.Since(start).Microseconds())/1e3)
		time.Sleep(min(2*time.Second, 2*extents[b.Size.Name].life))
		for metric, field := range map[string]string{"resident": "VmRSS", "highest": "VmHWM", "anonymous": "RssAnon"} {
			mib, err := d.Memory(field)
			if err != nil {
				return err
			}
			b.Add(c, "shunt", metric, "MiB", mib)
		}
		if err := d.Stop(false); err != nil {
			return err
		}
	}
	return nil
}
