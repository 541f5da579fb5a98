// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"reflect"
	"slices"
	"sort"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// device is one link on its way into a graph: as it is described by itself and with those that it stands on, belongs to or carries, and what became of it among all.
type device struct {
	choice   choice
	final    *Port
	out      *Egress
	settling bool
	was      *device // in the last graph, as long as this one is made

	brief
	link   *model.Link
	port   Port
	egress *Egress // nil: no way out
}

// brief is what choices ask of a device. They ask all, of which there may be a thousand, each time, and memory is what that waits for: so they are side by side.
type brief struct {
	index     int
	apart     bool // what becomes of it follows from its description and the choice alone: it is no VLAN and no slave of a bond
	vlan      bool
	inputs    bool    // it has logical interfaces
	fast      []int   // those with packets that could be fast
	first     []int   // of the port itself, if it is one of those
	candidate bool    // a program at XDP could forward something that is routed
	openTC    bool    // nothing speaks against tc
	way       bool    // it is an egress
	by        int     // the port that it leaves by
	byXDP     bool    // nothing speaks against entering it by XDP but ability
	byTC      bool    // nor by tc
	tags      int     // that it has
	ability   ability // whether XDP frames can be sent to it
	bridge    int     // that it is a port of, where frames of IP between ports could be fast; 0: none
	willing   bool    // such frames could be taken at XDP
	late      bool    // they can leave by it only once a program is loaded on it
	leaves    int     // the bridge whose frames leave by it; 0: none
	exit      exits   // how
}

// few is how many devices are compared with what became of them in the last graph: more cost more than it helps those who come after.
const few = 32

// common is all that descriptions depend on but links and rules.
type common struct {
	net    model.Network // without these, without addresses, of which facts have what matters, and without the numbers of routes
	policy Policy        // without its memo
	facts  facts
	// special are the notable destinations: those that sockets call their own address rest on every single address.
	special []Special
}

// ruling is the rules, as one and the same value.
type ruling struct {
	rules   *ruleset.Ruleset
	filters [4]*Filter
}

// carried is what a Build leaves to the next one.
type carried struct {
	common  common
	ruling  ruling
	devices []*device // in the order of their numbers
	briefs  []brief   // theirs
	graph   *Graph
	before  *Graph // the last one, if it is for the same but links
}

func (c *carried) likewise(o *carried) bool {
	return c.ruling == o.ruling && reflect.DeepEqual(c.common, o.common)
}

// describe describes every device, or takes over what was said of it if all is as it was that the description rests on.
func (b *builder) describe() (now *carried) {
	g := b.graph
	now = &carried{common: common{*b.net, b.policy, b.facts, g.Special}, ruling: ruling{b.net.Filter, [4]*Filter{g.Filter4, g.Filter6, g.Frames4, g.Frames6}}}
	now.common.net.Links, now.common.net.Filter, now.common.policy.Memo = nil, nil, nil
	now.common.net.Addrs = nil // every device that comes up gets one of its link
	now.common.net.Routes.Count4, now.common.net.Routes.Count6 = 0, 0
	b.devices, b.briefs = make([]*device, len(b.net.Links)), make([]brief, len(b.net.Links))
	now.devices, now.briefs = b.devices, b.briefs
	var before []*device
	var briefs []brief
	var touched map[int]bool
	if m := b.policy.Memo; m != nil && m.last != nil && m.last.likewise(now) {
		before, briefs = m.last.devices, m.last.briefs
		touched = b.touched(before)
		now.before = m.last.graph
	}
	at := 0
	for i, l := range b.net.Links {
		for at < len(before) && briefs[at].index < l.Index {
			at++
		}
		there := at < len(before) && briefs[at].index == l.Index
		if there && before[at].link == l && !touched[l.Index] {
			b.devices[i], b.briefs[i] = before[at], briefs[at]
			continue
		}
		b.devices[i] = b.describeDevice(l)
		if b.briefs[i] = b.devices[i].brief; there && len(touched) <= few {
			b.devices[i].was = before[at]
		}
	}
	return now
}

