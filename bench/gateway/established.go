// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var establishedSection = suite.Section{
	Name:   "established",
	Title:  "Established flows",
	Budget: budget(90),
	About: "The way nearly every firewall begins: \"established, related accept\", then 100 source rules that do not match. 50 UDP flows have had packets in both directions for more than two seconds, so that " +
		"connection tracking holds them for assured; the measured packets are theirs, in the direction of the first one.",
	Run: runEstablished,
}

func runEstablished(b *suite.Bench) error {
	for _, d := range []dialect{legacy, nft} {
		if err := b.Part(establishedCase(d), func() error { return measureEstablished(b, d) }); err != nil {
			return err
		}
	}
	return nil
}

func measureEstablished(b *suite.Bench, d dialect) error {
	return measureFlows(b, establishedCase(d), trafficSource, func(lanes []*suite.Lane) error { return give(d, stateful(source(100)), lanes...) })
}

// measureFlows compares routers on established flows: made ready by prepare, and seen from behind as of that source.
func measureFlows(b *suite.Bench, name string, seen netip.Addr, prepare func(lanes []*suite.Lane) error) error {
	lanes, err := openLanes(b, compared)
	if err != nil {
		return err
	}
	if err := prepare(lanes); err != nil {
		return err
	}
	if err := establish(b, lanes, seen); err != nil {
		return err
	}
	if err := ready(lanes...); err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(name, l.AtIngress(), l.Forward("plain", false, prefixes)))
	}
	return b.Turns(name, extents[b.Size.Name].rounds, turns)
}

func establishedCase(d dialect) string { return "established, then 100 rules, " + string(d) }

// assured is how long a UDP flow must have gone both ways before the kernel counts it as a stream.
const assured = 2200 * time.Millisecond

// routerOut is the router's address towards the sink.
var routerOut = netip.MustParseAddr("10.0.1.1")

// establish sends a packet of each flow there and back, twice with the time between that the kernel asks for. seen is what the other side takes for their source.
func establish(b *suite.Bench, lanes []*suite.Lane, seen netip.Addr) error {
	for i := range 2 {
		if i > 0 {
			time.Sleep(assured)
		}
		for _, l := range lanes {
			err := l.TX().Send(flows(l.TX(), true, seen)...)
			time.Sleep(50 * time.Millisecond) // an answer that came first would be a connection of its own
			if err := errors.Join(err, l.RX().Send(flows(l.RX(), false, seen)...)); err != nil {
				return fmt.Errorf("establishing flows: %w", err)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, l := range lanes {
		n, err := l.Node(lab.Dut).ReadSysctl("net.netfilter.nf_conntrack_count")
		if err != nil {
			return err
		}
		b.Fact("connections tracked, "+l.Variant, n)
	}
	return nil
}

// flows are a packet of each flow of the plain stream (lab.Port.Traffic's ports), or of the answers to them.
func flows(p *lab.Port, there bool, seen netip.Addr) (out [][]byte) {
	t := p.Traffic(trafficSource.String(), prefixes)
	for i := range prefixes.Count {
		dst := prefixes.Host(i, t.Host)
		f := lab.Flow{SrcMAC: t.SrcMAC, DstMAC: t.DstMAC, Src: t.Src, Dst: dst, SrcPort: t.SrcPort, DstPort: t.DstPort}
		if !there {
			f.Src, f.Dst, f.SrcPort, f.DstPort = dst, seen, t.DstPort, t.SrcPort
		}
		out = append(out, f.UDP(string(make([]byte, 18))))
	}
	return out
}
