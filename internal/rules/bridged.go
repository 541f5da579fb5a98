// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// ofFrames are the fields that a chain of family bridge reads off a frame as a chain of IP does off the packet in it, and the ports.
var ofFrames = []ruleset.Field{
	ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType, ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType,
	ruleset.EtherSrc, ruleset.EtherDst, ruleset.EtherType, ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP6Src, ruleset.IP6Dst, ruleset.L4Proto, ruleset.DSField, ruleset.TTL,
	ruleset.IP4ID, ruleset.FlowLabel, ruleset.SPort, ruleset.DPort, ruleset.TCPFlags, ruleset.ICMPType,
}

// onBridge says why a step in a chain of family bridge is the kernel's; empty: it is not. Chains there decide and count: what they change, and what they ask of
// connections, marks, routes, lengths (with padding) and whom a frame is for (pkttype), is not modelled. At postrouting a frame has no port that it came by
// (net/bridge/br_forward.c).
func onBridge(s ruleset.Step, at place) string {
	fields := fieldsOf(s)
	switch s := s.(type) {
	case ruleset.VerdictMap:
		fields = s.Key
	case ruleset.SetField, ruleset.SetByMap, ruleset.SaveMark, ruleset.NoTrack, ruleset.SetZone:
		return "a change to a frame in a bridge"
	}
	for _, f := range fields {
		if !slices.Contains(ofFrames, f) {
			return f.String() + " in a bridge"
		}
		switch f {
		case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
			if at.hook == ruleset.Postrouting {
				return f.String() + " at postrouting of a bridge"
			}
		}
	}
	return ""
}

// OfFrames says whether the chains of a table of family bridge decide and count by nothing but what a frame and its ports say, so that they do the same to one that a
// router has forwarded as to one that a program at tc has sent, which has no route and no connection.
func OfFrames(rs *ruleset.Ruleset, table string) bool {
	for _, t := range rs.Tables {
		if t.Family != ruleset.Bridge || t.Name != table {
			continue
		}
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if slices.ContainsFunc(r.Steps, func(s ruleset.Step) bool { return !ofFrame(s) }) {
					return false
				}
			}
		}
	}
	return true
}

// ofFrame says the same of a step.
func ofFrame(s ruleset.Step) bool {
	switch s := s.(type) {
	case ruleset.Count, ruleset.Verdict:
		return true
	case ruleset.VerdictMap:
		return !slices.ContainsFunc(s.Key, notOfFrame)
	case ruleset.Test, ruleset.AnyTest, ruleset.Lookup:
		return !slices.ContainsFunc(fieldsOf(s), notOfFrame)
	}
	return false
}

func notOfFrame(f ruleset.Field) bool { return !slices.Contains(ofFrames, f) }
