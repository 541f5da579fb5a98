// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// apartPolicy leaves rule sets of so many rules to compilations.
func apartPolicy(count int) Policy {
	_, pol := router()
	pol.Kernel.Rules = true
	pol.Memo = &Memo{Apart: count}
	return pol
}

// A large rule set leaves its packets to Linux until it is compiled, without another program; then everything is as if it had been compiled at once.
func TestCompiledApart(t *testing.T) {
	few, many := manyRules(10, true), manyRules(400, true)
	pol := apartPolicy(50)
	if g := Build(few, pol); g.Filter4.Images[image.Post] == nil || pol.Memo.Compilation() != nil {
		t.Fatalf("a small rule set is not compiled: %+v", g.Filter4)
	}
	g := Build(many, pol)
	f := g.Filter4
	packet := rules.Packet{TTL: 9, Src: netip.MustParseAddr("1.1.1.1"), Dst: netip.MustParseAddr("2.2.2.2")}
	if res := f.Program.Run(packet); res.Outcome != rules.IsSlow {
		t.Errorf("a packet meets %+v while the rules are compiled", res)
	}
	if f.Images[image.Pre] != nil || f.Images[image.Post] == nil || f.Images[image.Post].Entries != 2 || f.Images[image.Post].Slow != 1 || len(f.Places) != len(many.Filter.Counters) {
		t.Errorf("while the rules are compiled: %+v", f)
	}
	for _, p := range g.Ports {
		for _, in := range p.Inputs {
			if len(in.IP4.Why) > 0 || len(in.IP4.Nodes) > 0 && len(in.IP4.Except) != 1 {
				t.Errorf("path of %d: %v, except %v", in.Index, in.IP4.Why, in.IP4.Except)
			}
		}
	}
	work := pol.Memo.Compilation()
	if work == nil {
		t.Fatal("nothing was left out")
	}
	if again := Build(many, pol); again.Filter4 != f {
		t.Error("another filter for the same rules")
	}
	work.Run()
	if !pol.Memo.Take(work) || pol.Memo.Compilation() != nil {
		t.Fatal("what was compiled is not taken")
	}
	got, want := Build(many, pol), Build(many, apartPolicy(0))
	if !reflect.DeepEqual(got.Filter4.Images, want.Filter4.Images) || !reflect.DeepEqual(got.Ports, want.Ports) {
		t.Error("compiled apart is not what is compiled at once")
	}
}

// Where no packet was fast with the rules before, none gets a program while others are compiled.
func TestClosedUntilCompiled(t *testing.T) {
	pol := apartPolicy(50)
	closed := manyRules(10, false)
	first := closed.Filter.Tables[0].Chains[1].Rules
	first[0] = ruleset.Rule{Number: 1, Steps: limits}
	Build(closed, pol)
	for _, p := range Build(manyRules(400, true), pol).Ports {
		for _, in := range p.Inputs {
			if len(in.IP4.Why) == 0 {
				t.Errorf("a path of %d", in.Index)
			}
		}
	}
}

// What was compiled of rules or for devices that are others by now must not be in force.
func TestCompiledTooLate(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*model.Network)
		taken  bool // to start from
	}{
		"another rule set": {func(n *model.Network) { n.Filter = manyRules(400, false).Filter }, true},
		"another device":   {func(n *model.Network) { n.Links = append(slices.Clip(n.Links), pointer(card(77, "new"))) }, false},
	} {
		pol := apartPolicy(50)
		net := manyRules(400, true)
		askFor(net, "new")
		Build(net, pol)
		work := pol.Memo.Compilation()
		work.Run()
		later := *net
		c.change(&later)
		Build(&later, pol)
		if pol.Memo.Take(work) != c.taken {
			t.Errorf("%s: a compilation from before was taken: %v", what, !c.taken)
		}
		packet := rules.Packet{TTL: 9, Src: netip.MustParseAddr("1.1.1.1"), Dst: netip.MustParseAddr("2.2.2.2")}
		if res := Build(&later, pol).Filter4.Program.Run(packet); res.Outcome != rules.IsSlow {
			t.Errorf("%s: a packet meets %+v before its rules are compiled", what, res)
		}
		next := pol.Memo.Compilation()
		if next == nil {
			t.Fatalf("%s: nothing to compile", what)
		}
		next.Run()
		if !pol.Memo.Take(next) {
			t.Errorf("%s: its own compilation was not taken", what)
		}
	}
}

