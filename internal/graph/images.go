// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// maxImages is how many bytes all images of one family may take: 10,000 ClassBench-like rules of any kind take 22 to 26 million. The data path has room (128 MiB) for those of
// both families, for what is asked before them, and for the successors of all. It takes the power of two that suffices, which is 64 MiB for one family of that size.
const maxImages = 30 << 20

// Memo keeps what was worked out of a rule set, since that of thousands of rules takes longer than all else, and since equal images must
// stay the same value in the data path; and the last graph, for what in it is about links that are the same (carry.go). It belongs to one caller of Build.
type Memo struct {
	// Apart is the number of rules from which on a rule set is left to a Compilation; 0 for never.
	Apart int

	last *carried // all else of the last graph

	of       *ruleset.Ruleset
	devices  []rules.Device
	compiled bool
	suit     map[*Filter]bool // those of filters and before whose images are right for the devices that there are
	filters  map[filterKey]*Filter
	pending  []filterKey           // those of filters that stand in for one that is not compiled yet
	urgent   bool                  // one of these leaves all packets to Linux
	leaves   bool                  // one leaves the packets of changed rules to it
	changed  int                   // the most rules that one of them lacks
	before   map[filterKey]*Filter // the last that were compiled of other rule sets
	places   []ruleset.CounterPlace

	askedOf *ruleset.Ruleset
	asks    asked // by its rules
}

// filterKey says for which packets a filter is: where connections are tracked, only those of established ones come to rules.
type filterKey struct {
	family      model.Family
	established bool
	translated  bool   // Linux translates them
	sets        bool   // the data path can ask ipsets
	zones       bool   // and look connections up in the zone that rules say
	localFirst  bool   // IPv4: routing asks for the router's own addresses before all else, and for no TOS. IPv6: types of addresses can be told
	routeBack   bool   // the route to a sender can be told
	bridged     bool   // frames between ports of bridges, which chains of family bridge meet
	ingress     string // devices whose chains at ingress belong to it, by their names, which have no blanks
	egress      string // and those whose chains at egress do
}

// shared is the key of the packets that meet no chain of a device.
func (k filterKey) shared() filterKey {
	k.ingress, k.egress = "", ""
	return k
}

// filter gives what a network's rules do to a family's packets.
func (m *Memo) filter(net *model.Network, compile bool, key filterKey) *Filter {
	if m == nil {
		m = &Memo{}
	}
	m.begin(net, compile)
	f := m.filters[key]
	if f != nil {
		return f
	}
	switch f = m.keep(key); {
	case f != nil:
	case !compile:
		f = newFilter(net.Filter, key)
		f.name(key)
	case m.Apart != 0 && ruleCount(net.Filter, key.bridged) >= m.Apart:
		var all bool
		if f, all = m.front(key); f == nil {
			f, m.urgent = m.standIn(key), true
		}
		if !all {
			m.pending = append(m.pending, key)
		}
	default:
		f = compiled(net.Filter, key, m.devices, m.before[key])
	}
	m.filters[key], m.suit[f] = f, true
	return f
}

// begin forgets what was worked out of other rules or for other devices, but for what may serve again.
func (m *Memo) begin(net *model.Network, compile bool) {
	m.meet(devicesOf(net))
	alike := m.compiled == compile
	if m.of == net.Filter && alike && m.filters != nil && m.allSuit() {
		return
	}
	before := map[filterKey]*Filter{}
	alikes := map[filterKey]bool{} // keys but for their devices
	for key, f := range m.filters {
		if !slices.Contains(m.pending, key) {
			before[key] = f
			alikes[key.shared()] = true
		}
	}
	for key, f := range m.before {
		if before[key] == nil && (key == key.shared() || !alikes[key.shared()]) {
			before[key] = f
		}
	}
	suit := map[*Filter]bool{}
	for _, f := range before {
		if alike && m.suit[f] {
			suit[f] = true
		}
	}
	*m = Memo{Apart: m.Apart, last: m.last, of: net.Filter, devices: m.devices, compiled: compile, suit: suit, filters: map[filterKey]*Filter{}, before: before}
}

