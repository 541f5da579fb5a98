// SPDX-License-Identifier: Apache-2.0

package diff

import "testing"

// What a router says by itself into a tunnel may be known to one twin alone; what was answered, or goes elsewhere, may not.
func TestTunnelledConnections(t *testing.T) {
	const own = "udp src=203.0.113.1 dst=203.0.113.2 sport=59309 dport=4789 [UNREPLIED] src=203.0.113.2 dst=203.0.113.1 sport=4789 dport=59309 mark=0 zone=0"
	const answered = "udp src=203.0.113.1 dst=203.0.113.2 sport=59309 dport=4789 src=203.0.113.2 dst=203.0.113.1 sport=4789 dport=59309 mark=0 zone=0"
	const elsewhere = "udp src=10.0.0.1 dst=10.0.1.2 sport=59309 dport=53 [UNREPLIED] src=10.0.1.2 dst=10.0.0.1 sport=53 dport=59309 mark=0 zone=0"
	for key, want := range map[string]int{own: 0, answered: 1, elsewhere: 1} {
		if got := compareConnections(connections{key: {"", 25}}, nil); len(got) != want {
			t.Errorf("%s: %v, want %d differences", key, got, want)
		}
	}
	if got := compareConnections(connections{own: {"", 25}}, connections{own: {"", 10}}); len(got) != 1 {
		t.Errorf("of both, with different timeouts: %v", got)
	}
}