func (b *builder) describeDevice(l *model.Link) *device {
	d := &device{link: l, port: b.describePort(l)}
	e, able := b.describeEgress(l)
	b.describeBridge(l, &d.port, e)
	p := &d.port
	d.egress, d.brief = e, brief{index: l.Index, vlan: l.Kind == kindVLAN, inputs: len(p.Inputs) > 0, fast: willing(p.Inputs), openTC: len(p.TC) == 0}
	d.apart = !d.vlan && (l.Master == 0 || l.MasterKind != kindBond)
	d.candidate = !d.vlan && len(p.XDP) == 0 && len(d.fast) > 0
	switch {
	case p.Bridge != nil && p.Bridge.VLANs: // which are met at tc, too
		d.first = d.fast
	case len(d.fast) > 0 && d.fast[0] == p.Inputs[0].Index:
		d.first = d.fast[:1]
	}
	if p.Bridge != nil && len(p.Bridge.unseen()) == 0 {
		d.bridge, d.willing = p.Bridge.Index, len(p.XDP) == 0
	}
	if e == nil {
		return d
	}
	d.way, d.by, d.byXDP, d.byTC, d.tags, d.ability = true, e.Port, len(e.XDP) == 0, len(e.TC) == 0, len(e.VLANs), able
	if w := e.Bridge; w != nil {
		d.late = len(w.XDP) == 0 && b.transmits(l) == onLoad
		d.leaves, d.exit = w.Index, exitOf(len(w.XDP) == 0 && (!d.late || d.willing), len(w.TC) == 0, d.willing)
	}
	return d
}

// settled makes a graph the last one, or finds that it is what the last one was.
func (c *carried) settled(g *Graph) *Graph {
	if c.before != nil && slices.Equal(c.before.Ports, g.Ports) && slices.Equal(c.before.Egress, g.Egress) {
		g = c.before
	}
	c.graph, c.before = g, nil
	return g
}

// touched are the devices whose description may have changed with links: those with another link than before, and whatever these stand on, belong to, carry or have as
// members, now or before, however far. It ends where a changed device is a port of a bridge: that reads its ports, as a way out, and they read it, but no port reads
// another one.
func (b *builder) touched(before []*device) map[int]bool {
	t := touch{b: b, full: map[int]bool{}, only: map[int]bool{}, has: map[int]bool{}}
	for _, l := range b.net.Links {
		if l.Master != 0 {
			t.has[l.Master] = true
		}
		if l.Bond != nil {
			t.has[l.Index] = true
			for _, s := range l.Bond.Slaves {
				t.has[s] = true
			}
		}
	}
	at := 0
	for _, l := range b.net.Links {
		for ; at < len(before) && before[at].link.Index < l.Index; at++ {
			t.from(before[at].link) // it is gone
		}
		if at < len(before) && before[at].link.Index == l.Index {
			old := before[at].link
			if at++; old == l {
				continue
			}
			t.from(old)
		}
		t.from(l)
	}
	for ; at < len(before); at++ {
		t.from(before[at].link)
	}
	if len(t.full) == 0 {
		return nil
	}
	for _, l := range b.net.Links {
		if l.Kind == kindVXLAN { // looks at all that may be its underlay
			t.at(l)
		}
	}
	for index := range t.only {
		t.full[index] = true
		for _, u := range b.uppers[index] { // VLAN devices, which read the bridge's ports as a way out, and are read by nobody for that
			t.full[u.Index] = true
		}
	}
	return t.full
}

type touch struct {
	b    *builder
	full map[int]bool // devices whose neighbours are touched as well
	only map[int]bool // bridges that were reached from a port
	has  map[int]bool // devices that name others as their members, or are named so
}

// at touches a device and its neighbours.
func (t *touch) at(l *model.Link) {
	if l != nil && !t.full[l.Index] {
		t.from(l)
	}
}

// from does it for one that is there, or was.
func (t *touch) from(l *model.Link) {
	t.full[l.Index] = true
	switch {
	case l.Master == 0:
	case l.MasterKind == kindBridge:
		t.only[l.Master] = true
	default:
		t.at(t.b.net.Link(l.Master))
	}
	t.at(t.b.net.Link(l.Lower))
	for _, u := range t.b.uppers[l.Index] {
		t.at(u)
	}
	if l.Bond != nil {
		for _, s := range l.Bond.Slaves {
			t.at(t.b.net.Link(s))
		}
	}
	if !t.has[l.Index] {
		return
	}
	for _, m := range t.b.net.Links {
		if m.Master == l.Index || m.Bond != nil && slices.Contains(m.Bond.Slaves, l.Index) {
			t.at(m)
		}
	}
}

// position is where a device is among all.
func (b *builder) position(index int) (int, bool) {
	at := sort.Search(len(b.briefs), func(i int) bool { return b.briefs[i].index >= index })
	return at, at < len(b.briefs) && b.briefs[at].index == index
}

func (b *builder) device(index int) *device {
	if at, ok := b.position(index); ok {
		return b.devices[at]
	}
	return nil
}
