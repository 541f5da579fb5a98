// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// node is the node of rules alone, in the kernel.
type node struct {
	coll   *ebpf.Collection
	size   int
	number uint32 // of the images in force, where the node may remember what they say; 0 where it may not
}

const (
	firstImage = 128
	stages     = 2 * image.Stages // of SHUNT_RULE_STAGES: those of bridges come behind
	headLen    = 4 * (10 + 8 + 3) // struct classified
	offRules   = 24 + 8*512       // struct shunt_live
)

func loadNode(t testing.TB, size int, shapes [stages]image.Shape) *node {
	t.Helper()
	return loadRemembering(t, size, shapes, 0)
}

// loadRemembering loads a node that remembers so many verdicts on each CPU.
func loadRemembering(t testing.TB, size int, shapes [stages]image.Shape, verdicts uint32) *node {
	t.Helper()
	lab.RequireRoot(t)
	spec, err := bpfobj.LoadClassify()
	if err != nil {
		t.Fatal(err)
	}
	data := spec.Maps[".data.rules"]
	data.ValueSize, data.Contents, data.Key, data.Value = uint32(size), nil, nil, nil
	data.Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[".data.live"].Flags |= unix.BPF_F_MMAPABLE
	c := bpfobj.Config{RuleMask: uint64(size - 1), RuleMoves: bpfobj.RuleMoves, Verdicts: verdicts}
	if verdicts > 0 {
		spec.Maps["verdicts"].MaxEntries = verdicts * uint32(ebpf.MustPossibleCPU())
	}
	for i, s := range shapes {
		s.On = true
		c.Rules[i].Dims, c.Rules[i].Asks = s.Word(), s.Asks
		c.RuleDims |= c.Rules[i].Dims
		c.RuleAsks |= s.Asks
	}
	delete(spec.Variables, "rule_data")
	frozen := make([]byte, binary.Size(c))
	binary.Encode(frozen, binary.NativeEndian, &c)
	spec.Variables["frozen"].Value = frozen
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	n := &node{coll: coll, size: size}
	memory, err := coll.Maps[".data.rules"].Memory()
	if err != nil {
		t.Fatal(err)
	}
	var head [64]byte
	for i := range head {
		head[uint64(0x03f79d71b4cb0a89)<<i>>58] = byte(i)
	}
	memory.WriteAt(head[:], 0)
	return n
}

// install puts images in force; counters keep their own numbers as slots.
func (n *node) install(t testing.TB, images [stages]*image.Image) {
	t.Helper()
	data, _ := n.coll.Maps[".data.rules"].Memory()
	live, _ := n.coll.Maps[".data.live"].Memory()
	at := firstImage
	for i, im := range images {
		var base [8]byte
		if im != nil {
			bytes := slices.Clone(im.Bytes)
			im.Place(bytes, func(c ruleset.CounterID) uint32 { return uint32(c) })
			if at+len(bytes) > n.size {
				t.Fatalf("images of more than %d bytes: %d for %d entries at %d", n.size, len(bytes), im.Entries, i)
			}
			if _, err := data.WriteAt(bytes, int64(at)); err != nil {
				t.Fatal(err)
			}
			number := uint64(n.number)
			if number > 0 {
				number = number*uint64(stages) + uint64(i)
			}
			binary.NativeEndian.PutUint64(base[:], number<<32|uint64(at))
			at = (at + len(bytes) + 63) &^ 63
		}
		if _, err := live.WriteAt(base[:], int64(offRules+8*i)); err != nil {
			t.Fatal(err)
		}
	}
}

