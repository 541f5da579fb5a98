// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/synth"
)

// TestEveryReasonHasANode fails when the data path gets a reason that explain could not place.
func TestEveryReasonHasANode(t *testing.T) {
	seen := map[reason.Code]string{}
	for node, codes := range nodes {
		for _, c := range codes {
			if other, twice := seen[c]; twice {
				t.Errorf("%s is of node %s and of %s", c, other, node)
			}
			seen[c] = node
		}
		if before(node, order[0]) {
			t.Errorf("node %s has no place in the order", node)
		}
	}
	for c := range reason.Count {
		class := reason.Code(c).Describe().Class
		_, placed := seen[c]
		if decided := class == reason.Packet || class == reason.Dropped || class == reason.Lookup || class == reason.Forwarded; decided && !placed {
			t.Errorf("%s (%s) belongs to no node", c, class)
		} else if class == reason.Config && placed {
			t.Errorf("%s is of the configuration and of node %s", c, seen[c])
		}
	}
}

// Reasons that both families have are of the node of the packet's own.
func TestNodeOf(t *testing.T) {
	for _, c := range []struct {
		code         reason.Code
		family, want string
	}{
		{reason.TTL, "ip4", graph.NodeIP4}, {reason.TTL, "ip6", graph.NodeIP6}, {reason.Protocol, "ip6", graph.NodeIP6}, {reason.IP6Header, "ip6", graph.NodeIP6},
		{reason.MTU, "ip6", graph.NodeFIB}, {reason.EtherType, "", graph.NodeVLAN}, {reason.ForwardingOff, "ip6", nodeInput},
	} {
		if got := nodeOf(c.code, c.family); got != c.want {
			t.Errorf("%s of %q belongs to node %s, want %s", c.code, c.family, got, c.want)
		}
	}
}

// router is a router of two ports; change may alter it before it is handed on.
func router(change func(*control.State)) *control.State {
	path := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeGuard}, {Kind: graph.NodeIP4}, {Kind: graph.NodeFIB}, {Kind: graph.NodeRedirect}}}
	off := graph.Path{Why: []graph.Why{{Reason: reason.ForwardingOff, Detail: "net.ipv6.conf.all.forwarding = 0"}}}
	s := &control.State{Network: &model.Network{}, Graph: &graph.Graph{}, Plan: &synth.Plan{}, Features: datapath.Features{TCX: true}, Took: 1500 * time.Microsecond}
	for i, name := range []string{"in", "out"} {
		s.Network.Links = append(s.Network.Links, &model.Link{Index: i + 2, Name: name, Up: true})
		s.Graph.Ports = append(s.Graph.Ports, &graph.Port{Index: i + 2, Name: name, Kind: "veth", Hooks: []graph.Hook{graph.TC},
			Inputs: []graph.Input{{Index: i + 2, Name: name, IP4: path, IP6: off}}})
	}
	s.Plan.Tables.TxTC = map[uint32]uint32{2: 2, 3: 3}
	if change != nil {
		change(s)
	}
	return s
}

