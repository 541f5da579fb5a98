// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"slices"
	"sort"
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
	face := api.Interface{
		Name: p.Name, Ifindex: p.Index, Kind: p.Kind, Hook: "none", Reasons: []api.Reason{}, Graph: []string{},
		Packets: noPackets(), Hooks: map[string]api.Packets{},
	}
	if l := s.Network.Link(p.Index); l != nil {
		face.Up = l.Up
	}
	attached := installed(s, p)
	face.Hook, face.Mode = hookNames(attached, s)
	part := false
	add := func(why []graph.Why, family, hook, input string) {
		for _, w := range why {
			r := api.Reason{Reason: w.Reason.String(), Detail: w.Detail + barred(s, p, w), Family: family, Hook: hook, Input: input, Part: part}
			if !slices.Contains(face.Reasons, r) {
				face.Reasons = append(face.Reasons, r)
			}
		}
	}
	some := func(why []graph.Why, family, input string) {
		part = true
		add(why, family, "", input)
		part = false
	}
	for _, f := range s.Failures {
		if f.Index == p.Index {
			add([]graph.Why{{Reason: reason.AttachFailed, Detail: f.Err.Error()}}, "", string(f.Hook), "")
		}
	}
	add(carried(s, p), "", "", "")
	ip4, ip6, frames := verdict{}, verdict{}, verdict{}
	if m := p.Bridge; m != nil {
		fast := m.Fast() && len(attached) > 0
		frames.add(m.Path, fast)
		add(m.Why, "", "", "")
		if m.Fast() {
			add(m.Call4.Why, "ip4", "", m.Name)
			some(m.Call4.Except, "ip4", m.Name)
			add(m.Call6.Why, "ip6", "", m.Name)
			some(m.Call6.Except, "ip6", m.Name)
		}
		face.Bridge = &api.Bridge{Name: m.Name, State: state(m.Path, fast)}
		if len(attached) > 0 {
			face.Graph = merge(face.Graph, slices.Concat(m.Nodes, m.Call4.Nodes, m.Call6.Nodes))
		}
	}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		name := ""
		if in.Index != p.Index {
			name = in.Name
		}
		fast4, fast6 := in.IP4.Fast() && len(attached) > 0, in.IP6.Fast() && len(attached) > 0
		ip4.add(in.IP4, fast4)
		ip6.add(in.IP6, fast6)
		add(in.IP4.Why, "ip4", "", name)
		add(in.IP6.Why, "ip6", "", name)
		some(in.IP4.Except, "ip4", name)
		some(in.IP6.Except, "ip6", name)
		face.Inputs = append(face.Inputs, api.Input{Name: in.Name, Ifindex: in.Index, VLANs: tagIDs(in), IP4: state(in.IP4, fast4), IP6: state(in.IP6, fast6)})
		if len(attached) > 0 {
			face.Graph = merge(face.Graph, in.IP4.Nodes)
			face.Graph = merge(face.Graph, in.IP6.Nodes)
		}
	}
	if via := carrier(s, p); via != nil && len(attached) == 0 {
		// A VLAN device or slave whose packets the lower device's program meets.
		for i := range via.Inputs {
			if in := &via.Inputs[i]; in.Index == p.Index {
				ip4.add(in.IP4, in.IP4.Fast())
				ip6.add(in.IP6, in.IP6.Fast())
			}
		}
	}
	both := verdict{ip4.fast + ip6.fast + frames.fast, ip4.off + ip6.off, ip4.all + ip6.all + frames.all}
	face.IP4, face.IP6, face.State = ip4.String(), ip6.String(), both.String()
	if face.State != api.StateFast && len(face.Reasons) == 0 {
		add(p.XDP, "", "xdp", "")
		add(p.TC, "", "tc", "")
	}
	if len(attached) > 0 {
		add(p.NotAtXDP(), "", "xdp", "")
	}
	face.Reasons = once(face.Reasons)
	face.Egress = waysOut(s, p.Index)
	return face
}

