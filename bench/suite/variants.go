// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// Variant is one way to forward, or not to.
type Variant struct {
	Name  string
	Line  lab.LineOptions
	Setup func(*Lane) error // nil: nothing more
}

// The variants by name.
const (
	LinuxGRO       = "linux"
	LinuxNoGRO     = "linux, gro off"
	linuxNft       = "linux, nft chains"
	linuxConntrack = "linux, conntrack"
	ShuntXDP       = "shunt xdp"
	ShuntTC        = "shunt tc"
	XDPForward     = "xdp-forward"
	Redirect       = "redirect only"
	RedirectRead   = "redirect, address read"
	DropAll        = "drop"
	DropRead       = "drop, address read"
)

// ShuntAt is a variant's setup: shunt at one hook.
func ShuntAt(hook graph.Hook) func(*Lane) error {
	return func(l *Lane) error {
		if err := l.Shunt(graph.Policy{Hook: string(hook)}); err != nil {
			return err
		}
		if got := l.Engine.hooks(l.In().Index); len(got) != 1 || got[0] != hook {
			return fmt.Errorf("shunt is attached at %v instead of %s", got, hook)
		}
		return nil
	}
}

// nft loads a rule set in nft's own language into the router.
func nft(rules string) func(*Lane) error {
	return func(l *Lane) error { return l.Node(lab.Dut).Feed(rules, "nft -f -") }
}

const (
	emptyChains = `table inet bench {
	chain first { type filter hook prerouting priority 0; }
	chain way { type filter hook forward priority 0; }
	chain last { type filter hook postrouting priority 0; }
}
`
	stateful = `table inet bench {
	chain way { type filter hook forward priority 0; ct state established,related accept; ct state new accept; }
}
`
)

// Linux alone, in the two ways of which the better one is the baseline.
var (
	Linux           = Variant{Name: LinuxGRO}
	LinuxWithoutGRO = Variant{Name: LinuxNoGRO, Line: lab.LineOptions{Receive: lab.ReceiveXDP}, Setup: groOff}
)

// Floor drops every packet at the router's ingress: nothing can be cheaper.
var Floor = Variant{Name: DropAll, Setup: func(l *Lane) error { return l.sinkAt(l.In()) }}

// FloorRead does so after a look at the sender's address, which is in a cache line that the generator's CPU wrote: no firewall can be cheaper.
var FloorRead = Variant{Name: DropRead, Setup: func(l *Lane) error { return dropAfterReading(l.In()) }}

// Ceiling sends every frame on without a look at it: nothing that forwards can be cheaper.
var Ceiling = Variant{Name: Redirect, Setup: func(l *Lane) error { return redirectOnly(l.In(), l.Out(), false) }}

// CeilingRead does so after a look at the sender's address, for which it waits as everyone does that looks at packets.
var CeilingRead = Variant{Name: RedirectRead, Setup: func(l *Lane) error { return redirectOnly(l.In(), l.Out(), true) }}

// Variants are those that the router is compared with, from the floor to the ceiling.
var Variants = []Variant{
	Linux,
	LinuxWithoutGRO,
	{Name: linuxNft, Setup: nft(emptyChains)},
	{Name: linuxConntrack, Setup: nft(stateful)},
	{Name: ShuntXDP, Setup: ShuntAt(graph.XDP)},
	{Name: ShuntTC, Setup: ShuntAt(graph.TC)},
	{Name: XDPForward, Setup: (*Lane).xdpForward},
	Ceiling,
	CeilingRead,
	Floor,
}

// groOff asks for no GRO. A veth without GRO and without a program takes no XDP frames, so a program that passes everything is there;
// where the kernel insists on GRO beside it, the note says so.
func groOff(l *Lane) error {
	for _, p := range []*lab.Port{l.In(), l.Out()} {
		if err := p.NS.SetOffload(p.Name, lab.GRO, false); err != nil {
			return err
		}
		on, err := p.NS.Offload(p.Name, lab.GRO)
		if err != nil {
			return err
		}
		if on {
			l.Bench.Note("%s: an XDP program that passes everything is loaded; the kernel keeps GRO on at %s all the same", LinuxNoGRO, p)
		}
	}
	return nil
}

// Lanes builds a lane per variant; those that cannot be had here are skipped by name.
func (b *Bench) Lanes(list []Variant, o lab.LineOptions) ([]*Lane, error) {
	var lanes []*Lane
	for _, v := range list {
		line := o
		line.Receive = v.Line.Receive
		l, err := b.newLane(v.Name, line)
		if err != nil {
			return nil, err
		}
		if v.Setup != nil {
			err = v.Setup(l)
		}
		if why, ok := asSkip(err); ok {
			b.Skip(v.Name, why)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", v.Name, err)
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// SinkApart moves the sink's polling to a thread on the generator's CPU, or back behind the router's.
func (l *Lane) SinkApart(apart bool) error {
	rx := l.RX()
	if err := rx.NS.SetThreaded(rx.Name, apart); err != nil || !apart {
		return err
	}
	return rx.PinNAPI(l.Bench.GenCPU)
}
