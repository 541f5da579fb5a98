// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/api"
)

// TestFlowsBetween: what is shown is what was added between two looks, the heaviest of that first; a list that began anew is shown as it is.
func TestFlowsBetween(t *testing.T) {
	row := func(port uint16, packets uint64) api.FlowRow {
		return api.FlowRow{Protocol: "udp", From: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), To: netip.MustParseAddrPort("10.0.0.2:53"), Packets: packets}
	}
	began := time.Unix(1000, 0)
	old := &api.Flows{Since: began, Packets: 1000, Flows: []api.FlowRow{row(1, 900), row(2, 60), row(3, 40)}}
	now := &api.Flows{Since: began, Packets: 1500, Flows: []api.FlowRow{row(1, 1000), row(2, 400), row(3, 40), row(4, 60)}}
	got := flowsBetween(old, now)
	want := []api.FlowRow{row(2, 340), row(1, 100), row(4, 60)}
	if got.Packets != 500 || len(got.Flows) != len(want) {
		t.Fatalf("%d packets, flows %v; want 500, %v", got.Packets, got.Flows, want)
	}
	for i := range want {
		if got.Flows[i] != want[i] {
			t.Errorf("place %d: %v, want %v", i, got.Flows[i], want[i])
		}
	}
	now.Since = began.Add(time.Minute)
	if got := flowsBetween(old, now); got.Packets != 1500 || len(got.Flows) != 4 {
		t.Errorf("a new list: %d packets of %d flows, want all of it", got.Packets, len(got.Flows))
	}
}
