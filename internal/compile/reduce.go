// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// reduce copies a rule set without what the object treats otherwise: nat chains, which are static mappings by now, and counters, which it does
// not have. Tests for what the object does not know become unknown in their place. Rules keep their places.
func reduce(rs *ruleset.Ruleset, iface string) *ruleset.Ruleset {
	out := &ruleset.Ruleset{Sets: rs.Sets}
	for _, t := range rs.Tables {
		copied := t
		copied.Chains = make([]ruleset.Chain, len(t.Chains))
		for i, c := range t.Chains {
			copied.Chains[i] = ruleset.Chain{Name: c.Name, Handle: c.Handle}
			if c.Base != nil && c.Base.Type == "nat" {
				continue
			}
			if c.Base != nil {
				base := *c.Base
				base.Counter = ruleset.NoCounter
				copied.Chains[i].Base = &base
			}
			for _, r := range c.Rules {
				r.Steps = known(r.Steps, iface)
				copied.Chains[i].Rules = append(copied.Chains[i].Rules, r)
			}
		}
		out.Tables = append(out.Tables, copied)
	}
	return out
}

func known(steps []ruleset.Step, iface string) (out []ruleset.Step) {
	for _, s := range steps {
		var fields []ruleset.Field
		switch s := s.(type) {
		case ruleset.Count:
			continue
		case ruleset.NoTrack:
			out = append(out, ruleset.Slow{Name: "notrack", Text: "only Linux knows connections"})
			continue
		case ruleset.SetZone:
			out = append(out, ruleset.Slow{Name: "ct zone set", Text: "only Linux knows connections"})
			continue
		case ruleset.SaveMark:
			out = append(out, ruleset.Slow{Name: "connmark", Text: "only Linux knows connections"})
			continue
		case ruleset.SetField:
			if s.From != ruleset.NoField {
				out = append(out, ruleset.Slow{Name: "connmark", Text: "only Linux knows connections"})
				continue
			}
			if s.Field == ruleset.DSField {
				out = append(out, ruleset.Unknown{Name: "tos", Text: "the object does not write it"})
				continue
			}
		case ruleset.Test:
			fields = []ruleset.Field{s.Field}
		case ruleset.AnyTest:
			for _, t := range s.Of {
				fields = append(fields, t.Field)
			}
		case ruleset.Lookup:
			fields = s.Key
		case ruleset.VerdictMap:
			fields = s.Key
		case ruleset.SetByMap:
			if fields = s.Key; s.Field == ruleset.CTZone {
				fields = []ruleset.Field{s.Field}
			}
		}
		for _, f := range fields {
			if why := missing(f, iface); why != "" {
				s = ruleset.Unknown{Name: f.String(), Text: why}
				break
			}
		}
		out = append(out, s)
	}
	return out
}

// missing says why the object does not know a field; "" when it does.
func missing(f ruleset.Field, iface string) string {
	switch f {
	case ruleset.IIFName:
		if iface != "" {
			return ""
		}
		return "the object does not know its interface; say --interface"
	case ruleset.PhysIn, ruleset.PhysOut:
		return "the file does not say which bridges the host has"
	case ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType, ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType:
		return "the file does not say which interfaces the host has"
	case ruleset.PacketType, ruleset.SrcAddrType, ruleset.DstAddrType:
		return "the file does not say which addresses the host has"
	case ruleset.RouteBack, ruleset.RouteBackBy:
		return "the file does not say which routes the host has"
	case ruleset.CTState, ruleset.CTStateNAT:
		return "only Linux knows connections"
	}
	if f.OfConnection() {
		return "only Linux knows connections"
	}
	if !image.Knows(f) {
		return "the object does not look at it"
	}
	return ""
}
