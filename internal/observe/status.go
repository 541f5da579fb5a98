// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

// Interfaces describes every device of a namespace, by ifindex. It may be called with a nil data path, and then counts nothing.
func Interfaces(s *control.State, d *datapath.Datapath) ([]api.Interface, error) {
	out := make([]api.Interface, 0, len(s.Graph.Ports))
	for i := range s.Graph.Ports {
		p := s.Graph.Ports[i]
		face := describe(s, p)
		if d != nil {
			if face.Hook == "none" {
				face.Hook, face.Mode = hookNames(held(d, p.Index), s)
			}
			if err := count(&face, d); err != nil {
				return nil, err
			}
			face.Tier = tiers(d, p.Index)
		}
		out = append(out, face)
	}
	return out, nil
}

// describe says what is decided for a device.
func describe(s *control.State, p *graph.Port) api.Interface {
	d := newDescription(s, p)
	d.failures()
	d.add(carried(s, p), api.Reason{})
	if p.Bridge != nil {
		d.member(p.Bridge)
	}
	for i := range p.Inputs {
		d.input(&p.Inputs[i])
	}
	if via := carrier(s, p); via != nil && len(d.attached) == 0 {
		d.metBy(via)
	}
	d.conclude()
	d.face.Egress = waysOut(s, p.Index)
	return d.face
}

// description is what is said of a device, in the making.
type description struct {
	state    *control.State
	port     *graph.Port
	attached []graph.Hook
	face     api.Interface

	ip4, ip6, frames verdict
}

func newDescription(s *control.State, p *graph.Port) *description {
	d := &description{state: s, port: p, attached: installed(s, p), face: api.Interface{
		Name: p.Name, Ifindex: p.Index, Kind: p.Kind, Reasons: []api.Reason{}, Graph: []string{}, Packets: noPackets(), Hooks: map[string]api.Packets{},
	}}
	if l := s.Network.Link(p.Index); l != nil {
		d.face.Up = l.Up
	}
	d.face.Hook, d.face.Mode = hookNames(d.attached, s)
	return d
}

// add gives reasons, each once; of says what they are about.
func (d *description) add(why []graph.Why, of api.Reason) {
	for _, w := range why {
		r := of
		r.Reason, r.Detail = w.Reason.String(), w.Detail+barred(d.state, d.port, w)
		if !slices.Contains(d.face.Reasons, r) {
			d.face.Reasons = append(d.face.Reasons, r)
		}
	}
}

func (d *description) failures() {
	for _, f := range d.state.Failures {
		if f.Index == d.port.Index {
			d.add([]graph.Why{{Reason: reason.AttachFailed, Detail: f.Err.Error()}}, api.Reason{Hook: string(f.Hook)})
		}
	}
}

// nodes adds those of a path that is in force.
func (d *description) nodes(nodes []graph.Node) {
	if len(d.attached) > 0 {
		d.face.Graph = merge(d.face.Graph, nodes)
	}
}

// member describes what becomes of frames between the ports of a bridge.
func (d *description) member(m *graph.Member) {
	fast := m.Fast() && len(d.attached) > 0
	d.frames.add(m.Path, fast)
	d.add(m.Why, api.Reason{})
	if m.Fast() {
		d.add(m.Call4.Why, api.Reason{Family: "ip4", Input: m.Name})
		d.add(m.Call4.Except, api.Reason{Family: "ip4", Input: m.Name, Part: true})
		d.add(m.Call6.Why, api.Reason{Family: "ip6", Input: m.Name})
		d.add(m.Call6.Except, api.Reason{Family: "ip6", Input: m.Name, Part: true})
	}
	d.face.Bridge = &api.Bridge{Name: m.Name, State: state(m.Path, fast)}
	d.nodes(slices.Concat(m.Nodes, m.Call4.Nodes, m.Call6.Nodes))
}

// input describes a logical interface whose packets arrive at the device.
func (d *description) input(in *graph.Input) {
	name := ""
	if in.Index != d.port.Index {
		name = in.Name
	}
	fast4, fast6 := in.IP4.Fast() && len(d.attached) > 0, in.IP6.Fast() && len(d.attached) > 0
	d.ip4.add(in.IP4, fast4)
	d.ip6.add(in.IP6, fast6)
	d.add(in.IP4.Why, api.Reason{Family: "ip4", Input: name})
	d.add(in.IP6.Why, api.Reason{Family: "ip6", Input: name})
	d.add(in.IP4.Except, api.Reason{Family: "ip4", Input: name, Part: true})
	d.add(in.IP6.Except, api.Reason{Family: "ip6", Input: name, Part: true})
	d.face.Inputs = append(d.face.Inputs, api.Input{Name: in.Name, Ifindex: in.Index, VLANs: tagIDs(in), IP4: state(in.IP4, fast4), IP6: state(in.IP6, fast6)})
	d.nodes(in.IP4.Nodes)
	d.nodes(in.IP6.Nodes)
}

// metBy counts what the program of the device below makes fast, for a VLAN device or slave whose packets that meets.
func (d *description) metBy(via *graph.Port) {
	for i := range via.Inputs {
		if in := &via.Inputs[i]; in.Index == d.port.Index {
			d.ip4.add(in.IP4, in.IP4.Fast())
			d.ip6.add(in.IP6, in.IP6.Fast())
		}
	}
}

