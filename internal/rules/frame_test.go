// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	. "github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestTraceFrame takes a frame through chains of family bridge and, where br_netfilter shows it to them, those of IP, in the order of Linux.
func TestTraceFrame(t *testing.T) {
	early, late := at(Prerouting, -300, chain("early", steps{named(IIFName, "p0")})), at(Forward, 10, chain("late", steps{named(OIFName, "p1"), named(IIFName, "p0")}))
	rs := &Ruleset{Tables: []Table{
		{Family: Bridge, Name: "b", Chains: []Chain{early, late}},
		{Family: IP4, Name: "i", Chains: []Chain{
			at(Prerouting, -300, chain("pre", steps{named(PhysIn, "p0"), not(named(PhysOut, "p1"))}, steps{named(IIFName, "br0"), not(named(OIFName, "br0"))})),
			forward(steps{named(IIFName, "br0"), named(OIFName, "br0"), named(PhysIn, "p0"), named(PhysOut, "p1"), is(TTL, 64)}),
			at(Postrouting, 0, chain("post", steps{named(IIFName, ""), named(OIFName, "br0")}, steps{is(DPort, 443), is(DstAddrType, 2), drop})),
		}},
	}}
	frame := func(shown bool, dport uint16) Frame {
		p := typical()
		p.IIF, p.OIF, p.TTL, p.DPort = Device{Name: "p0", Index: 1}, Device{Name: "p1", Index: 2}, 64, dport
		return Frame{Packet: p, Bridge: Device{Name: "br0", Index: 3}, Shown: shown, First: func(_ *Table, c *Chain) bool { return c.Name == "early" }}
	}
	for _, c := range []struct{ name, met, end string }{
		{"the bridge's chains alone", "early 1, early, late 1, late", "accept no rule"},
		{"br_netfilter is in between", "early 1, early, pre 2, pre, FORWARD 1, FORWARD, late 1, late, post 1, post", "accept no rule"},
		{"a bridged packet has no route", "early 1, early, pre 2, pre, FORWARD 1, FORWARD, late 1, late, post 1, post 2", "slow ip i post rule 2 " + DstAddrType.String() + " of a bridged packet"},
	} {
		port := uint16(80)
		if strings.HasPrefix(c.end, "slow") {
			port = 443
		}
		res, refs := NewInterpreter(rs).TraceFrame(frame(!strings.Contains(c.name, "alone"), port))
		var met []string
		for _, r := range refs {
			name := r.Chain.Name
			if r.Rule != nil {
				name += " " + string(rune('0'+r.Rule.Number))
			}
			met = append(met, name)
		}
		if got := strings.Join(met, ", "); got != c.met {
			t.Errorf("%s: met %s, want %s", c.name, got, c.met)
		}
		if got := strings.TrimSpace(res.Outcome.String() + " " + res.By.String() + " " + res.Why); got != c.end {
			t.Errorf("%s: %s, want %s", c.name, got, c.end)
		}
	}

	marks := &Ruleset{Tables: []Table{{Family: Bridge, Name: "b", Chains: []Chain{forward(steps{change(Mark, 0, 7)})}}}}
	if res, _ := NewInterpreter(marks).TraceFrame(frame(false, 80)); res.Outcome != IsSlow {
		t.Errorf("a change to a frame: %v", res.Outcome)
	}
}
