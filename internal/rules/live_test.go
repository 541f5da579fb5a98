// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// liveRules is a rule that asks an ipset whose elements were not read.
func liveRules(s ruleset.Set) *ruleset.Ruleset {
	s.Dialect, s.Live, s.Widths = ruleset.IPSet, true, []int{32}
	lookup := ruleset.Lookup{Set: 0, Key: []ruleset.Field{ruleset.IP4Src}, Src: []bool{true}}
	return &ruleset.Ruleset{Sets: []ruleset.Set{s}, Tables: []ruleset.Table{{Dialect: ruleset.Legacy, Family: ruleset.IP4, Name: "filter", Chains: []ruleset.Chain{{
		Name: "FORWARD", Base: &ruleset.Base{Hook: ruleset.Forward, Policy: ruleset.Accept}, Rules: []ruleset.Rule{{Steps: []ruleset.Step{lookup, ruleset.Verdict{Code: ruleset.Drop}}}}}}}}}
}

// A set that was not read is asked live where programs can do that, and is never taken for an empty one.
func TestLiveSets(t *testing.T) {
	known := liveRules(ruleset.Set{Name: "a", Type: "hash:ip", Family: ruleset.IP4, Index: 7})
	for _, c := range []struct {
		name string
		rs   *ruleset.Ruleset
		can  bool
		slow string
	}{
		{"programs can ask", known, true, ""},
		{"programs cannot ask", known, false, "set a: changes without notice"},
		{"a set with counters", liveRules(ruleset.Set{Name: "c", Type: "hash:ip", Family: ruleset.IP4, Unknown: "ipset with counters"}), true, "ipset with counters"},
	} {
		pr := rules.Flatten(c.rs, rules.Class{Family: ruleset.IP4, LiveSets: c.can})
		slow := pr.Slow()
		if named := len(slow) == 1 && c.slow != "" && strings.Contains(slow[0].Why, c.slow); named != (c.slow != "") || c.slow == "" && len(slow) > 0 {
			t.Errorf("%s: slow %+v, want %q", c.name, slow, c.slow)
		}
		im, err := image.Compile(pr, nil, image.Options{Stage: image.Post})
		if err != nil || im == nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if asks := im.SetsAt != 0 && len(im.Sets) == 1 && im.Sets[0].Index == 7; asks != (c.slow == "") || im.Unsaid != 0 {
			t.Errorf("%s: the image asks %+v at %d, %d entries unsaid", c.name, im.Sets, im.SetsAt, im.Unsaid)
		}
	}
	// One that images have no kind for leaves its packets to Linux.
	pr := rules.Flatten(liveRules(ruleset.Set{Name: "m", Type: "bitmap:mark", Family: ruleset.IP4}), rules.Class{Family: ruleset.IP4, LiveSets: true})
	if im, err := image.Compile(pr, nil, image.Options{Stage: image.Post}); err != nil || im.Unsaid != 1 {
		t.Errorf("a set of unknown kind: %+v, %v", im, err)
	}
}

// TestLiveSetsByFrameAndDevice: images bring what the new kinds ask for, addresses of frames and the names of devices, and a list may ask for all of it.
func TestLiveSetsByFrameAndDevice(t *testing.T) {
	devices := []rules.Device{{Name: "eth0", Index: 2}, {Name: "a", Index: 3}, {Name: "seven77", Index: 4}, {Name: "abcdefghijklmno", Index: 70000}}
	for kind, want := range map[string]struct{ names, frames, ports bool }{
		"hash:net,iface": {names: true}, "bitmap:ip,mac": {frames: true}, "hash:ip,port": {ports: true}, "hash:net,port,net": {ports: true}, "hash:net,net": {}, "hash:ip": {}, "list:set": {true, true, true},
	} {
		s := ruleset.Set{Name: "s", Type: kind, Family: ruleset.IP4, Index: 7}
		if kind == "list:set" {
			s.Family = 0
		}
		im, err := image.Compile(rules.Flatten(liveRules(s), rules.Class{Family: ruleset.IP4, LiveSets: true}), devices, image.Options{Stage: image.Post})
		if err != nil || im.Unsaid != 0 || len(im.Sets) != 1 {
			t.Fatalf("%s: %+v, %v", kind, im, err)
		}
		if frames, ports := im.Shape.Asks>>19&15, im.Shape.Asks>>7&3; (frames == 15) != want.frames || (frames == 0) == want.frames || (ports == 3) != want.ports {
			t.Errorf("%s asks for %#x", kind, im.Shape.Asks)
		}
		word := func(at uint32) uint32 { return binary.NativeEndian.Uint32(im.Bytes[at:]) }
		table, factor := word(im.SetsAt-8), word(im.SetsAt-4)
		if (table != 0) != want.names {
			t.Errorf("%s: names at %d", kind, table)
		}
		if table == 0 {
			continue
		}
		for _, d := range devices { // as rule_device() has it
			at := table + 8 + 8*(uint32(d.Index)*factor>>word(table))
			if word(at) != uint32(d.Index) {
				t.Fatalf("%s: device %s is not at %d", kind, d.Name, at)
			}
			row := im.Bytes[word(at+4):][:32]
			if name := string(row[:len(d.Name)+1]); name != d.Name+"\x00" || strings.Trim(string(row[len(d.Name)+1:16]), "\x00") != "" {
				t.Errorf("%s: the name of %s is %q", kind, d.Name, row[:16])
			}
			if n := strings.Count(string(row[16:]), "\xff"); n != len(d.Name)+1 || row[16+n-1] != 0xff || n < 16 && row[16+n] != 0 {
				t.Errorf("%s: of the name of %s count %x", kind, d.Name, row[16:])
			}
		}
	}
}

