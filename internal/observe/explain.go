// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/hex"
	"errors"
	"slices"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/packet"
	"github.com/shuntnet/shunt/internal/reason"
)

// Explain says what happens to one packet that an interface receives: at each hook in the order in which packets meet them, by running the
// loaded program, or where none is loaded, from the graph. It belongs into control.Engine.Do.
func Explain(s *control.State, d *datapath.Datapath, iface, description string) (*api.Explanation, error) {
	link := s.Network.LinkCalled(iface)
	if link == nil {
		return nil, UnknownInterface(s, iface)
	}
	asked := model.PrintableName(link.Name)
	link = receiver(s.Network, link)
	desc, err := packet.Parse(description)
	if err != nil {
		return nil, api.Errorf(api.KindUsage, "%v", err)
	}
	to, assumed := ends(s.Network, link, desc)
	frame, err := desc.Frame(to)
	if err != nil {
		return nil, api.Errorf(api.KindUsage, "%v", err)
	}
	x := &explainer{state: s, data: d, frame: frame,
		out: &api.Explanation{Interface: asked, Packet: packet.Describe(frame), Assumed: assumed, Frame: hex.EncodeToString(frame), Steps: []api.ExplanationStep{}}}
	if err := x.walk(link); err != nil {
		return nil, err
	}
	in := link // the device that Linux looks the route up for
	if br := s.Network.Link(link.Master); br != nil && link.Port != nil {
		if host := x.host(link, br); host != nil {
			in = host
		}
	}
	x.out.Route = x.found(in)
	switch br := s.Network.Link(link.Master); {
	case br == nil || link.Port == nil:
		x.out.Rules = x.rules(link, nil)
	case [6]byte(frame[:6]) == br.MAC && x.host(link, br) != nil:
		x.out.Rules = x.rules(x.host(link, br), link)
	default:
		x.out.Rules = x.frameRules(link, br)
	}
	return x.out, nil
}

// host is the device of this host that a frame for the bridge's own address enters by at one of its ports: the bridge, or where that filters by VLAN what up() finds, nil for none.
func (x *explainer) host(link, br *model.Link) *model.Link {
	if p := port(x.state, link.Index); p != nil && p.Bridge != nil && p.Bridge.VLANs {
		in := up(p, x.frame)
		if in == nil {
			return nil
		}
		return x.state.Network.Link(in.Index)
	}
	return br
}

// receiver is the device that a packet belongs to which a device receives: for members of bonds, but not for those that Linux does not listen to, the bond.
func receiver(net *model.Network, link *model.Link) *model.Link {
	if bond := net.Link(link.Master); bond != nil && bond.Bond != nil && slices.Contains(bond.Bond.Active, link.Index) {
		return bond
	}
	return link
}

// UnknownInterface is the error for an interface that does not exist, with the ones that do.
func UnknownInterface(s *control.State, iface string) error {
	var names []string
	for _, l := range s.Network.Links {
		names = append(names, model.PrintableName(l.Name))
	}
	return api.Errorf(api.KindUsage, "there is no interface %q in this network namespace; there are %s", iface, listed(names, 20))
}

type explainer struct {
	state *control.State
	data  *datapath.Datapath
	frame []byte
	left  []byte // as a program forwards it; nil if none does
	out   *api.Explanation
}

// walk follows the packet through the hooks until one forwards it.
func (x *explainer) walk(link *model.Link) error {
	for _, stop := range x.stops(link) {
		t, err := x.data.Explain(stop.port.Index, stop.hook, stop.frame)
		if errors.Is(err, datapath.ErrNotLoaded) {
			continue
		}
		if errors.Is(err, datapath.ErrFrameSize) {
			return api.Errorf(api.KindUnsupported, "%v", err)
		}
		if err != nil {
			return err
		}
		if done := x.answered(stop, t); done {
			return nil
		}
	}
	if len(x.out.Steps) == 0 {
		x.fromGraph(link)
	}
	return nil
}

// stop is a hook that the packet meets, with the frame as it is there.
type stop struct {
	port  *graph.Port
	hook  graph.Hook
	frame []byte
}

// across says whether a frame at a bridge's port is one for its other ports, and not for the bridge itself.
func (st *stop) across(in *graph.Input) bool {
	return st.port.Bridge != nil && (in == nil || [6]byte(st.frame[:6]) != [6]byte(in.MAC))
}

// stops are the hooks of the device below, for a VLAN device that it carries, and those of the device itself.
func (x *explainer) stops(link *model.Link) (out []stop) {
	p := port(x.state, link.Index)
	if p == nil {
		return nil
	}
	if via := carrier(x.state, p); via != nil {
		for i := range via.Inputs {
			if in := &via.Inputs[i]; in.Index == link.Index && slices.Contains(via.Hooks, graph.XDP) {
				out = append(out, stop{via, graph.XDP, tagged(x.frame, in.VLANs)})
			}
		}
	}
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		if slices.Contains(p.Hooks, hook) {
			out = append(out, stop{p, hook, x.frame})
		}
	}
	return out
}