// over puts what newer rules decide in front of the image behind the route.
func (n *node) over(t testing.TB, images [2]*image.Image) {
	t.Helper()
	data, _ := n.coll.Maps[".data.rules"].Memory()
	live, _ := n.coll.Maps[".data.live"].Memory()
	at := n.size
	for i, im := range images {
		var base [8]byte
		if im != nil {
			bytes := slices.Clone(im.Bytes)
			im.Place(bytes, func(c ruleset.CounterID) uint32 { return uint32(c) })
			at = (at - len(bytes)) &^ 63
			if _, err := data.WriteAt(bytes, int64(at)); err != nil {
				t.Fatal(err)
			}
			binary.NativeEndian.PutUint64(base[:], uint64(at))
		}
		if _, err := live.WriteAt(base[:], int64(offRules+8*(int(2*stages)+2+i))); err != nil {
			t.Fatal(err)
		}
	}
}

// seen is what the node says of a packet.
type seen struct {
	outcome rules.Outcome
	mark    uint32
	ds      uint8
	counted []rules.Counted
	long    bool

	untracked bool
	zone      uint32
}

// zoneWord is a zone as programs keep it.
func zoneWord(z ruleset.SetZone) uint32 { return uint32(z.Zone) | uint32(z.Dir)<<16 }

func (n *node) run(t testing.TB, p *rules.Packet) seen {
	t.Helper()
	frame := frameOf(p)
	out := make([]byte, len(frame))
	if _, err := n.coll.Programs["shunt_classify"].Run(&ebpf.RunOptions{Data: frame, DataOut: out}); err != nil {
		t.Fatalf("running on %d bytes: %v", len(frame), err)
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(out[4*i:]) }
	s := seen{mark: word(7), ds: uint8(word(8)), untracked: word(2) == ruleset.CTUntracked, zone: word(20)}
	switch r := int32(word(6)); r {
	case -1:
	case int32(reason.RuleDrop):
		s.outcome = rules.Dropped
	case int32(reason.NetfilterRule), int32(reason.NetfilterLong):
		s.outcome, s.long = rules.IsSlow, r == int32(reason.NetfilterLong)
		return s
	default:
		t.Fatalf("left by reason %d", r)
	}
	for i := range word(9) {
		c := word(10 + int(i))
		bytes := int(p.Length)
		switch c >> 24 {
		case 1:
			bytes += p.EtherPadding
		case 2:
			bytes += 14
		}
		s.counted = append(s.counted, rules.Counted{Counter: ruleset.CounterID(c & 0xffffff), Bytes: bytes})
	}
	return s
}

// firstOf is what a random packet's connection began with; its own, where it has none.
func firstOf(p *rules.Packet) *rules.Ends {
	if p.CT != nil {
		return p.CT.First
	}
	return &rules.Ends{Src: p.Src, Dst: p.Dst, SPort: p.SPort, DPort: p.DPort, Proto: p.Proto}
}