// meet goes over to the devices that there are now.
func (m *Memo) meet(devices []rules.Device) {
	other := otherDevices(m.devices, devices)
	m.devices = devices
	for f := range m.suit {
		if !f.plain(other) {
			delete(m.suit, f)
		}
	}
}

func (m *Memo) allSuit() bool {
	for _, f := range m.filters {
		if !m.suit[f] {
			return false
		}
	}
	return true
}

// otherDevices are those that are only in one of two lists, which are in the order of their numbers.
func otherDevices(a, b []rules.Device) (out []rules.Device) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0].Index <= b[0].Index:
			out, a = append(out, a[0]), a[1:]
		default:
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// plain says whether rules tell none of some devices from those of which they say nothing: images made with them and without them do the same.
func (f *Filter) plain(devices []rules.Device) bool {
	images := append(slices.Clone(f.Images[:]), f.Front)
	if f.Over != nil {
		images = append(images, f.Over.Image)
	}
	for _, im := range images {
		if im != nil && !alikeIn(im, devices) {
			return false
		}
	}
	return true
}

func alikeIn(im *image.Image, devices []rules.Device) bool {
	return !slices.ContainsFunc(devices, func(d rules.Device) bool { return !im.Plain(d) })
}

// compiled is a filter with its images.
func compiled(rs *ruleset.Ruleset, key filterKey, devices []rules.Device, old *Filter) *Filter {
	f := newFilter(rs, key)
	if f.Pre.Entries+f.Post.Entries > 0 {
		f.Problem = f.compile(rs, devices, old)
	}
	f.name(key)
	return f
}

// compile makes the images of the stages that do something; old has those that may still be good. It says why it could not.
func (f *Filter) compile(rs *ruleset.Ruleset, devices []rules.Device, old *Filter) string {
	f.Places = rs.Identities()
	size := 0
	dims := map[*Stage]uint16{}
	f.Pre.Slow, f.Post.Slow = 0, 0
	for stage := range image.Stages {
		s := &f.Pre
		if stage == image.Post {
			s = &f.Post
		}
		if s.Entries == 0 {
			continue
		}
		im, err := image.Compile(f.Program, devices, image.Options{Stage: stage, CT: f.Program.Class.Established})
		if err != nil {
			return err.Error()
		}
		if im == nil {
			continue
		}
		f.left = append(f.left, im.Left...)
		if old != nil && sameImage(old.Images[stage], im, old.Places, f.Places) {
			im = old.Images[stage]
		}
		f.Images[stage] = im
		dims[s] |= im.Shape.Dims
		s.Slow, s.Dims = s.Slow+im.Slow, bits.OnesCount16(dims[s])
		size += len(im.Bytes)
	}
	if size > maxImages {
		return fmt.Sprintf("the rules take %d bytes, the data path has room for %d", size, maxImages)
	}
	return ""
}

// sameImage says whether two images do the same and count in the same places, by the same numbers.
func sameImage(a, b *image.Image, placesA, placesB []ruleset.CounterPlace) bool {
	return a != nil && a.Shape == b.Shape && bytes.Equal(a.Bytes, b.Bytes) && slices.Equal(a.Places, b.Places) &&
		slices.EqualFunc(a.Counters, b.Counters, func(x, y ruleset.CounterID) bool { return x == y && samePlace(placesA[x], placesB[y]) })
}

func samePlace(a, b ruleset.CounterPlace) bool {
	return a.Kind == b.Kind && a.Family == b.Family && a.Table == b.Table && a.TableHandle == b.TableHandle && a.Chain == b.Chain && a.Handle == b.Handle &&
		a.Index == b.Index && a.Name == b.Name && slices.Equal(a.Key, b.Key)
}

// devicesOf are all devices as rules know them.
func devicesOf(net *model.Network) (out []rules.Device) {
	for i := range net.Links {
		l := net.Links[i]
		out = append(out, rules.Device{Name: l.Name, Index: l.Index, Group: l.Group, Type: l.Type})
	}
	return out
}