// withChain is a network with the same rules, shared, and another input chain.
func withChain(net *model.Network, name string, hook ruleset.Hook) *model.Network {
	out, rs := *net, *net.Filter
	rs.Tables = slices.Clone(rs.Tables)
	rs.Tables[0].Chains = append(slices.Clip(rs.Tables[0].Chains), ruleset.Chain{Name: name,
		Base:  &ruleset.Base{Hook: hook, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.CounterID(len(rs.Counters))},
		Rules: []ruleset.Rule{{Number: 1, Steps: drop}}})
	rs.Counters = append(slices.Clip(rs.Counters), ruleset.Counter{})
	out.Filter = &rs
	return &out
}

// A change that forwarded packets do not meet makes nothing anew; one that they meet does.
func TestUnmetChangeKeepsImages(t *testing.T) {
	pol := apartPolicy(0)
	net := manyRules(20, true)
	before := Build(net, pol).Filter4
	after := Build(withChain(net, "in", ruleset.Input), pol).Filter4
	if after.Images[image.Post] != before.Images[image.Post] || &after.Places[0] != &before.Places[0] {
		t.Error("a chain at input made the image anew")
	}
	if met := Build(withChain(net, "out", ruleset.Postrouting), pol).Filter4; met.Images[image.Post] == before.Images[image.Post] {
		t.Error("a chain at postrouting changed nothing")
	}
}

// behindSource is a network with rules behind the jump of net's, each for a source and what may be more.
func behindSource(net *model.Network, more []ruleset.Step, handles ...uint64) *model.Network {
	next, rs := *net, *net.Filter
	rs.Tables = slices.Clone(rs.Tables)
	rs.Tables[0].Chains = slices.Clone(rs.Tables[0].Chains)
	live := &rs.Tables[0].Chains[0]
	for i, h := range handles {
		steps := append([]ruleset.Step{ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(h))}}}, more...)
		live.Rules = append(live.Rules, ruleset.Rule{Handle: h, Number: i + 1, Steps: append(steps, ruleset.Count{Counter: ruleset.CounterID(len(rs.Counters))}, ruleset.Verdict{Code: ruleset.Drop})})
		rs.Counters = append(slices.Clip(rs.Counters), ruleset.Counter{At: ruleset.CounterPlace{Family: ruleset.IP4, Table: "t", Chain: "live", Handle: h}})
	}
	next.Filter = &rs
	return &next
}

// What packets of a changed rule among very many meet is decided in front of the images that stay, with the counters of the new rules; when it went again nothing is left.
func TestChangedRuleIsDecided(t *testing.T) {
	pol := apartPolicy(0)
	net := manyRules(400, false)
	first := Build(net, pol).Filter4
	pol.Memo.Apart = 50
	f := Build(behindSource(net, nil, 1), pol).Filter4
	if f.Images != first.Images || f.Front != nil || f.Over == nil || f.Over.Image.Entries != 2 || f.Over.Image.Slow != 0 || len(f.Slow) != 0 {
		t.Fatalf("beside one more rule: %+v", f)
	}
	if len(f.Over.Places) != 1 || f.Over.Places[0].Handle != 1 || !slices.Equal(f.Over.Image.Counters, []ruleset.CounterID{0}) {
		t.Errorf("its counter: %+v", f.Over.Places)
	}
	if work := pol.Memo.Compilation(); work == nil || work.Urgent || work.Leaves || work.Changed != 1 {
		t.Errorf("to be compiled: %+v", work)
	}
	if f = Build(net, pol).Filter4; f.Over != nil || f.Front != nil || f.Images != first.Images || pol.Memo.Compilation() != nil {
		t.Errorf("when it went: %+v", f)
	}
	many := make([]uint64, maxOver+1)
	for i := range many {
		many[i] = uint64(i + 1)
	}
	if f = Build(behindSource(net, nil, many...), pol).Filter4; f.Over != nil || f.Front == nil || !pol.Memo.Compilation().Leaves {
		t.Errorf("beside many: %+v", f)
	}
	// A rule that was there goes: its packets meet what is left.
	less, rs := *net, *net.Filter
	rs.Tables = slices.Clone(rs.Tables)
	rs.Tables[0].Chains = slices.Clone(rs.Tables[0].Chains)
	rs.Tables[0].Chains[1].Rules = slices.Delete(slices.Clone(rs.Tables[0].Chains[1].Rules), 7, 8)
	less.Filter = &rs
	if f = Build(&less, pol).Filter4; f.Over == nil || f.Over.Image.Entries != 2 || f.Images != first.Images {
		t.Errorf("beside one less: %+v", f)
	}
}

