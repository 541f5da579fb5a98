// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var manySection = suite.Section{
	Name:   "many",
	Title:  "Very many containers",
	Budget: budget(240),
	About: "A host with a bridge of very many veths and stations. Resident memory of the daemon's process (VmRSS two seconds after it is ready), the time from its start until it is ready, and the time from the first event of a change to its effect, as " +
		"`shunt status` tells it: a port is told to suppress neighbours, which makes the port slow, and told not to.",
	Run: runMany,
}

const manyCase = "very many containers"

func runMany(b *suite.Bench) error {
	e := extents[b.Size.Name]
	ns, err := lab.NewNS(fmt.Sprintf("bench%d-many", os.Getpid()))
	if err != nil {
		return err
	}
	b.Later(ns.Delete)
	b.Say("making %d veths and %d stations", e.veths, e.entries)
	b.Fact("veths, stations", fmt.Sprint(e.veths, ", ", e.entries))
	if err := ns.Feed(manyVeths(e.veths), "ip -batch -"); err != nil {
		return err
	}
	if err := ns.Feed(manyEntries(e.entries, e.veths), "bridge -batch -"); err != nil {
		return err
	}
	d, err := suite.NewDaemon(b, ns)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := d.Start("auto"); err != nil {
		return err
	}
	b.Add(manyCase, shuntAuto, "ready after", "ms", time.Since(start).Seconds()*1e3)
	if err := d.UntilQuiet(); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	for metric, field := range map[string]string{"resident": "VmRSS", "highest": "VmHWM"} {
		mib, err := d.Memory(field)
		if err != nil {
			return err
		}
		b.Add(manyCase, shuntAuto, metric, "MiB", mib)
	}
	for round := range e.changes {
		option := []string{"on", "off"}[round%2]
		if err := ns.Exec("bridge link set dev v%d neigh_suppress %s", 1+round/2, option); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond)
		s, err := d.Status()
		if err != nil {
			return err
		}
		b.Add(manyCase, shuntAuto, "reaction", "ms", s.Sync.LastChangeMS)
	}
	return nil
}

// manyVeths are commands that make a bridge of n veths. Their other ends are in the same namespace, which makes no difference to whoever reads them.
func manyVeths(n int) string {
	var s strings.Builder
	s.WriteString("link add br0 type bridge ageing_time 3600000\naddress add 10.88.0.1/16 dev br0\nlink set br0 up\n")
	for i := range n {
		fmt.Fprintf(&s, "link add v%d type veth peer name w%d\nlink set v%d master br0\nlink set v%d up\nlink set w%d up\n", i, i, i, i, i)
	}
	return s.String()
}

// manyEntries are commands that make n stations known at the ports.
func manyEntries(n, ports int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "fdb add 02:98:%02x:%02x:%02x:01 dev v%d master dynamic\n", byte(i>>16), byte(i>>8), byte(i), i%ports)
	}
	return s.String()
}