// frameOf builds the packet behind the head that the program wants, and corrects its length.
func frameOf(p *rules.Packet) []byte {
	l4 := make([]byte, 20)
	switch p.Proto {
	case 1, 58:
		binary.BigEndian.PutUint16(l4, p.ICMPType)
	default:
		binary.BigEndian.PutUint16(l4, p.SPort)
		binary.BigEndian.PutUint16(l4[2:], p.DPort)
		l4[13] = p.TCPFlags
	}
	b := make([]byte, headLen+14, headLen+14+60)
	binary.NativeEndian.PutUint32(b, uint32(p.IIF.Index))
	binary.NativeEndian.PutUint32(b[4:], uint32(p.OIF.Index))
	ports := [2]uint32{uint32(p.PhysIn.Index), uint32(p.PhysOut.Index)}
	if p.PhysIn != (rules.Device{}) && p.PhysOut == (rules.Device{}) {
		ports[1] = 1<<31 - 1 // SHUNT_NO_PORT
	}
	binary.NativeEndian.PutUint32(b[4*18:], ports[0])
	binary.NativeEndian.PutUint32(b[4*19:], ports[1])
	if c := p.CT; c != nil {
		for i, v := range []uint32{uint32(c.State), c.Status, c.Mark, map[bool]uint32{true: 1}[c.Reply]} {
			binary.NativeEndian.PutUint32(b[8+4*i:], v)
		}
		binary.NativeEndian.PutUint32(b[4*20:], uint32(c.Zone))
		if e := c.First; e != nil {
			copy(b[4*10:], e.Src.AsSlice())
			copy(b[4*14:], e.Dst.AsSlice())
			binary.BigEndian.PutUint16(b[4*9:], e.SPort)
			binary.BigEndian.PutUint16(b[4*9+2:], e.DPort)
		}
	}
	copy(b[headLen:], binary.BigEndian.AppendUint64(nil, p.EtherDst)[2:])
	copy(b[headLen+6:], binary.BigEndian.AppendUint64(nil, p.EtherSrc)[2:])
	if p.Src.Is4() {
		p.Length = 40
		binary.BigEndian.PutUint16(b[headLen+12:], 0x0800)
		ip := make([]byte, 20)
		ip[0], ip[1], ip[8], ip[9] = 0x45, p.DSField, p.TTL, p.Proto
		binary.BigEndian.PutUint16(ip[2:], p.Length)
		binary.BigEndian.PutUint16(ip[4:], p.ID)
		binary.BigEndian.PutUint16(ip[6:], p.FragOffset)
		copy(ip[12:], p.Src.AsSlice())
		copy(ip[16:], p.Dst.AsSlice())
		b = append(b, ip...)
	} else {
		p.Length = 60
		binary.BigEndian.PutUint16(b[headLen+12:], 0x86dd)
		ip := make([]byte, 40)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(p.DSField)<<20|p.FlowLabel)
		binary.BigEndian.PutUint16(ip[4:], 20)
		ip[6], ip[7] = p.Proto, p.TTL
		copy(ip[8:], p.Src.AsSlice())
		copy(ip[24:], p.Dst.AsSlice())
		b = append(b, ip...)
	}
	return append(append(b, l4...), make([]byte, p.EtherPadding)...)
}

// imagesOf compiles all stages of both families; limit is how many entries are written before chains are called, 0 for as many as usual, and treeFrom as image.Options has it.
func imagesOf(t testing.TB, rs *ruleset.Ruleset, devices []rules.Device, ct bool, limit, treeFrom int) (programs [2]*rules.Program, images [stages]*image.Image) {
	t.Helper()
	for i, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
		programs[i] = rules.FlattenWithin(rs, rules.Class{Family: family, LocalFirst: true, Zones: true}, limit)
		for stage := range image.Stages {
			im, err := image.Compile(programs[i], devices, image.Options{Stage: stage, CT: ct, TreeFrom: treeFrom})
			if err != nil {
				t.Fatal(err)
			}
			images[i*int(image.Stages)+int(stage)] = im
		}
	}
	return programs, images
}

var wholeShape = image.Shape{On: true, Dims: 1<<image.NumDims - 1, Asks: image.AllValues | image.AsksSender | image.AsksReceiver, Sets: image.SetsDS | image.SetsMark | image.SetsTrack | image.SetsZone | image.SetsPriority, Tree: true}