// tagged puts the tags of a VLAN device in front, as they are on the wire.
func tagged(frame []byte, vlans []model.VLAN) []byte {
	out := slices.Clone(frame[:12])
	for _, v := range vlans {
		out = append(out, byte(v.Proto>>8), byte(v.Proto), byte(v.ID>>8), byte(v.ID))
	}
	return append(out, frame[12:]...)
}

// answered notes what a program said, and whether the packet's way ends there.
func (x *explainer) answered(st stop, t datapath.Trace) bool {
	input := x.input(st)
	step := api.ExplanationStep{Hook: string(st.hook), Loaded: true, Reason: t.Reason.String(), Doc: t.Reason.Describe().Doc,
		Duration: t.Duration.Nanoseconds(), Because: x.because(st, input, t), Passed: []string{}}
	path := x.path(input)
	across := st.across(input)
	if across {
		path = st.port.Bridge.Path
	}
	step.Node = nodeOf(t.Reason, familyOf(st.frame))
	for _, n := range path.Nodes {
		if before(n.Kind, step.Node) || t.Reason == reason.Fast {
			step.Passed = append(step.Passed, n.Kind)
		}
	}
	x.out.Reason = step.Reason
	if t.Reason == reason.Fast {
		step.Egress = name(x.state, t.Egress)
		x.out.Fast, x.out.Egress, x.left = true, step.Egress, t.Frame
		x.out.Output = hex.EncodeToString(t.Frame)
		x.out.Changes = packet.Changes(st.frame, t.Frame)
		if st.hook == graph.TC && !across {
			x.out.Changes = append(x.out.Changes, "addresses are written by Linux's neighbour layer")
		}
	}
	x.out.Steps = append(x.out.Steps, step)
	return t.Reason == reason.Fast
}

// fromGraph answers where no program runs.
func (x *explainer) fromGraph(link *model.Link) {
	step := api.ExplanationStep{Hook: "none", Node: "none", Passed: []string{}, Because: []api.Reason{}}
	code := reason.NothingToWin
	if p := port(x.state, link.Index); p != nil {
		face := describe(x.state, p)
		family := familyOf(x.frame)
		for _, r := range face.Reasons {
			if concerns(r, face.Reasons, family) {
				step.Because = append(step.Because, r)
			}
		}
		if len(step.Because) > 0 {
			code, _ = reason.Parse(step.Because[0].Reason)
		}
	}
	step.Reason, step.Doc = code.String(), code.Describe().Doc
	x.out.Reason = step.Reason
	x.out.Steps = append(x.out.Steps, step)
}

// input is the logical interface that the frame belongs to at a stop; nil when there is none.
func (x *explainer) input(st stop) *graph.Input {
	if m := st.port.Bridge; m != nil && m.VLANs {
		return up(st.port, st.frame)
	}
	ids := packet.Tags(st.frame)
	for i := range st.port.Inputs {
		in := &st.port.Inputs[i]
		if len(in.VLANs) == len(ids) && slices.EqualFunc(in.VLANs, ids, func(v model.VLAN, t packet.Tag) bool { return v.ID == t.ID && v.Proto == t.Proto }) {
			return in
		}
	}
	return nil
}

func (x *explainer) path(in *graph.Input) graph.Path {
	switch {
	case in == nil:
		return graph.Path{}
	case familyOf(x.frame) == "ip6":
		return in.IP6
	}
	return in.IP4
}

// because finds what in the graph is behind a program's reason.
func (x *explainer) because(st stop, in *graph.Input, t datapath.Trace) []api.Reason {
	out := []api.Reason{}
	switch {
	case t.Reason == reason.EgressSlow:
		for _, e := range x.state.Graph.Egress {
			why := e.TC
			if st.hook == graph.XDP {
				why = e.XDP
			}
			if st.across(in) {
				if e.Bridge == nil || e.Bridge.Index != st.port.Bridge.Index || e.Index == st.port.Index {
					continue
				}
				if why = e.Bridge.TC; st.hook == graph.XDP {
					why = e.Bridge.XDP
				}
			}
			out = append(out, stated(why, api.Reason{Hook: string(st.hook), Input: e.Name})...)
		}
	case t.Reason.Describe().Class == reason.Config && st.across(in):
		m := st.port.Bridge
		out = append(out, stated(m.Why, api.Reason{Input: m.Name})...)
		switch family := familyOf(x.frame); family { // single rules (Except) are what the walk through them tells
		case "ip4":
			out = append(out, stated(m.Call4.Why, api.Reason{Family: family, Input: m.Name})...)
		case "ip6":
			out = append(out, stated(m.Call6.Why, api.Reason{Family: family, Input: m.Name})...)
		}
	case t.Reason.Describe().Class == reason.Config && in != nil:
		out = append(out, stated(x.path(in).Why, api.Reason{Family: familyOf(x.frame), Input: in.Name})...)
	}
	return out
}

// familyOf is the family of what the frame carries, "" for neither.
func familyOf(frame []byte) string {
	switch packet.EtherType(frame) {
	case 0x0800:
		return "ip4"
	case 0x86dd:
		return "ip6"
	}
	return ""
}
