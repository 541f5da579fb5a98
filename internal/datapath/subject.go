// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/shuntnet/shunt/internal/bpfobj"
)

// Subject is a set of what guard words tell of.
type Subject uint8

// The subjects, as a round may read one of them and not the others.
const (
	OfNetfilter Subject = 1 << iota // hooks and rules
	OfRules                         // policy rules
	OfAddrs
	OfSwitches // sysctls
	OfXFRM
	OfSockets
)

var subjects = map[bpfobj.Word]Subject{
	bpfobj.WordIP4Prerouting: OfNetfilter, bpfobj.WordIP4Forward: OfNetfilter, bpfobj.WordIP4Postrouting: OfNetfilter,
	bpfobj.WordIP6Prerouting: OfNetfilter, bpfobj.WordIP6Forward: OfNetfilter, bpfobj.WordIP6Postrouting: OfNetfilter,
	bpfobj.WordBridgePrerouting: OfNetfilter, bpfobj.WordBridgeInput: OfNetfilter, bpfobj.WordBridgeForward: OfNetfilter,
	bpfobj.WordBridgeOutput: OfNetfilter, bpfobj.WordBridgePostrouting: OfNetfilter, bpfobj.WordNFTBaseSeq: OfNetfilter,
	bpfobj.WordLegacy4Raw: OfNetfilter, bpfobj.WordLegacy4Mangle: OfNetfilter, bpfobj.WordLegacy4Filter: OfNetfilter, bpfobj.WordLegacy4Sec: OfNetfilter,
	bpfobj.WordLegacy6Raw: OfNetfilter, bpfobj.WordLegacy6Mangle: OfNetfilter, bpfobj.WordLegacy6Filter: OfNetfilter, bpfobj.WordLegacy6Sec: OfNetfilter,
	bpfobj.WordRulesSeq4: OfRules, bpfobj.WordRulesSeq6: OfRules,
	bpfobj.WordAddrGenID4:  OfAddrs,
	bpfobj.WordAllRPFilter: OfSwitches, bpfobj.WordAllForwarding6: OfSwitches,
	bpfobj.WordDevRPFilter: OfSwitches, bpfobj.WordDevForwarding6: OfSwitches, bpfobj.WordDevDisable6: OfSwitches,
	bpfobj.WordXFRMPolicies:  OfXFRM,
	bpfobj.WordPacketSockets: OfSockets, bpfobj.WordDevSockets: OfSockets,
}

// ofDevices are the subjects that single devices have words of.
const ofDevices = OfSwitches | OfSockets

// Devices says whether words of devices are of use to a round that does not read some subjects: it would take those of the last snapshot anyway.
func Devices(unread Subject) bool { return unread&ofDevices != ofDevices }

// Keep takes the words of subjects that the round does not read from the snapshot of the last round that did. What changed since is not known to the
// plan then, and the data path must go on to see that it changed: a round that was begun for a link may fall between a rule and its event.
func (s *Snapshot) Keep(last Snapshot, unread Subject) {
	if last.words == nil {
		return
	}
	for w := range s.words {
		if subjects[bpfobj.Word(w)]&unread != 0 {
			s.words[w] = last.words[w]
		}
	}
	if s.devices == nil { // of devices that are gone there are none any more
		s.devices = last.devices
		return
	}
	for index, words := range s.devices {
		old := last.devices[index]
		for w := range words {
			if old != nil && subjects[bpfobj.WordNetCount+bpfobj.Word(w)]&unread != 0 {
				words[w] = old[w]
			}
		}
	}
}