// TestSendersAreProved: what an image takes for granted of senders it says, and takes nothing for granted where a route to one would prove nothing; and what of receivers,
// of whom the route alone proves nothing in IPv6.
func TestSendersAreProved(t *testing.T) {
	local := ruleset.Test{Field: ruleset.SrcAddrType, Ranges: []ruleset.Range{ruleset.Nums(2, 2)}}
	receiver := ruleset.Test{Field: ruleset.DstAddrType, Ranges: local.Ranges}
	sets := []ruleset.Set{{Name: "a", Widths: []int{32}, Elements: []ruleset.Element{{Key: local.Ranges, Counter: ruleset.NoCounter}}},
		{Name: "b", Widths: []int{32}, Verdicts: true, Elements: []ruleset.Element{{Key: local.Ranges, Verdict: &ruleset.Verdict{Code: ruleset.Drop}, Counter: ruleset.NoCounter}}},
		{Name: "c", Widths: []int{32, 8}, Elements: []ruleset.Element{{Key: []ruleset.Range{local.Ranges[0], ruleset.Nums(6, 6)}, Counter: ruleset.NoCounter}}}}
	const prerouting, forward = ruleset.Prerouting, ruleset.Forward
	for _, c := range []struct {
		name         string
		step         ruleset.Step
		hook         ruleset.Hook
		localFirst   bool
		slow, proves bool // in both families
		receivers    bool // in IPv6
	}{
		{"a local sender", local, prerouting, true, false, true, false},
		{"any other sender", ruleset.Test{Field: local.Field, Ranges: local.Ranges, Not: true}, prerouting, true, false, true, false},
		{"one of several types", ruleset.AnyTest{Of: []ruleset.Test{local, {Field: local.Field, Ranges: []ruleset.Range{ruleset.Nums(3, 3)}}}}, prerouting, true, false, true, false},
		{"in a set", ruleset.Lookup{Set: 0, Key: []ruleset.Field{ruleset.SrcAddrType}}, prerouting, true, false, true, false},
		{"in a map of verdicts", ruleset.VerdictMap{Set: 1, Key: []ruleset.Field{ruleset.SrcAddrType}}, prerouting, true, false, true, false},
		{"beside a protocol", ruleset.Lookup{Set: 2, Key: []ruleset.Field{ruleset.SrcAddrType, ruleset.L4Proto}}, prerouting, true, false, true, false},
		{"other tables come first", local, prerouting, false, true, false, false},
		{"the receiver", receiver, prerouting, true, true, false, false},
		{"the receiver behind the route", receiver, forward, true, false, false, true},
		{"the receiver in a map of verdicts", ruleset.VerdictMap{Set: 1, Key: []ruleset.Field{ruleset.DstAddrType}}, forward, true, false, false, true},
		{"the receiver behind the route, other tables come first", receiver, forward, false, true, false, false},
	} {
		for _, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
			steps := []ruleset.Step{c.step, ruleset.Verdict{Code: ruleset.Drop}}
			if _, ends := c.step.(ruleset.VerdictMap); ends {
				steps = steps[:1]
			}
			chain := ruleset.Chain{Name: "c", Base: &ruleset.Base{Hook: c.hook, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}, Rules: []ruleset.Rule{{Number: 1, Steps: steps},
				{Number: 2, Steps: []ruleset.Step{ruleset.Test{Field: ruleset.L4Proto, Ranges: []ruleset.Range{ruleset.Nums(6, 6)}}, ruleset.Verdict{Code: ruleset.Drop}}}}}
			rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: family, Name: "t", Chains: []ruleset.Chain{chain}}}, Sets: sets}
			stage := image.Pre
			if c.hook == forward {
				stage = image.Post
			}
			im, err := image.Compile(rules.Flatten(rs, rules.Class{Family: family, LocalFirst: c.localFirst}), nil, image.Options{Stage: stage})
			if err != nil || im == nil {
				t.Fatal(im, err)
			}
			slow, proves, receivers := im.Slow > 0, im.Shape.Asks&image.AsksSender != 0, im.Shape.Asks&image.AsksReceiver != 0
			if slow != c.slow || proves != c.proves || receivers != (c.receivers && family == ruleset.IP6) {
				t.Errorf("%s, %s: slow %v, to be proved %v, receivers %v: %v", c.name, family, slow, proves, receivers, im.Left)
			}
		}
	}
}

