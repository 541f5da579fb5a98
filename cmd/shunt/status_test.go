// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/api"
)

// TestManyThatAreDown: hundreds of interfaces that are down are a line of status, unless they have had packets; few are shown as all others are.
func TestManyThatAreDown(t *testing.T) {
	for _, n := range []int{3, 500} {
		s := &api.Status{Ready: true}
		for i := range n {
			s.Interfaces = append(s.Interfaces, api.Interface{Name: fmt.Sprintf("idle%d", i), Hook: "none", State: api.StateSlow, Reasons: []api.Reason{{Reason: "link-down", Detail: "x"}}})
		}
		s.Interfaces = append(s.Interfaces, api.Interface{Name: "eth0", Up: true, Hook: "tc", State: api.StateFast},
			api.Interface{Name: "lately", Hook: "none", State: api.StateSlow, Packets: api.Packets{Slow: map[string]uint64{"stale": 4}}})
		var b bytes.Buffer
		printStatus(newScreen(&b), s)
		out := b.String()
		if want := n < manyDown; strings.Contains(out, "idle2 ") != want || strings.Contains(out, "WHY NOT FAST") != want || strings.Contains(out, "interfaces that are down") == want {
			t.Errorf("with %d interfaces that are down status says\n%.1000s", n, out)
		}
		if !strings.Contains(out, "eth0") || !strings.Contains(out, "lately") || !strings.Contains(out, "1 of 1 interfaces fast") {
			t.Errorf("with %d interfaces that are down the others are missing:\n%.1000s", n, out)
		}
	}
}
