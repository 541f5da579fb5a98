// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var obeyed = suite.Section{
	Name:  "obeyed",
	Title: "Is Linux obeyed when the daemon is not there",
	About: "Packets flow; something happens to the daemon; at once Linux's configuration is changed such that Linux drops these packets. How long after the change's system call has returned did " +
		"the last packet arrive? \"Linux\" is the same without shunt: what was on its way already.",
	Run: runObeyed,
}

// ban is a change after which Linux drops the packets of the stream.
type ban struct {
	name     string
	src      string
	do, undo func() error
}

func (p *patient) bans() ([]ban, error) {
	ns := p.Node(lab.Dut)
	nl := ns.Netlink()
	out, err := nl.LinkByName("out")
	if err != nil {
		return nil, err
	}
	addr := &netlink.Addr{IPNet: host("10.0.0.2")}
	route := &netlink.Route{Dst: host("16.0.0.1"), Type: unix.RTN_BLACKHOLE}
	add, flush, err := nftRules(p.Bench, ns, net.IP{16, 0, 0, 1})
	if err != nil {
		return nil, err
	}
	rpFilter, err := sysctl(p.Bench, ns, "net/ipv4/conf/in/rp_filter")
	if err != nil {
		return nil, err
	}
	return []ban{
		{"nft rule", "10.0.0.2", add, flush},
		{"address", "10.0.0.2", func() error { return nl.AddrAdd(out, addr) }, func() error { return nl.AddrDel(out, addr) }},
		{"rp_filter", "16.0.9.9", func() error { return rpFilter("1") }, func() error { return rpFilter("0") }},
		{"route", "10.0.0.2", func() error { return nl.RouteAdd(route) }, func() error { return nl.RouteDel(route) }},
	}, nil
}

// states of the daemon at the moment of the change.
var states = []struct {
	name        string
	watch       time.Duration // for packets that should not come any more
	enter, exit func(*patient) error
}{
	{"linux", 500 * time.Millisecond, func(p *patient) error { return p.d.Stop(true) }, nil},
	{"running", 500 * time.Millisecond, nil, nil},
	{"after kill -9", time.Second, func(p *patient) error { return p.d.Kill() }, nil},
	{"under SIGSTOP", 1500 * time.Millisecond, func(p *patient) error { return p.d.Signal(syscall.SIGSTOP) },
		func(p *patient) error { return p.d.Signal(syscall.SIGCONT) }},
}

func runObeyed(b *suite.Bench) error {
	p, err := newPatient(b)
	if err != nil {
		return err
	}
	bans, err := p.bans()
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, ban := range bans {
		for i, s := range states {
			turns = append(turns, measure.Turn{Name: ban.name + ", " + s.name, Run: func(set *measure.Set) error {
				return p.Retry(func() error {
					took, fast, err := p.obey(ban, i)
					if err != nil {
						return err
					}
					set.Add(ban.name, s.name, "obeyed after", "ms", took.Seconds()*1e3)
					if s.name != "linux" {
						set.Add(ban.name, s.name, "fast before", "share", fast)
					}
					return nil
				})
			}})
		}
	}
	return b.Turns("changes", extents[b.Size.Name].lives, turns)
}

// obey times one ban in one state of the daemon; fast is the share of the packets before it that took the fast path.
func (p *patient) obey(ban ban, state int) (took time.Duration, fast float64, err error) {
	s := states[state]
	if err := p.d.Start("xdp"); err != nil {
		return 0, 0, err
	}
	if err := p.d.UntilQuiet(); err != nil {
		return 0, 0, err
	}
	if s.name == "linux" {
		if err := s.enter(p); err != nil {
			return 0, 0, err
		}
	}
	st := p.Forward("obey "+ban.src, false, lab.V4Prefixes(1))
	st.Traffic = p.TX().Traffic(ban.src, lab.V4Prefixes(1))
	st.Traffic.Rate = 50_000
	g, err := p.Generator(st)
	if err != nil {
		return 0, 0, err
	}
	if err := g.Start(); err != nil {
		return 0, 0, err
	}
	if fast, err = p.shareFast(s.name != "linux"); err == nil && s.enter != nil && s.name != "linux" {
		err = s.enter(p)
	}
	var returned uint64
	if err == nil {
		err = p.flowing()
	}
	if err == nil {
		err = ban.do()
		returned = suite.Monotonic()
		time.Sleep(min(s.watch, 3*extents[p.Bench.Size.Name].life))
		defer func() { err = errors.Join(err, ban.undo()) }()
	}
	last, readErr := p.sink.Read()
	err = errors.Join(err, readErr, g.Stop())
	if s.exit != nil {
		err = errors.Join(err, s.exit(p))
	}
	if err == nil && suite.Monotonic() < last.Last+uint64(50*time.Millisecond) {
		err = fmt.Errorf("%s, %s: packets were still forwarded at the end", ban.name, s.name)
	}
	return time.Duration(max(0, int64(last.Last)-int64(returned))), fast, err
}

// flowing says whether packets still arrive: the end of a stream that had dried up before would prove nothing.
func (p *patient) flowing() error {
	seen, err := p.sink.Read()
	if gap := time.Duration(suite.Monotonic() - seen.Last); err == nil && gap > extents[p.Bench.Size.Name].gap {
		return suite.Spoiled(fmt.Sprintf("no packet had arrived for %s", gap.Round(time.Millisecond)))
	}
	return err
}

// shareFast lets the stream run for a while.
func (p *patient) shareFast(ask bool) (float64, error) {
	if !ask {
		time.Sleep(100 * time.Millisecond)
		return 0, nil
	}
	fast, err := p.d.Fast("in")
	if err != nil {
		return 0, err
	}
	seen, err := p.sink.Read()
	if err != nil {
		return 0, err
	}
	time.Sleep(100 * time.Millisecond)
	// The sink is read first, then last, so that the share is not flattered.
	fastAfter, err := p.d.Fast("in")
	if err != nil {
		return 0, err
	}
	seenAfter, err := p.sink.Read()
	return float64(fastAfter-fast) / float64(max(1, seenAfter.Packets-seen.Packets)), err
}