// For random rules and packets the node says what the rules mean, or leaves the packet to Linux.
func TestNodeDoesWhatRulesMean(t *testing.T) {
	n := loadNode(t, 1<<22, [stages]image.Shape{wholeShape, wholeShape, wholeShape, wholeShape, wholeShape, wholeShape})
	total, slow, mine, old, plain := 0, 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		rs := rules.SomeRuleset(rt)
		ct := rapid.Bool().Draw(rt, "ct")
		known := append(slices.Clip(rules.SomeDevices), rules.Device{Name: "veth1", Index: 6, Type: 1})
		if rapid.Bool().Draw(rt, "a device is new") {
			at := rapid.IntRange(0, len(known)-1).Draw(rt, "which")
			known = slices.Delete(slices.Clone(known), at, at+1)
		}
		programs, images := imagesOf(t, rs, known, ct, rapid.SampledFrom([]int{0, 1, 12}).Draw(rt, "limit"), rapid.SampledFrom([]int{-1, 1, 2}).Draw(rt, "trees from"))
		later := withoutOld(rs)
		n.install(t, images)
		for range 30 {
			six := rapid.Bool().Draw(rt, "six")
			i, family := 0, ruleset.IP4
			if six {
				i, family = 1, ruleset.IP6
			}
			p := rules.SomePacket(rt, family)
			first := firstOf(&p)
			p.Mark, p.CT, p.TTL, p.FragOffset = 0, nil, max(p.TTL, 2), p.FragOffset&0x4000
			if rapid.Bool().Draw(rt, "between others") {
				p.IIF, p.OIF = rules.Device{Name: "veth1", Index: 6, Type: 1}, rules.Device{Name: "veth2", Index: 7, Type: 1}
			}
			new, served := plainIn(images[i*int(image.Stages):][:image.Stages], known, &p)
			if !served {
				continue
			}
			if ct { // what node/conntrack.h lets pass
				p.CT = &rules.Connection{State: ruleset.CTEstablished, Reply: rapid.Bool().Draw(rt, "reply"), Status: rapid.SampledFrom([]uint32{0xe, 0x1e, 0x2e, 0x3e}).Draw(rt, "status"), Mark: rapid.Uint32Range(0, 3).Draw(rt, "ct mark"), Zone: rapid.Uint16Range(0, 3).Draw(rt, "ct zone"), First: first}
			}
			got := n.run(t, &p)
			want := programs[i].Run(p)
			total++
			if new && got.outcome != rules.IsSlow {
				plain++
			}
			if got.outcome == rules.IsSlow {
				slow++
				if want.Outcome != rules.IsSlow && !got.long {
					mine++
				}
				continue
			}
			if got.outcome != want.Outcome {
				rt.Fatalf("%+v: the node says %v, the rules %v by %v %s\n%s", p, got.outcome, want.Outcome, want.By, want.Why, programs[i])
			}
			if !sameCounts(got.counted, want.Counted) {
				rt.Fatalf("%+v: the node counts %v, the rules %v\n%s", p, got.counted, want.Counted, programs[i])
			}
			if got.outcome == rules.Accepted && (got.mark != want.Mark || got.ds != want.DSField || got.untracked != want.Untracked || got.zone != zoneWord(want.Zone)) {
				rt.Fatalf("%+v: the node leaves mark %d, DS %d, untracked %v, zone %#x, the rules %d, %d, %v and %#x\n%s", p, got.mark, got.ds, got.untracked, got.zone, want.Mark, want.DSField, want.Untracked, zoneWord(want.Zone), programs[i])
			}
			if later == nil {
				continue
			}
			old++
			if want := later[i].Run(p); got.outcome != want.Outcome || !sameCounts(got.counted, want.Counted) || got.outcome == rules.Accepted && (got.mark != want.Mark || got.ds != want.DSField) {
				rt.Fatalf("%+v: the node says %v and counts %v; once elements have expired the rules say %v and %v\n%s", p, got.outcome, got.counted, want.Outcome, want.Counted, programs[i])
			}
		}
	})
	if old < total/20 {
		t.Errorf("only %d of %d packets met rules with sets whose elements expire, and were decided", old, total)
	}
	t.Logf("%d packets, %d left to Linux, %d of them since the image cannot say what the rules say; of devices that images were not made for %d were decided", total, slow, mine, plain)
	if plain < total/20 {
		t.Errorf("only %d of %d packets were of devices that images were not made for, and were decided", plain, total)
	}
	if total-slow < total/4 {
		t.Errorf("only %d of %d packets were decided", total-slow, total)
	}
}

