// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Frame is a frame with an IP packet between two ports of a bridge: the packet's devices are the ports.
type Frame struct {
	Packet
	Bridge Device
	// Shown: br_netfilter shows it to the chains of IP, and First says which chains of family bridge come before it does at their hook.
	Shown bool
	First func(*ruleset.Table, *ruleset.Chain) bool
}

// TraceFrame takes a frame through the chains that it meets, in the order of Linux, as Follow does a forwarded packet. Those of IP see the bridge as both devices.
func (in *Interpreter) TraceFrame(f Frame) (res Result, met []Ref) {
	family := ruleset.IP6
	if f.Src.Is4() {
		family = ruleset.IP4
	}
	frame := f.Packet
	frame.Bridged = true
	shown := frame
	shown.PhysIn, shown.PhysOut, shown.IIF, shown.OIF = frame.IIF, frame.OIF, f.Bridge, f.Bridge
	r := &run{walk: begin(&frame), Interpreter: in, met: &met, goOn: true}
	own := in.ix.path(family, true)
	for _, h := range []ruleset.Hook{ruleset.Ingress, ruleset.Prerouting, ruleset.Forward, ruleset.Postrouting, ruleset.Egress} {
		var calls, late []called
		for _, c := range own {
			switch {
			case c.place.hook != h:
			case f.Shown && f.First != nil && !f.First(c.table, c.chain):
				late = append(late, c)
			default:
				calls = append(calls, c)
			}
		}
		for _, c := range in.paths[family] {
			d := deviceOf(h, &frame)
			if c.place.hook == h && (d != nil && c.chain.Base.On(d.Name) || d == nil && f.Shown) {
				calls = append(calls, c)
			}
		}
		for _, c := range slices.Concat(calls, late) {
			r.p = &frame
			if f.Shown && c.table.Family != ruleset.Bridge && deviceOf(h, &frame) == nil {
				r.p = &shown
			}
			if code := r.base(c); code != ruleset.Accept {
				return r.res, met
			}
		}
	}
	return r.res, met
}

// onFrame says why a step is the kernel's for a bridged packet; empty: it is not.
func (r *run) onFrame(s ruleset.Step) string {
	if !r.p.Bridged {
		return ""
	}
	if r.table.Family == ruleset.Bridge {
		return onBridge(s, r.at)
	}
	for _, f := range fieldsOf(s) {
		switch f {
		case ruleset.SrcAddrType, ruleset.DstAddrType, ruleset.RouteBack, ruleset.RouteBackBy: // bridged packets have no route
			return f.String() + " of a bridged packet"
		}
	}
	return ""
}
