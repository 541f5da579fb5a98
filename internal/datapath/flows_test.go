// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// TestMergeFlows: a flow that two CPUs have seen is one, and counts are of packets, not of samples.
func TestMergeFlows(t *testing.T) {
	values := make([]bpfobj.XDPFlows, 2)
	for cpu, n := range []uint32{3, 4} {
		v := &values[cpu]
		v.Sampled = 10
		v.Top.Count[5] = n
		k := &v.Top.Key[5]
		k.From[10], k.From[11], k.From[12], k.From[15] = 0xff, 0xff, 10, 1
		k.To[0], k.Protocol, k.ToPort = 0xfd, 17, 53<<8
	}
	values[1].Top.Count[7] = 1 // of a flow of zeros
	all, packets := mergeFlows(values)
	if packets != 20*FlowsEach || len(all) != 2 {
		t.Fatalf("%d packets of %d flows: %v", packets, len(all), all)
	}
	want := Flow{From: netip.MustParseAddrPort("10.0.0.1:0"), To: netip.MustParseAddrPort("[fd00::]:53"), Protocol: 17, Packets: 7 * FlowsEach}
	if all[0] != want {
		t.Errorf("got %+v, want %+v", all[0], want)
	}
}

// TestLesser: a program that a verifier does not take loses its first steps through rules first, then sampling, then the memory of verdicts and that of routes, then translation, then what a bridge hands to its host, and then nothing more.
func TestLesser(t *testing.T) {
	c := bpfobj.Config{RuleMoves: bpfobj.RuleMoves, Flows: 1, Verdicts: 1, Cache6: 1, Nat: 3, Bridge: bpfobj.BridgeHost}
	var lost []string
	for {
		less, without := lesser(c)
		if without == "" {
			break
		}
		lost, c = append(lost, without), less
	}
	want := []string{"the first steps through rules take longer", "flows are not sampled", "what rules say is not remembered", "routes are not remembered", "what is translated stays with Linux", "what a bridge hands to its host stays with Linux"}
	if !slices.Equal(lost, want) || c != (bpfobj.Config{RuleMoves: bpfobj.RuleMovesFew, Bridge: bpfobj.BridgeFrames}) {
		t.Errorf("lost %q, want %q; left %+v", lost, want, c)
	}
}
