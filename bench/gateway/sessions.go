// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var sessionsSection = suite.Section{
	Name:   "sessions",
	Title:  "Many masqueraded sessions",
	Budget: budget(600),
	About: "The masqueraded flows again, without rules, in growing numbers: every session has had packets both ways, and each measured packet belongs to one of them at random. Beside each number a single session, in the same run. The " +
		"kernel's table of connections is one for all namespaces, so it holds those of all variants; where it has fewer buckets than that it is given as many.",
	Run: runSessions,
}

func sessionsCase(n int) string { return fmt.Sprintf("%d sessions", n) }

// oneBeside is a single session in the same run as n.
func oneBeside(n int) string { return fmt.Sprintf("1 session, beside %d", n) }

func runSessions(b *suite.Bench) error {
	for _, n := range extents[b.Size.Name].sessions {
		if err := b.Part(sessionsCase(n), func() error {
			variants := []suite.Variant{compared[0], compared[2], compared[3]}
			if err := roomForSessions(b, n, n*len(variants)); err != nil {
				return err
			}
			return measureFlows(b, variants, flowCase{oneBeside(n), 1, masqueraded, keepSessions}, flowCase{sessionsCase(n), n, masqueraded, keepSessions})
		}); err != nil {
			return err
		}
	}
	return nil
}

// keepSessions has routers masquerade, and keep what they track for as long as a section may take.
func keepSessions(lanes []*suite.Lane) error {
	for _, l := range lanes {
		for _, name := range []string{"udp_timeout", "udp_timeout_stream"} {
			if err := l.Node(lab.Dut).Sysctl("net.netfilter.nf_conntrack_" + name + "=3600"); err != nil {
				return err
			}
		}
	}
	return masquerade(table{}, lanes)
}

// roomForSessions has the kernel track so many connections in one namespace, and all in a table that suits. Both are the whole machine's, and
// given back at the end.
func roomForSessions(b *suite.Bench, most, all int) error {
	for name, n := range map[string]int{"nf_conntrack_max": most, "nf_conntrack_buckets": all} {
		path := "/proc/sys/net/netfilter/" + name
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("finding out how many connections are tracked: %w", err)
		}
		before := strings.TrimSpace(string(text))
		room := n + n/8
		if has, err := strconv.Atoi(before); err != nil || has >= room {
			b.Fact(name, before)
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(room)), 0); err != nil {
			return fmt.Errorf("making room for %d connections: %w", n, err)
		}
		b.Later(func() error { return os.WriteFile(path, []byte(before), 0) })
		b.Fact(name, strconv.Itoa(room))
	}
	return nil
}

// assured is how long a UDP flow must have gone both ways before the kernel counts it as a stream.
const assured = 2200 * time.Millisecond

// routerOut is the router's address towards the sink.
var routerOut = netip.MustParseAddr("10.0.1.1")

// answered gives the answer to a flow's packets, as the other side sees them.
type answered func(there lab.Flow) lab.Flow

func plain(f lab.Flow) lab.Flow {
	f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	return f
}

// masqueraded are flows behind the router's address.
func masqueraded(f lab.Flow) lab.Flow {
	f = plain(f)
	f.Dst = routerOut
	return f
}

// establish sends a packet of each of n flows there and back, twice with the time between that the kernel asks for.
func establish(b *suite.Bench, lanes []*suite.Lane, n int, answer answered) error {
	last := make([]time.Time, len(lanes))
	for i := range 2 {
		for j, l := range lanes {
			time.Sleep(time.Until(last[j].Add(assured)))
			if n > 10_000 {
				b.Say("%s: %d sessions there and back, %d of 2", l.Variant, n, i+1)
			}
			if err := exchange(l, n, answer); err != nil {
				return fmt.Errorf("establishing flows in %s: %w", l.Variant, err)
			}
			last[j] = time.Now()
		}
	}
	for _, l := range lanes {
		tracked, err := l.Node(lab.Dut).ReadSysctl("net.netfilter.nf_conntrack_count")
		if err != nil {
			return err
		}
		if has, err := strconv.Atoi(tracked); err != nil || has < n {
			return fmt.Errorf("%s tracks %s connections of %d", l.Variant, tracked, n)
		}
		b.Fact("connections tracked, "+l.Variant, tracked)
	}
	return nil
}

// together are the frames that go before their answers do.
const together = 1024

// exchange sends a packet of each of n flows, and the answers to them: in this order, or an answer would be a connection of its own.
func exchange(l *suite.Lane, n int, answer answered) error {
	t := l.TX().Traffic(trafficSource.String(), prefixes)
	payload := string(make([]byte, 18))
	var there, back [][]byte
	for i := range n {
		f := lab.Flow{SrcMAC: t.SrcMAC, DstMAC: t.DstMAC, Src: t.Src, Dst: prefixes.Host(i%prefixes.Count, t.Host), SrcPort: t.SrcPort + uint16(i/prefixes.Count), DstPort: t.DstPort}
		there = append(there, f.UDP(payload))
		a := answer(f)
		a.SrcMAC, a.DstMAC = l.RX().MAC, l.Out().MAC
		back = append(back, a.UDP(payload))
		if len(there) < together && i < n-1 {
			continue
		}
		if err := errors.Join(arrive(l.TX(), l.In(), there), arrive(l.RX(), l.Out(), back)); err != nil {
			return err
		}
		there, back = there[:0], back[:0]
	}
	return nil
}

// arrive sends frames and waits until the router has taken them all in.
func arrive(from, router *lab.Port, frames [][]byte) error {
	before, err := router.Received()
	if err != nil {
		return err
	}
	if err := from.Send(frames...); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		now, err := router.Received()
		if err != nil {
			return err
		}
		if now >= before+uint64(len(frames)) {
			time.Sleep(time.Millisecond) // what was taken in last is on its way
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s took %d of %d frames in", router, now-before, len(frames))
		}
	}
}