// plainIn says whether a packet is of a device that images were not made for, and whether they serve it nevertheless.
func plainIn(images []*image.Image, known []rules.Device, p *rules.Packet) (new, served bool) {
	for _, d := range []rules.Device{p.IIF, p.OIF, p.PhysIn, p.PhysOut} {
		if d == (rules.Device{}) || slices.Contains(known, d) {
			continue
		}
		new = true
		for _, im := range images {
			if im != nil && !im.Plain(d) {
				return true, false
			}
		}
	}
	return new, true
}

// TestNodeComesBack calls chains from chains: each comes back to its own caller and not to one further out, in few steps, and goes on behind the call. Random rules seldom
// nest that deep, and may be left to Linux.
func TestNodeComesBack(t *testing.T) {
	n := loadNode(t, 1<<22, [stages]image.Shape{wholeShape, wholeShape, wholeShape, wholeShape, wholeShape, wholeShape})
	step := func(i int, s ...ruleset.Step) ruleset.Rule {
		return ruleset.Rule{Number: i, Steps: append([]ruleset.Step{ruleset.Count{Counter: ruleset.CounterID(i)}}, s...)}
	}
	jump := func(to string) ruleset.Verdict { return ruleset.Verdict{Code: ruleset.Jump, Chain: to} }
	rs := &ruleset.Ruleset{Counters: make([]ruleset.Counter, 8), Tables: []ruleset.Table{{Family: ruleset.IP4, Name: "t", Chains: []ruleset.Chain{
		{Name: "c", Rules: []ruleset.Rule{step(0)}},
		{Name: "b", Rules: []ruleset.Rule{step(1, jump("c")), step(2)}},
		{Name: "a", Rules: []ruleset.Rule{step(3, jump("b")), step(4)}},
		{Name: "f", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}, Rules: []ruleset.Rule{step(5, jump("a")), step(6)}},
	}}}}
	for _, treeFrom := range []int{-1, 1} {
		programs, images := imagesOf(t, rs, rules.SomeDevices, false, 1, treeFrom)
		n.install(t, images)
		p := rules.Packet{IIF: rules.SomeDevices[0], OIF: rules.SomeDevices[1], Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 17, TTL: 64, Length: 60}
		got, want := n.run(t, &p), programs[0].Run(p)
		if len(want.Counted) != 7 || got.outcome != rules.Accepted || !sameCounts(got.counted, want.Counted) {
			t.Errorf("trees from %d: the node says %v and counts %v, the rules %v and %v\n%s", treeFrom, got.outcome, got.counted, want.Outcome, want.Counted, programs[0])
		}
	}
}

// withoutOld are the programs of a rule set after everything has expired that does; nil if nothing does.
func withoutOld(rs *ruleset.Ruleset) []*rules.Program {
	later := *rs
	later.Sets = slices.Clone(rs.Sets)
	some := false
	for i := range later.Sets {
		s := &later.Sets[i]
		s.Elements = slices.DeleteFunc(slices.Clone(s.Elements), func(e ruleset.Element) bool { some = some || e.Expires != 0; return e.Expires != 0 })
	}
	if !some {
		return nil
	}
	var out []*rules.Program
	for _, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
		out = append(out, rules.Flatten(&later, rules.Class{Family: family, LocalFirst: true, Zones: true}))
	}
	return out
}