func TestStates(t *testing.T) {
	slow := func(s *control.State) {
		p := s.Graph.Ports[0]
		p.Hooks, p.Why = nil, []graph.Why{{Reason: reason.PacketSocket, Detail: "tcpdump[7]"}}
		p.Inputs[0].IP4 = graph.Path{Why: p.Why}
	}
	rule := func(s *control.State) {
		s.Graph.Ports[0].Inputs[0].IP6 = graph.Path{Why: []graph.Why{{Reason: reason.NetfilterIP6Forward, Detail: "table t"}}}
	}
	failed := func(s *control.State) {
		s.Failures = []datapath.Failure{{Index: 2, Hook: graph.TC, Err: errors.New("refused")}}
	}
	xdp := func(s *control.State) { s.Graph.Ports[0].Hooks = []graph.Hook{graph.XDP, graph.TC} }
	for name, c := range map[string]struct {
		change func(*control.State)
		want   api.Interface
	}{
		"one family off is fast": {nil, api.Interface{State: "fast", IP4: "fast", IP6: "off", Hook: "tc", Mode: "tcx"}},
		"listener":               {slow, api.Interface{State: "slow", IP4: "slow", IP6: "off", Hook: "none"}},
		"rule for one family":    {rule, api.Interface{State: "partial", IP4: "fast", IP6: "slow", Hook: "tc", Mode: "tcx"}},
		"attaching failed":       {failed, api.Interface{State: "slow", IP4: "slow", IP6: "off", Hook: "none"}},
		"both hooks":             {xdp, api.Interface{State: "fast", IP4: "fast", IP6: "off", Hook: "xdp+tc", Mode: "native+tcx"}},
	} {
		all, err := Interfaces(router(c.change), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := api.Interface{State: all[0].State, IP4: all[0].IP4, IP6: all[0].IP6, Hook: all[0].Hook, Mode: all[0].Mode}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if got.State != api.StateFast && len(all[0].Reasons) == 0 {
			t.Errorf("%s: no reason given", name)
		}
	}
}

// Each reason is said once, of the device where it is about both families, and an answer for one family's packet has none of the other's.
func TestReasonsOnce(t *testing.T) {
	paused, off4, off6, rule := api.Reason{Reason: "paused"}, api.Reason{Reason: "forwarding-off", Detail: "4"}, api.Reason{Reason: "forwarding-off", Detail: "6"}, api.Reason{Reason: "rpfilter"}
	in := func(family string, r api.Reason) api.Reason { return ofFamily(r, family) }
	for name, c := range map[string]struct{ all, want, for4, for6 []api.Reason }{
		"both": {[]api.Reason{paused, in("ip4", paused), in("ip6", paused)}, []api.Reason{paused}, []api.Reason{paused}, []api.Reason{paused}},
		"both off": {[]api.Reason{off4, off6, in("ip4", off4), in("ip6", off6)}, []api.Reason{in("ip4", off4), in("ip6", off6)},
			[]api.Reason{in("ip4", off4)}, []api.Reason{in("ip6", off6)}},
		"one each": {[]api.Reason{paused, rule, in("ip4", paused), in("ip6", paused), in("ip6", rule)}, []api.Reason{paused, in("ip6", rule)},
			[]api.Reason{paused}, []api.Reason{paused, in("ip6", rule)}},
		"the other off": {[]api.Reason{rule, off6, in("ip4", rule), in("ip6", off6)}, []api.Reason{rule, in("ip4", rule), in("ip6", off6)},
			[]api.Reason{rule, in("ip4", rule)}, []api.Reason{in("ip6", off6)}},
		"attached": {[]api.Reason{in("ip4", rule), in("ip6", rule)}, []api.Reason{in("ip4", rule), in("ip6", rule)}, []api.Reason{in("ip4", rule)}, []api.Reason{in("ip6", rule)}},
	} {
		got := once(c.all)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for family, want := range map[string][]api.Reason{"ip4": c.for4, "ip6": c.for6, "": c.want} {
			of := slices.DeleteFunc(slices.Clone(got), func(r api.Reason) bool { return !concerns(r, got, family) })
			if !slices.Equal(of, want) {
				t.Errorf("%s: a packet of family %q goes to Linux because of %v, want %v", name, family, of, want)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	nodes := func(kinds ...string) (out []graph.Node) {
		for _, k := range kinds {
			out = append(out, graph.Node{Kind: k})
		}
		return out
	}
	got := merge(merge([]string{}, nodes("guard", "ip4", "local-source", "fib", "egress")), nodes("guard", "ip6", "fib", "special-route", "egress"))
	if want := "guard ip6 ip4 local-source fib special-route egress"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestRecorderTellsWhatChanged(t *testing.T) {
	r := NewRecorder("blue")
	watched, cancel := r.Watch()
	defer cancel()
	first := router(nil)
	same := router(nil)
	same.Generation = 1
	slow := router(func(s *control.State) {
		s.Generation = 2
		p := s.Graph.Ports[1]
		p.Hooks, p.Why = nil, []graph.Why{{Reason: reason.Qdisc, Detail: "tbf"}}
		p.Inputs[0].IP4 = graph.Path{Why: p.Why}
		s.Plan.Tables.TxTC = map[uint32]uint32{2: 2}
	})
	gone := router(func(s *control.State) {
		s.Generation, s.Graph.Ports, s.Network.Links = 3, s.Graph.Ports[:1], s.Network.Links[:1]
		s.Plan.Tables.TxTC = map[uint32]uint32{2: 9}
	})
	for _, s := range []*control.State{first, same, slow, gone} {
		r.Round(s, nil)
	}
	r.Round(nil, errors.New("netlink is gone"))
	r.Close()

	var got [][]string
	for _, e := range r.Events() {
		if e.Netns != "blue" {
			t.Errorf("an event of namespace %q", e.Netns)
		}
		got = append(got, append(e.Changes, e.Error))
	}
	want := [][]string{
		{"in: attached at tc, fast (ip6 forwarding-off)", "out: attached at tc, fast (ip6 forwarding-off)", "egress by TC: +2", ""},
		{"out: programs at tc → none", "out: fast → slow (qdisc, ip4 qdisc, ip6 forwarding-off)", "egress by TC: -1", ""},
		{"interface out is gone", "egress by TC: ~1", ""},
		{"netlink is gone"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	n := 0
	for range watched {
		n++
	}
	if n != len(want) {
		t.Errorf("%d events were watched, want %d", n, len(want))
	}
	sync := r.Sync(gone)
	if sync.Rounds != 5 || sync.Failures != 1 || sync.LastChangeMS != 1.5 {
		t.Errorf("%+v", sync)
	}
}

func TestRecorderKeepsTheLast(t *testing.T) {
	r := NewRecorder("")
	for i := range 3 * keep {
		r.add(round{}, &api.Event{Generation: uint64(i)})
	}
	r.Close()
	if got := r.Events(); len(got) != keep || got[0].Generation != 2*keep || got[keep-1].Generation != 3*keep-1 {
		t.Errorf("%d events, from %d", len(got), got[0].Generation)
	}
}
