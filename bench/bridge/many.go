// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

var manySection = suite.Section{
	Name:   "many",
	Title:  "Very many containers",
	Budget: budget(240),
	About: "A host with a bridge of very many veths and stations. Resident memory of the daemon's process (VmRSS two seconds after it is ready), the time from its start until it is ready, until every port is fast and until each has a program of its own, and the time from the first event of a change to its effect, as " +
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
	ends, err := lab.NewNS(fmt.Sprintf("bench%d-ends", os.Getpid()))
	if err != nil {
		return err
	}
	b.Later(ends.Delete)
	if err := ends.Shell("for f in all default; do echo 1 >/proc/sys/net/ipv6/conf/$f/disable_ipv6; done"); err != nil { // a thousand neighbours in one namespace would talk all the time
		return err
	}
	b.Say("making %d veths and %d stations", e.veths, e.entries)
	b.Fact("veths, stations", fmt.Sprint(e.veths, ", ", e.entries))
	if err := ns.Feed(manyVeths(e.veths, ends.Name), "ip -batch -"); err != nil {
		return err
	}
	if err := ends.Feed(manyEnds(e.veths), "ip -batch -"); err != nil {
		return err
	}
	if err := ns.Shell(fmt.Sprintf("for i in $(seq 200); do [ $(bridge link | grep -c 'state forwarding') = %d ] && exit 0; sleep 0.1; done; exit 1", e.veths)); err != nil {
		return fmt.Errorf("waiting for the ports of the bridge: %w", err)
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
	for _, stage := range []struct {
		metric string
		done   func(*api.Interface) bool
	}{
		{"all fast after", func(i *api.Interface) bool { return i.Tier != string(datapath.Awaited) }},
		{"all specialised after", func(i *api.Interface) bool { return i.Tier == string(datapath.Specialised) }},
	} {
		if err := untilEach(d, stage.done); err != nil {
			return fmt.Errorf("%s: %w", stage.metric, err)
		}
		b.Add(manyCase, shuntAuto, stage.metric, "ms", time.Since(start).Seconds()*1e3)
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

// untilEach waits until something holds of every veth. It asks seldom: the answer has a thousand devices.
func untilEach(d *suite.Daemon, done func(*api.Interface) bool) error {
	left := 0
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		s, err := d.Status()
		if err != nil {
			return err
		}
		left = 0
		for i := range s.Interfaces {
			if f := &s.Interfaces[i]; f.Kind == "veth" && !done(f) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d devices are left after three minutes", left)
}

// manyVeths are commands that make a bridge of n veths. Their other ends are in one namespace, which makes no difference to whoever reads them.
func manyVeths(n int, ends string) string {
	var s strings.Builder
	s.WriteString("link add br0 type bridge ageing_time 3600000\naddress add 10.88.0.1/16 dev br0\nlink set br0 up\n")
	for i := range n {
		fmt.Fprintf(&s, "link add v%d type veth peer name w%d netns %s\nlink set v%d master br0\nlink set v%d up\n", i, i, ends, i, i)
	}
	return s.String()
}

func manyEnds(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "link set w%d up\n", i)
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