// Of a changed rule that asks for what programs do not know only the packets are left to Linux that it may concern, also when rules change again and again while they are compiled.
func TestChangedRuleInFront(t *testing.T) {
	pol := apartPolicy(50)
	net := manyRules(400, false)
	pol.Memo.Apart = 0
	first := Build(net, pol).Filter4
	pol.Memo.Apart = 50
	asking := ruleset.TCPFlags
	change := func(handles ...uint64) *model.Network {
		return behindSource(net, []ruleset.Step{ruleset.Test{Field: asking, Ranges: []ruleset.Range{ruleset.Nums(2, 2)}}}, handles...)
	}
	one := Build(change(1), pol)
	f := one.Filter4
	if f.Images != first.Images || f.Front == nil || f.Front.Slow != 1 || f.Front.Shape.Dims != 1<<image.Src || len(f.Slow) != 1 {
		t.Fatalf("beside one more rule: %+v", f)
	}
	work := pol.Memo.Compilation()
	if work == nil || work.Urgent {
		t.Fatalf("to be compiled: %+v", work)
	}
	work.Run()
	asking = ruleset.ICMPType // which neither the first images ask for nor those that are being made
	two := change(2, 3)
	if f = Build(two, pol).Filter4; f.Front == nil || f.Front.Slow != 2 || f.Images != first.Images {
		t.Errorf("beside two others: %+v", f)
	}
	if !pol.Memo.Take(work) {
		t.Fatal("what was compiled meanwhile is not taken")
	}
	// The base has rule 1 now, which went, and not 2 and 3, which came.
	if f = Build(two, pol).Filter4; f.Front == nil || f.Front.Slow != 3 || f.Images == first.Images {
		t.Errorf("in front of what was compiled meanwhile: %+v", f)
	}
	work = pol.Memo.Compilation()
	work.Run()
	if !pol.Memo.Take(work) || pol.Memo.Compilation() != nil {
		t.Error("the last rules are not taken")
	}
	if f = Build(two, pol).Filter4; f.Front != nil || len(f.Slow) != 0 {
		t.Errorf("when all is compiled: %+v", f)
	}
	f = Build(change(slices.Repeat([]uint64{9}, maxChanged+1)...), pol).Filter4
	if f.Front != nil || f.Images == first.Images {
		t.Errorf("beside too many: %+v", f)
	}
	if work = pol.Memo.Compilation(); work == nil || !work.Urgent {
		t.Errorf("to be compiled, while all packets go to Linux: %+v", work)
	}
}

// Where connections are translated, a changed rule behind that is about a receiver concerns packets that come in with another one.
func TestChangedRuleBehindTranslation(t *testing.T) {
	for _, translated := range []bool{false, true} {
		pol := apartPolicy(0)
		pol.Kernel.Conntrack, pol.Kernel.NAT = true, true
		net := manyRules(400, false)
		for i := range net.Filter.Tables[0].Chains[1].Rules[1:] { // as many are about receivers as about senders
			if r := &net.Filter.Tables[0].Chains[1].Rules[1+i]; i%2 == 0 {
				ask := r.Steps[0].(ruleset.Test)
				ask.Field = ruleset.IP4Dst
				r.Steps[0] = ask
			}
		}
		tracks(defrag, trackIn, confirm)(net, &pol)
		if translated {
			tracks(natIn, natOut)(net, &pol)
			natChain(net, &pol)
		}
		Build(net, pol)
		pol.Memo.Apart = 50
		to := []ruleset.Step{ruleset.Test{Field: ruleset.IP4Dst, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(7))}}, ruleset.Test{Field: ruleset.TCPFlags, Ranges: []ruleset.Range{ruleset.Nums(2, 2)}}}
		f := Build(behindSource(net, to, 1), pol).Filter4
		want := uint16(1 << image.Src)
		if !translated {
			want |= 1 << image.Dst
		}
		if f.Front == nil || f.Front.Slow != 1 || f.Front.Shape.Dims != want {
			t.Errorf("translated %t: in front is %+v", translated, f.Front)
		}
	}
}