// waysOut are the reasons against leaving by a device, by hook. It is never nil.
func waysOut(s *control.State, index int) []api.Reason {
	out := []api.Reason{}
	all := s.Graph.Egress // in the order of their numbers
	at, found := slices.BinarySearchFunc(all, index, func(e *graph.Egress, index int) int { return e.Index - index })
	if !found {
		return out
	}
	for _, w := range all[at].XDP {
		out = append(out, api.Reason{Reason: w.Reason.String(), Detail: w.Detail, Hook: string(graph.XDP)})
	}
	for _, w := range all[at].TC {
		out = append(out, api.Reason{Reason: w.Reason.String(), Detail: w.Detail, Hook: string(graph.TC)})
	}
	return out
}

// barred goes on where a port has nothing to win, for want of a way out: which others there are, and what is against each of them.
func barred(s *control.State, p *graph.Port, w graph.Why) string {
	const most = 5
	if w.Reason != reason.NothingToWin || !strings.HasPrefix(w.Detail, graph.NoWayOut) {
		return ""
	}
	var all []string
	for _, e := range s.Graph.Egress {
		why := e.TC
		if strings.HasSuffix(w.Detail, "XDP") {
			why = e.XDP
		}
		if e.Index != p.Index && len(why) > 0 {
			all = append(all, e.Name+" ("+strings.TrimSpace(why[0].Reason.String()+" "+why[0].Detail)+")")
		}
	}
	if len(all) == 0 {
		return ", and there is none"
	}
	return ": " + listed(all, most)
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

// once takes out what is said twice: a device on which no program runs has the reasons of its families, too. What holds for both families is said of the device,
// what holds for one of them of that. Where Linux does not forward the other, there is no telling, and both stay.
func once(all []api.Reason) []api.Reason {
	return slices.DeleteFunc(slices.Clone(all), func(r api.Reason) bool {
		in4, in6 := slices.Contains(all, ofFamily(r, "ip4")), slices.Contains(all, ofFamily(r, "ip6"))
		switch {
		case r.Hook != "" || r.Input != "":
			return false
		case in4 && in6:
			return r.Family != "" && slices.Contains(all, ofFamily(r, ""))
		case r.Family != "" || !in4 && !in6:
			return false
		}
		other := map[bool]string{true: "ip6", false: "ip4"}[in4]
		forwarding := reason.ForwardingOff.String()
		off := func(o api.Reason) bool { return o.Reason == forwarding && o.Family == other && o.Input == "" }
		return r.Reason == forwarding || !slices.ContainsFunc(all, off)
	})
}

func ofFamily(r api.Reason, family string) api.Reason {
	r.Family = family
	return r
}

// concerns says whether one of a device's reasons is behind what becomes of packets of a family ("" for any): one that the other family has, too, but not this one, is that one's.
func concerns(r api.Reason, all []api.Reason, family string) bool {
	if family == "" || r.Family != "" {
		return family == "" || r.Family == family
	}
	other := map[string]string{"ip4": "ip6", "ip6": "ip4"}[family]
	return slices.Contains(all, ofFamily(r, family)) || !slices.Contains(all, ofFamily(r, other))
}

// carried gives why nothing is attached to a device. A bridge is fast all the same by its ports, which is said with the reason.
func carried(s *control.State, p *graph.Port) []graph.Why {
	ports := s.Graph.Carriers(p.Index)
	if len(ports) == 0 {
		return p.Why
	}
	why := slices.Clone(p.Why)
	for i := range why {
		if why[i].Reason == reason.LinkKind {
			why[i].Detail += "; its ports carry its packets: " + graph.Some(ports)
		}
	}
	return why
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
	i := sort.Search(len(ports), func(i int) bool { return ports[i].Index >= index })
	if i == len(ports) || ports[i].Index != index {
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