// conclude sums up, and says what is against a hook where nothing else explains why the device is not fast, or not at the faster one.
func (d *description) conclude() {
	both := verdict{d.ip4.fast + d.ip6.fast + d.frames.fast, d.ip4.off + d.ip6.off, d.ip4.all + d.ip6.all + d.frames.all}
	d.face.IP4, d.face.IP6, d.face.State = d.ip4.String(), d.ip6.String(), both.String()
	if d.face.State != api.StateFast && len(d.face.Reasons) == 0 {
		d.add(d.port.XDP, api.Reason{Hook: "xdp"})
		d.add(d.port.TC, api.Reason{Hook: "tc"})
	}
	if len(d.attached) > 0 {
		d.add(d.port.NotAtXDP(), api.Reason{Hook: "xdp"})
	}
	d.face.Reasons = once(d.face.Reasons)
}

// held are the hooks of a device at which something of this daemon is attached, be it an empty slot, as while it is paused.
func held(d *datapath.Datapath, index int) (hooks []graph.Hook) {
	for _, h := range []graph.Hook{graph.XDP, graph.TC} {
		if d.Holds(index, h) {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// verdict counts paths: all, the fast ones, and those of a family that Linux does not forward.
type verdict struct{ fast, off, all int }

func (v *verdict) add(p graph.Path, fast bool) {
	v.all++
	switch state(p, fast) {
	case api.StateFast:
		v.fast++
	case api.StateOff:
		v.off++
	}
}

func (v verdict) String() string {
	switch {
	case v.all > 0 && v.off == v.all:
		return api.StateOff
	case v.fast == 0:
		return api.StateSlow
	case v.fast+v.off == v.all:
		return api.StateFast
	}
	return api.StatePartial
}

func state(p graph.Path, fast bool) string {
	notForwarded := func(w graph.Why) bool { return w.Reason == reason.ForwardingOff }
	switch {
	case fast:
		return api.StateFast
	case slices.ContainsFunc(p.Why, notForwarded):
		return api.StateOff
	}
	return api.StateSlow
}

// installed are the hooks of a port at which a program really runs.
func installed(s *control.State, p *graph.Port) (hooks []graph.Hook) {
	for _, h := range p.Hooks {
		if !slices.ContainsFunc(s.Failures, func(f datapath.Failure) bool { return f.Index == p.Index && f.Hook == h }) {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// carrier is the port whose XDP program meets a device's packets.
func carrier(s *control.State, p *graph.Port) *graph.Port {
	if p.Via == 0 {
		return nil
	}
	return port(s, p.Via)
}

func port(s *control.State, index int) *graph.Port {
	ports := s.Graph.Ports // in the order of their numbers
	i, found := slices.BinarySearchFunc(ports, index, func(p *graph.Port, index int) int { return p.Index - index })
	if !found {
		return nil
	}
	return ports[i]
}

func hookNames(hooks []graph.Hook, s *control.State) (hook, mode string) {
	if len(hooks) == 0 {
		return "none", ""
	}
	var names, modes []string
	for _, h := range hooks {
		names = append(names, string(h))
		switch {
		case h == graph.XDP:
			modes = append(modes, "native")
		case s.Features.TCX:
			modes = append(modes, "tcx")
		default:
			modes = append(modes, "clsact")
		}
	}
	return strings.Join(names, "+"), strings.Join(modes, "+")
}

// tiers are those of the programs that run at a device's hooks, each once.
func tiers(d *datapath.Datapath, index int) string {
	var names []string
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		if t := string(d.Tier(index, hook)); t != "" && !slices.Contains(names, t) {
			names = append(names, t)
		}
	}
	return strings.Join(names, "+")
}

func tagIDs(in *graph.Input) []int {
	ids := make([]int, 0, len(in.VLANs))
	for _, v := range in.VLANs {
		ids = append(ids, int(v.ID))
	}
	return ids
}

// merge adds node kinds in the order of the path.
func merge(have []string, nodes []graph.Node) []string {
	at := 0
	for _, n := range nodes {
		if i := slices.Index(have, n.Kind); i >= 0 {
			at = i + 1
			continue
		}
		have = slices.Insert(have, at, n.Kind)
		at++
	}
	return have
}

func noPackets() api.Packets {
	return api.Packets{Slow: map[string]uint64{}, Dropped: map[string]uint64{}}
}

// count fills in a device's packets. What XDP hands up meets the program at TC next where there is one, so then only the packets that are slow there are; those that were slow at TC
// while it had one are counted on.
func count(face *api.Interface, d *datapath.Datapath) error {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		c, ok, err := d.Counters(face.Ifindex, hook)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		p := noPackets()
		for code, n := range c {
			switch code := reason.Code(code); {
			case n.Packets == 0:
			case code.Describe().Class == reason.Forwarded:
				p.Fast += n.Packets
				p.Bytes += n.Bytes
			case code.Describe().Class == reason.Dropped:
				p.Dropped[code.String()] += n.Packets
			default:
				p.Slow[code.String()] += n.Packets
			}
		}
		face.Hooks[string(hook)] = p
		face.Packets.Fast += p.Fast
		face.Packets.Bytes += p.Bytes
		switch {
		case hook == graph.XDP:
			maps.Copy(face.Packets.Slow, p.Slow)
		case strings.Contains(face.Hook, string(graph.TC)) || !strings.Contains(face.Hook, string(graph.XDP)): // a stub with nothing in its slot may stay at TC
			face.Packets.Slow = p.Slow
		default:
			for name, n := range p.Slow {
				face.Packets.Slow[name] += n
			}
		}
		for name, n := range p.Dropped {
			face.Packets.Dropped[name] += n
		}
	}
	return nil
}
