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

// TestManyAlike: what is said of hundreds of containers alike is said once; what is said of one of them, or of few, is not lost.
func TestManyAlike(t *testing.T) {
	for _, n := range []int{manyAlike - 2, 500} {
		s := &api.Status{Ready: true}
		for i := range n {
			name := fmt.Sprintf("v%d", i)
			face := api.Interface{Name: name, Up: true, Hook: "tc", State: api.StateFast, Tier: "specialised",
				Reasons: []api.Reason{{Reason: "forwarding-off", Family: "ip6", Detail: "net.ipv6.conf." + name + ".forwarding = 0"}, {Reason: "forwarding-off", Family: "ip6", Detail: "all"}}}
			if i == 5 {
				face.Tier, face.Reasons = "awaited", append(face.Reasons, api.Reason{Reason: "tap", Detail: "a socket of 7"})
			}
			s.Interfaces = append(s.Interfaces, face)
		}
		var b bytes.Buffer
		printStatus(newScreen(&b), s)
		out := b.String()
		for text, times := range map[string]int{
			fmt.Sprintf("%d of %[1]d interfaces fast, 1 of them once their first program is made", n): 1,
			"tc, awaited":                              1,
			"a socket of 7":                            1,
			"net.ipv6.conf.v0.forwarding = 0":          1,
			"net.ipv6.conf.v6.forwarding = 0":          map[bool]int{n < manyAlike: 1}[true],
			fmt.Sprintf("v0, v1, v2 and %d more", n-3): map[bool]int{n >= manyAlike: 1}[true],
			" all\n": map[bool]int{true: n}[n < manyAlike] + map[bool]int{true: 1}[n >= manyAlike],
		} {
			if got := strings.Count(out, text); got != times {
				t.Errorf("of %d interfaces status says %q %d times, want %d:\n%.2000s", n, text, got, times, out)
			}
		}
	}
}

// TestFailingStart: a daemon whose first round fails, again and again, says so, and not only that it is starting.
func TestFailingStart(t *testing.T) {
	var b bytes.Buffer
	printStatus(newScreen(&b), &api.Status{Failing: "applying the plan: no room"})
	if out := b.String(); !strings.Contains(out, "is starting") || !strings.Contains(out, "applying the plan: no room") {
		t.Errorf("status says\n%s", out)
	}
}