// askFor adds a rule that asks for a device.
func askFor(net *model.Network, name string) {
	forward := &net.Filter.Tables[0].Chains[1]
	forward.Rules = append(slices.Clip(forward.Rules), ruleset.Rule{Number: len(forward.Rules) + 1, Handle: 1 << 20, Steps: append([]ruleset.Step{ruleset.Test{Field: ruleset.IIFName, Ranges: []ruleset.Range{ruleset.One(ruleset.Name(name))}}}, drop...)})
}

// Devices of which rules say nothing come and go without another filter, one that they name does not, whatever happened before.
func TestPlainDevicesKeepFilters(t *testing.T) {
	for _, apart := range []int{0, 50} {
		pol := apartPolicy(apart)
		net := manyRules(400, true)
		askFor(net, "named")
		build := func() *Filter {
			f := Build(net, pol).Filter4
			if c := pol.Memo.Compilation(); c != nil {
				c.Run()
				if !pol.Memo.Take(c) {
					t.Fatal("what was compiled is not taken")
				}
				f = Build(net, pol).Filter4
			}
			return f
		}
		first := build()
		for _, step := range []struct {
			index int
			name  string // "" takes the device away
			same  bool
		}{{77, "plain", true}, {78, "plain2", true}, {77, "", true}, {77, "named", false}, {79, "plain3", true}, {77, "", false}, {77, "plain4", true}, {77, "named", false}, {77, "plain5", false}, {78, "", true}} {
			now := *net
			now.Links = slices.DeleteFunc(slices.Clone(net.Links), func(l *model.Link) bool { return l.Index == step.index })
			if step.name != "" {
				now.Links = append(now.Links, pointer(card(step.index, step.name)))
				slices.SortFunc(now.Links, func(a, b *model.Link) int { return a.Index - b.Index })
			}
			net = &now
			f := build()
			if (f == first) != step.same {
				t.Errorf("apart %d: device %d is %q: the same filter: %v", apart, step.index, step.name, f == first)
			}
			if want := Build(net, apartPolicy(0)).Filter4; !bytes.Equal(f.Images[image.Post].Bytes, want.Images[image.Post].Bytes) {
				t.Errorf("apart %d: device %d is %q: another image than made anew", apart, step.index, step.name)
			}
			first = f
		}
	}
}

// What is compiled while a device comes of which rules say nothing is of use.
func TestPlainDeviceWhileCompiling(t *testing.T) {
	pol := apartPolicy(50)
	net := manyRules(400, true)
	askFor(net, "named")
	Build(net, pol)
	work := pol.Memo.Compilation()
	work.Run()
	net.Links = append(slices.Clip(net.Links), pointer(card(77, "plain")))
	Build(net, pol)
	if !pol.Memo.Take(work) {
		t.Error("not taken")
	}
}

// Images from before a device came or got another name that they ask for are not gone on with, however many changes of rules came after.
func TestEarlierImagesKnowTheDevices(t *testing.T) {
	pol := apartPolicy(0)
	net := manyRules(20, true)
	askFor(net, "new")
	Build(net, pol)
	m := pol.Memo
	for key, f := range m.filters {
		m.before[key] = f
		if m.earlier(key) != f {
			t.Errorf("%v: not gone on with", key)
		}
		for _, name := range []string{"renamed", "new"} {
			devices := slices.Clone(m.devices)
			devices[0].Name = name
			m.meet(devices)
			front, _ := m.front(key)
			asked := name == "new" && len(f.Images[image.Post].Bytes) > 0
			if gone := m.earlier(key) == nil && m.keep(key) == nil && front == nil; gone != asked {
				t.Errorf("%v: a device is called %s now; is gone on with: %v", key, name, !gone)
			}
		}
	}
	if len(m.filters) == 0 {
		t.Error("no filters")
	}
}