// The images of some rules, with what others that came and went meanwhile decide in front of them, do what the new rules mean.
func TestNodeDecidesChangedRules(t *testing.T) {
	n := loadNode(t, 1<<22, [stages]image.Shape{wholeShape, wholeShape, wholeShape, wholeShape, wholeShape, wholeShape})
	total, slow, changed, unsaid := 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		a := rules.SomeRuleset(rt)
		if len(a.Tables) == 0 || slices.ContainsFunc(a.Tables, func(t ruleset.Table) bool { return len(t.Chains) == 0 }) {
			return
		}
		b := rules.ChangeSome(rt, a)
		ct := rapid.Bool().Draw(rt, "ct")
		programs, images := imagesOf(t, a, rules.SomeDevices, ct, 0, rapid.SampledFrom([]int{-1, 1}).Draw(rt, "trees from"))
		var overs [2]*image.Image
		var known [2]bool
		for i, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
			class := rules.Class{Family: family, LocalFirst: true, Zones: true}
			changes := rules.FindChanges(a, b, family, 64)
			if changes == nil || !changes.Behind {
				continue
			}
			over := rules.Over(b, class, changes.Rules, 2048)
			if over == nil {
				continue
			}
			shape := wholeShape
			if i == 0 && rapid.Bool().Draw(rt, "few rows") { // as if no rule had asked for these
				shape.Dims &^= 1<<image.Src | 1<<image.Dst | 1<<image.DPort | 1<<image.Proto
			}
			im, err := image.Over(over, rules.SomeDevices, ct, shape)
			if errors.Is(err, image.ErrWhom) {
				unsaid++
				continue
			}
			if err != nil {
				if shape == wholeShape {
					rt.Fatal(err)
				}
				continue
			}
			overs[i], known[i] = im, true
			programs[i] = rules.Flatten(b, class)
			changed += len(changes.Rules)
		}
		n.install(t, images)
		n.over(t, overs)
		for range 30 {
			six := rapid.Bool().Draw(rt, "six")
			i, family := 0, ruleset.IP4
			if six {
				i, family = 1, ruleset.IP6
			}
			if !known[i] {
				continue
			}
			p := rules.SomePacket(rt, family)
			first := firstOf(&p)
			p.Mark, p.CT, p.TTL, p.FragOffset = 0, nil, max(p.TTL, 2), p.FragOffset&0x4000
			if ct {
				p.CT = &rules.Connection{State: ruleset.CTEstablished, Reply: rapid.Bool().Draw(rt, "reply"), Status: rapid.SampledFrom([]uint32{0xe, 0x1e, 0x2e, 0x3e}).Draw(rt, "status"), Mark: rapid.Uint32Range(0, 3).Draw(rt, "ct mark"), Zone: rapid.Uint16Range(0, 3).Draw(rt, "ct zone"), First: first}
			}
			got := n.run(t, &p)
			want := programs[i].Run(p)
			total++
			if got.outcome == rules.IsSlow {
				slow++
				continue
			}
			if got.outcome != want.Outcome || !sameCounts(got.counted, want.Counted) {
				rt.Fatalf("%+v: the node says %v and counts %v, the rules %v and %v\n%s", p, got.outcome, got.counted, want.Outcome, want.Counted, programs[i])
			}
			if got.outcome == rules.Accepted && (got.mark != want.Mark || got.ds != want.DSField || got.untracked != want.Untracked || got.zone != zoneWord(want.Zone)) {
				rt.Fatalf("%+v: the node leaves mark %d, DS %d, untracked %v, zone %#x, the rules %d, %d, %v and %#x\n%s", p, got.mark, got.ds, got.untracked, got.zone, want.Mark, want.DSField, want.Untracked, zoneWord(want.Zone), programs[i])
			}
		}
	})
	n.over(t, [2]*image.Image{})
	t.Logf("%d packets, %d left to Linux, %d rules changed", total, slow, changed)
	if unsaid > 2+changed/100 {
		t.Errorf("of %d changed rules it could not be said %d times whom they concern", changed, unsaid)
	}
	if total < 200 || total-slow < total/4 {
		t.Errorf("only %d of %d packets were decided", total-slow, total)
	}
}

func sameCounts(a, b []rules.Counted) bool {
	order := func(x, y rules.Counted) int { return int(x.Counter)*1e6 + x.Bytes - int(y.Counter)*1e6 - y.Bytes }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}