// TestListsMayAskForMarks: a rule that asks a list, and leads to a chain that changes marks, is not asked for again behind the change: a member may have another answer then.
func TestListsMayAskForMarks(t *testing.T) {
	for _, c := range []struct {
		kind  string
		src   []bool
		key   []ruleset.Field
		again bool
	}{
		{"list:set", []bool{true, true}, nil, false}, {"list:set", []bool{true}, nil, true}, {"hash:ip,mark", []bool{true, true}, []ruleset.Field{ruleset.IP4Src, ruleset.Mark}, false}, {"hash:ip", []bool{true}, []ruleset.Field{ruleset.IP4Src}, true},
	} {
		rs := liveRules(ruleset.Set{Name: "l", Type: c.kind, Index: 7})
		chains := &rs.Tables[0].Chains
		*chains = append(*chains, ruleset.Chain{Name: "c", Rules: []ruleset.Rule{
			{Steps: []ruleset.Step{ruleset.SetField{Field: ruleset.Mark, Xor: 1}}}, {Steps: []ruleset.Step{ruleset.Test{Field: ruleset.L4Proto, Ranges: []ruleset.Range{ruleset.Nums(6, 6)}}, ruleset.Verdict{Code: ruleset.Drop}}}}})
		(*chains)[0].Rules[0].Steps = []ruleset.Step{ruleset.Lookup{Set: 0, Key: c.key, Src: c.src}, ruleset.Verdict{Code: ruleset.Jump, Chain: "c"}}
		again := false
		for _, e := range rules.Flatten(rs, rules.Class{Family: ruleset.IP4, LiveSets: true}).Lists[0] {
			for _, w := range e.When {
				_, asks := w.Of.(ruleset.Lookup)
				again = again || asks && e.Then == rules.DropIt
			}
		}
		if again != c.again {
			t.Errorf("%s by %d directions: asked again behind the mark: %v", c.kind, len(c.src), again)
		}
	}
}

// TestTwoLookupsInAgingSets: a packet that is in expiring elements of two sets that one rule asks is Linux's, as is one whose sets each have nothing else.
func TestTwoLookupsInAgingSets(t *testing.T) {
	set := func(addr string) ruleset.Set {
		return ruleset.Set{Dialect: ruleset.NFT, Name: addr, Widths: []int{32}, Timeout: true,
			Elements: []ruleset.Element{{Key: []ruleset.Range{ruleset.One(ruleset.Addr(netip.MustParseAddr(addr)))}, Counter: ruleset.NoCounter, Expires: 1000}}}
	}
	rs := &ruleset.Ruleset{Sets: []ruleset.Set{set("10.0.0.1"), set("10.0.0.2")}, Tables: []ruleset.Table{{Dialect: ruleset.NFT, Family: ruleset.IP4, Name: "t", Chains: []ruleset.Chain{{
		Name: "f", Base: &ruleset.Base{Hook: ruleset.Forward, Policy: ruleset.Accept}, Rules: []ruleset.Rule{{Steps: []ruleset.Step{
			ruleset.Lookup{Set: 0, Key: []ruleset.Field{ruleset.IP4Src}}, ruleset.Lookup{Set: 1, Key: []ruleset.Field{ruleset.IP4Dst}}, ruleset.Verdict{Code: ruleset.Drop}}}}}}}}}
	_, images := imagesOf(t, rs, rules.SomeDevices, false, 0, 0)
	n := loadNode(t, 1<<22, [stages]image.Shape{wholeShape, wholeShape, wholeShape, wholeShape, wholeShape, wholeShape})
	n.install(t, images)
	for _, c := range []struct {
		src, dst string
		want     rules.Outcome
	}{
		{"10.0.0.1", "10.0.0.2", rules.IsSlow},
		{"10.0.0.3", "10.0.0.4", rules.Accepted},
	} {
		p := rules.Packet{IIF: rules.SomeDevices[0], OIF: rules.SomeDevices[0], Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst), Proto: 17, TTL: 64, Length: 28, SPort: 1, DPort: 2}
		if got := n.run(t, &p); got.outcome != c.want {
			t.Errorf("from %s to %s: %v, want %v", c.src, c.dst, got.outcome, c.want)
		}
	}
}
