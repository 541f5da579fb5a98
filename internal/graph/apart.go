// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Compilation is the part of a Build that was left out since it takes long: the filters of a large rule set. Until it is done and taken in, the packets that changed rules
// concern are left to Linux, where that can be told by the rules that were compiled before; else all packets of its families.
type Compilation struct {
	rules   *ruleset.Ruleset
	devices []rules.Device
	keys    []filterKey
	before  map[filterKey]*Filter
	filters map[filterKey]*Filter
	Urgent  bool // until it is done all packets of a family go to Linux, not only some
	Leaves  bool // until it is done the packets that changed rules concern go to Linux
	Changed int  // so many rules are not in the images that there are, unless it is urgent
}

// Run does the work. It may run on any goroutine.
func (c *Compilation) Run() {
	c.filters = map[filterKey]*Filter{}
	for _, key := range c.keys {
		c.filters[key] = compiled(c.rules, key, c.devices, c.before[key])
	}
}

// Compilation gives what the last Build left out; nil if it left nothing.
func (m *Memo) Compilation() *Compilation {
	if len(m.pending) == 0 {
		return nil
	}
	return &Compilation{rules: m.of, devices: m.devices, keys: slices.Clone(m.pending), before: m.before, Urgent: m.urgent, Leaves: m.leaves, Changed: m.changed}
}

// Take takes in what Run made, for the next Build; false if it is of no use any more, since the devices are others, or since the rules are and none of them are left out.
// Of rules that changed meanwhile it is what the next filter starts from, so that a stream of changes does not keep the images of long ago.
func (m *Memo) Take(c *Compilation) bool {
	if !m.compiled || m.of != c.rules && len(m.pending) == 0 {
		return false
	}
	other := otherDevices(c.devices, m.devices)
	for _, f := range c.filters {
		if !f.plain(other) {
			return false
		}
	}
	for key, f := range c.filters {
		m.suit[f] = true
		if m.of == c.rules {
			m.filters[key] = f
		} else {
			m.before[key] = f
			delete(m.filters, key)
		}
		m.pending = slices.DeleteFunc(m.pending, func(k filterKey) bool { return k == key })
	}
	return true
}

// earlier is the filter from before, if its images are right for the devices that there are: it may be older than the last change of those.
func (m *Memo) earlier(key filterKey) *Filter {
	if f := m.before[key]; f != nil && m.of != nil && m.suit[f] {
		return f
	}
	return nil
}

// keep carries over from the rule set before what means the same for its packets.
func (m *Memo) keep(key filterKey) *Filter {
	old := m.earlier(key)
	if old == nil || key.bridged || !rules.Same(old.Program.Rules(), key.met(m.of), key.class().Family) {
		return nil
	}
	f := *old // its counters are what they were, whatever others there are now
	return &f
}

// maxChanged is how many rules may have changed for the others to go on being evaluated.
const maxChanged = 256

// For so many changed rules what their packets meet is worked out, and it may have so many entries: every packet is asked whether it is one of those.
const (
	maxOver        = 64
	maxOverEntries = 512
)

// over has what packets of changed rules meet decided before the images that do not know these rules; false where that cannot be said.
func (f *Filter) over(now *ruleset.Ruleset, key filterKey, changed []ruleset.Rule, devices []rules.Device, shape image.Shape) bool {
	pr := rules.Over(now, key.class(), changed, maxOverEntries)
	if pr == nil {
		return false
	}
	im, err := image.Over(pr, devices, key.established, shape)
	if err != nil || im != nil && im.SetsAt != 0 && f.Images[image.Post].SetsAt == 0 {
		return false
	}
	if im == nil { // no packet satisfies what they ask
		return true
	}
	f.Over = &Over{im, now.IdentitiesOf(im.Counters)}
	for i := range im.Counters {
		im.Counters[i] = ruleset.CounterID(i)
	}
	f.Slow = slices.Clip(f.Slow)
	for _, s := range append(pr.Slow(), im.Left...) {
		if s.By.Rule != nil && slices.ContainsFunc(changed, func(r ruleset.Rule) bool { return rules.SameRule(&r, s.By.Rule) }) && len(f.Slow) < len(f.Program.Slow())+manySlow {
			f.Slow = append(f.Slow, because(key.reasonAt(s.Hook), "%s", describeSlow(s, now)))
		}
	}
	return true
}

// front is the filter from before with what changed rules concern decided apart, or left to Linux; nil where more changed than that. all says that the rules are the same, and nothing is left to be compiled.
func (m *Memo) front(key filterKey) (out *Filter, all bool) {
	old := m.earlier(key)
	if old == nil || key.bridged || old.Problem != "" || old.closed || old.Images == [image.Stages]*image.Image{} {
		return nil, false
	}
	now := key.met(m.of)
	changes := rules.FindChanges(old.Program.Rules(), now, key.class().Family, maxChanged)
	if changes == nil {
		return nil, false
	}
	changed := changes.Rules
	f := *old
	if len(changed) == 0 {
		return &f, true
	}
	m.changed = max(m.changed, len(changed))
	var shape image.Shape
	for _, im := range old.Images {
		if im != nil {
			shape = shape.Or(im.Shape)
		}
	}
	if changes.Behind && old.Images[image.Post] != nil && len(changed) <= maxOver {
		if f.over(now, key, changed, m.devices, shape) {
			return &f, false
		}
	}
	im, err := image.Front(changes, key.translated, key.class(), m.devices, shape)
	if err != nil {
		return nil, false
	}
	m.leaves = true
	f.Front = im
	f.Slow = append(slices.Clip(old.Slow), because(routedHooks[key.family]["forward"], "what %d changed rules may concern: they are being compiled", len(changed)))
	return &f, false
}

// standIn is a filter that leaves all packets to Linux: at the first stage at which the rules before did something, since programs that ask there are in place; or, where no
// packet was fast with those, without any program.
func (m *Memo) standIn(key filterKey) *Filter {
	const why = "the rules are being compiled"
	base := &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter, Unknown: []string{why}}
	old := m.before[key]
	switch {
	case old == nil:
	case old.Images[image.Raw] != nil:
		base.Hook, base.Priority = ruleset.Prerouting, -300
	case old.Images[image.Pre] != nil:
		base.Hook = ruleset.Prerouting
	}
	family := key.class().Family
	if key.bridged {
		family = ruleset.Bridge
	}
	rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: family, Chains: []ruleset.Chain{{Base: base}}}}}
	f := compiled(rs, key, m.devices, nil)
	f.closed, f.Places = old != nil && (old.closed || old.Problem != ""), m.identities()
	f.Slow = []Why{because(key.reasonAt(base.Hook), why)}
	return f
}

// ruleCount is how many rules there are, of family bridge, or of any.
func ruleCount(rs *ruleset.Ruleset, bridged bool) (n int) {
	for i := range rs.Tables {
		if bridged && rs.Tables[i].Family != ruleset.Bridge {
			continue
		}
		for j := range rs.Tables[i].Chains {
			n += len(rs.Tables[i].Chains[j].Rules)
		}
	}
	return n
}

// identities are the places of the rule set's counters.
func (m *Memo) identities() []ruleset.CounterPlace {
	if m.places == nil && m.of != nil {
		m.places = m.of.Identities()
	}
	return m.places
}

func (k filterKey) class() rules.Class {
	c := rules.Class{Family: ruleset.IP4, Established: k.established, LiveSets: k.sets, Zones: k.zones, LocalFirst: k.localFirst, RouteBack: k.routeBack, Bridged: k.bridged}
	if k.family == model.IP6 {
		c.Family = ruleset.IP6
	}
	return c
}
