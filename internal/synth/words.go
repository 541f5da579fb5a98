// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"slices"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
)

// What each family's verdict rests on, beyond what is read live anyway.
var (
	words4 = []bpfobj.Word{
		bpfobj.WordIP4Prerouting, bpfobj.WordIP4Forward, bpfobj.WordIP4Postrouting,
		bpfobj.WordAddrGenID4, bpfobj.WordRulesSeq4, bpfobj.WordAllRPFilter, bpfobj.WordCustomLocal4,
		bpfobj.WordLegacy4Raw, bpfobj.WordLegacy4Mangle, bpfobj.WordLegacy4Filter, bpfobj.WordLegacy4Sec,
	}
	words6 = []bpfobj.Word{
		bpfobj.WordIP6Prerouting, bpfobj.WordIP6Forward, bpfobj.WordIP6Postrouting,
		bpfobj.WordRulesSeq6, bpfobj.WordAllForwarding6,
		bpfobj.WordLegacy6Raw, bpfobj.WordLegacy6Mangle, bpfobj.WordLegacy6Filter, bpfobj.WordLegacy6Sec,
	}
	// What rests on it that rules of IP say nothing to what a bridge shows them: neither where there were none, nor in tables that were empty.
	called4 = []bpfobj.Word{
		bpfobj.WordIP4Prerouting, bpfobj.WordIP4Forward, bpfobj.WordIP4Postrouting,
		bpfobj.WordLegacy4Raw, bpfobj.WordLegacy4Mangle, bpfobj.WordLegacy4Filter, bpfobj.WordLegacy4Sec,
	}
	called6 = []bpfobj.Word{
		bpfobj.WordIP6Prerouting, bpfobj.WordIP6Forward, bpfobj.WordIP6Postrouting,
		bpfobj.WordLegacy6Raw, bpfobj.WordLegacy6Mangle, bpfobj.WordLegacy6Filter, bpfobj.WordLegacy6Sec,
	}
	device4  = []bpfobj.Word{bpfobj.WordDevRPFilter}
	device6  = []bpfobj.Word{bpfobj.WordDevDisable6, bpfobj.WordDevForwarding6}
	wordsAny = []bpfobj.Word{bpfobj.WordNFTBaseSeq, bpfobj.WordXFRMPolicies, bpfobj.WordPacketSockets}
)

// Family is the only family whose packets rest on the word: 4 or 6; 0 when all do.
func (w Word) Family() uint8 {
	switch {
	case slices.Contains(words4, w.Word), slices.Contains(device4, w.Word):
		return 4
	case slices.Contains(words6, w.Word), slices.Contains(device6, w.Word):
		return 6
	}
	return 0
}

// wordSet collects a program's guard words without repetition, in a fixed order.
type wordSet struct{ list []Word }

// add takes what a logical interface's fast families rest on. Device words are those of untagged inputs: a program has room for few,
// and a change on a VLAN interface is covered by its event and the watchdog.
func (s *wordSet) add(in *graph.Input) {
	if in.IP4.Fast() {
		s.words(0, words4...)
	}
	if in.IP6.Fast() {
		s.words(0, words6...)
	}
	if !in.IP4.Fast() && !in.IP6.Fast() {
		return
	}
	s.words(0, wordsAny...)
	if len(in.VLANs) > 0 {
		return
	}
	s.words(in.Index, bpfobj.WordDevSockets, bpfobj.WordDevHandler)
	if in.IP4.Fast() {
		s.words(in.Index, device4...)
	}
	if in.IP6.Fast() {
		s.words(in.Index, device6...)
	}
}

// bridge takes what frames between ports of a bridge rest on, beside what is read live.
func (s *wordSet) bridge(port int) {
	s.words(0, bpfobj.WordNFTBaseSeq, bpfobj.WordPacketSockets, bpfobj.WordBridgePrerouting, bpfobj.WordBridgeForward, bpfobj.WordBridgePostrouting)
	s.words(port, bpfobj.WordDevSockets)
}

// called takes what bridged packets of a family rest on that br_netfilter shows to the rules.
func (s *wordSet) called(how uint8, words []bpfobj.Word) {
	if how == bpfobj.CalledOption || how == bpfobj.CalledAll {
		s.words(0, words...)
	}
}

func (s *wordSet) words(index int, words ...bpfobj.Word) {
	for _, w := range words {
		if word := (Word{Word: w, Index: index}); !slices.Contains(s.list, word) {
			s.list = append(s.list, word)
		}
	}
}
