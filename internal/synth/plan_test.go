// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// router is a port that is fast for both families, with a VLAN interface on it, and a way out.
func router() (*model.Network, *graph.Graph) {
	fast := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeGuard}, {Kind: graph.NodeFIB}}}
	net := &model.Network{
		Links: []*model.Link{{Index: 2, Name: "eth0"}, {Index: 3, Name: "eth1"}},
		Addrs: []model.Addr{{Prefix: netip.MustParsePrefix("10.0.0.1/24"), Index: 2}},
	}
	g := &graph.Graph{
		Ports: []*graph.Port{{Index: 2, Name: "eth0", Hooks: []graph.Hook{graph.XDP}, Inputs: []graph.Input{
			{Index: 2, Name: "eth0", MAC: [6]byte{2, 0, 0, 0, 0, 1}, IP4: fast, IP6: fast},
		}}},
		Egress: []*graph.Egress{{Index: 3, Name: "eth1", Port: 3, Frags: true}},
	}
	return net, g
}

func only(t *testing.T, p *Plan) Program {
	t.Helper()
	if len(p.Ports) != 1 || len(p.Ports[0].Programs) != 1 {
		t.Fatalf("planned %+v, want one program", p.Ports)
	}
	return p.Ports[0].Programs[0]
}

func TestEqualInputsGiveEqualPlans(t *testing.T) {
	net, g := router()
	if a, b := Build(net, g), Build(net, g); !reflect.DeepEqual(a, b) {
		t.Errorf("two plans of one graph differ:\n%+v\n%+v", a, b)
	}
}

func TestSlowFamilyCarriesItsReason(t *testing.T) {
	net, g := router()
	g.Ports[0].Inputs[0].IP4 = graph.Path{Why: []graph.Why{{Reason: reason.NetfilterIP4Forward}}}
	c := only(t, Build(net, g)).Config
	if c.In.Ip4 != uint8(reason.NetfilterIP4Forward) || c.In.Ip6 != 0 {
		t.Errorf("frozen reasons are %d and %d, want %d and 0", c.In.Ip4, c.In.Ip6, reason.NetfilterIP4Forward)
	}
	g.Ports[0].Inputs[0].IP4 = graph.Path{} // neither fast nor explained
	if c := only(t, Build(net, g)).Config; c.In.Ip4 == 0 {
		t.Error("a path without nodes and reasons is fast")
	}
}

// A route lookup depends on more than its key once there are policy rules; then it must not be remembered.
func TestPolicyRulesEndRemembering(t *testing.T) {
	net, g := router()
	net.Rules = []model.Rule{{Family: model.IP4, Default: true}, {Family: model.IP6, Default: true}}
	if c := only(t, Build(net, g)).Config; c.Cache4 == 0 || c.Cache6 == 0 {
		t.Errorf("with the kernel's rules alone nothing is remembered: %d, %d", c.Cache4, c.Cache6)
	}
	net.Rules = append(net.Rules, model.Rule{Family: model.IP4, Priority: 100})
	if c := only(t, Build(net, g)).Config; c.Cache4 != 0 || c.Cache6 == 0 {
		t.Errorf("with an IPv4 rule, IPv4 %d and IPv6 %d are remembered", c.Cache4, c.Cache6)
	}
}

func TestEgressTables(t *testing.T) {
	net, g := router()
	g.Egress = append(g.Egress,
		&graph.Egress{Index: 4, Port: 3, VLANs: []model.VLAN{{Proto: 0x88a8, ID: 7}, {Proto: 0x8100, ID: 9}}},
		&graph.Egress{Index: 5, Port: 5, Short6: true, XDP: []graph.Why{{Reason: reason.Qdisc}}},
		&graph.Egress{Index: 6, Port: 6, XDP: []graph.Why{{Reason: reason.Qdisc}}, TC: []graph.Why{{Reason: reason.Excluded}}},
	)
	p := Build(net, g)
	if want := map[uint32]uint32{3: 3, 4: 3}; !reflect.DeepEqual(p.Tables.TxXDP, want) {
		t.Errorf("enterable from XDP: %v, want %v", p.Tables.TxXDP, want)
	}
	if want := map[uint32]uint32{3: 3, 4: 4, 5: 5 | bpfobj.Short6}; !reflect.DeepEqual(p.Tables.TxTC, want) {
		t.Errorf("enterable from TC: %v, want %v", p.Tables.TxTC, want)
	}
	tag := p.Tables.Tags[4]
	if tag.N != 2 || tag.OuterProto != be16(0x88a8) || tag.OuterId != 7 || tag.InnerProto != be16(0x8100) || tag.InnerId != 9 || tag.NoFrags != 1 {
		t.Errorf("tags of the QinQ interface: %+v", tag)
	}
	if c := only(t, p).Config; c.VlanOut != 1 || c.Frags != 1 {
		t.Errorf("the program pushes tags %d and checks buffers %d, want both", c.VlanOut, c.Frags)
	}
}

func TestReversePathModes(t *testing.T) {
	net, g := router()
	for mode, want := range map[string]uint8{"strict": bpfobj.RPFStrict, "loose": bpfobj.RPFLoose, "source": bpfobj.RPFSource, "new": bpfobj.RPFStrict} {
		g.Ports[0].Inputs[0].IP4.Nodes = []graph.Node{{Kind: graph.NodeRPFilter, Params: map[string]string{"mode": mode, "iif": "ingress"}}}
		if in := only(t, Build(net, g)).Config.In; in.Rpf4 != want || in.RpfIn != 1 {
			t.Errorf("mode %s is frozen as %d entering by the ingress %d, want %d, 1", mode, in.Rpf4, in.RpfIn, want)
		}
	}
}

// A program's guard watches what its fast families rest on and has room for all of it.
func TestGuardWords(t *testing.T) {
	net, g := router()
	both := only(t, Build(net, g)).Words
	guardHasRoom(t, both)
	g.Ports[0].Inputs[0].IP6 = graph.Path{Why: []graph.Why{{Reason: reason.ForwardingOff}}}
	four := only(t, Build(net, g)).Words
	if len(four) >= len(both) {
		t.Errorf("IPv4 alone is watched by %d words, both families by %d", len(four), len(both))
	}
	for _, w := range four {
		if w.Word == bpfobj.WordIP6Forward || w.Word == bpfobj.WordDevDisable6 {
			t.Errorf("IPv4 alone watches %v", w)
		}
	}
}

// Where br_netfilter shows the rules what is bridged, frames rest on there being none, by family; where they are left to Linux they rest on nothing.
func TestBridgedPacketsThatAreShown(t *testing.T) {
	net, g := router()
	sysctl, slow := graph.Call{By: "sysctl", All: true}, graph.Call{By: "option", Why: []graph.Why{{Reason: reason.BridgeNetfilter}}}
	g.Ports[0].Inputs = nil
	g.Ports[0].Bridge = &graph.Member{Index: 9, Name: "br0", Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}, Call4: sysctl, Call6: slow}
	prog := Build(net, g).Ports[0].Programs[0]
	if prog.Config.Called4 != bpfobj.CalledAll || prog.Config.Called6 != bpfobj.CalledSlow {
		t.Errorf("IPv4 is called %d, IPv6 %d", prog.Config.Called4, prog.Config.Called6)
	}
	families := map[uint8]int{}
	for _, w := range prog.Words {
		families[w.Family()]++
	}
	if families[4] != len(called4) || families[6] != 0 {
		t.Errorf("words: %v", prog.Words)
	}
	g.Ports[0].Bridge.Call4, g.Ports[0].Bridge.Call6 = graph.Call{}, graph.Call{By: "option"}
	if c := Build(net, g).Ports[0].Programs[0].Config; c.Called4 != 0 || c.Called6 != bpfobj.CalledOption {
		t.Errorf("IPv4 is called %d, IPv6 %d", c.Called4, c.Called6)
	}
}

// Rules and connections of bridged packets are asked at both hooks, with the bridge as their device. They rest on the words that routed ones do.
func TestBridgedPacketsThatRulesAreAskedFor(t *testing.T) {
	net, g := router()
	g.Ports[0].Inputs, g.Ports[0].Hooks = nil, []graph.Hook{graph.XDP, graph.TC}
	g.Ports[0].Bridge = &graph.Member{Index: 9, Name: "br0", Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}},
		Call4: graph.Call{By: "sysctl", All: true, Asks: true, Nodes: []graph.Node{{Kind: graph.NodeTrack}}}, Call6: graph.Call{By: "option"}}
	if (&shared{onto: others{some: true, one: 8}}).leadsOnto(g.Ports[0]) {
		t.Error("and the ports of other bridges are entered at once")
	}
	programs := Build(net, g).Ports[0].Programs
	for _, p := range programs {
		c := p.Config
		if c.Called4 != bpfobj.CalledAll || c.Shown4 != 1 || c.Track4 != 1 || c.Called6 != bpfobj.CalledOption || c.Shown6 != 0 || c.Track6 != 0 || c.In.Ifindex != 9 {
			t.Errorf("at %s: %+v", p.Hook, c)
		}
		for _, want := range called4 {
			if !slices.Contains(p.Words, Word{Word: want}) {
				t.Errorf("at %s the guard does not watch %v", p.Hook, want)
			}
		}
	}
}

// The port with the most to rest on: one of a bridge whose frames and routed packets are shown to rules of both families, and whose packets may be routed onto another bridge.
func TestGuardWordsOfTheLargestPort(t *testing.T) {
	_, g := router()
	fast := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeFIB}}}
	call := graph.Call{By: "sysctl", All: true, Nodes: []graph.Node{{Kind: graph.NodeTrack}}}
	port := g.Ports[0]
	port.Hooks = []graph.Hook{graph.TC}
	port.Bridge = &graph.Member{Index: 9, Name: "br0", VLANs: true, Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}, Call4: call, Call6: call}
	port.Inputs = []graph.Input{{Index: 9, Name: "br0", IP4: fast, IP6: fast},
		{Index: 15, Name: "br0.5", VLANs: []model.VLAN{{Proto: 0x8100, ID: 5}}, IP4: fast, IP6: fast}}
	s := shared{onto: others{more: true}, ontoVLANs: true}
	p := s.port(&model.Link{Index: port.Index, Kind: "veth"}, port, true)
	if c := p.Programs[0].Config; c.Bridge != bpfobj.BridgeHost || c.Onto == 0 || c.Called4 != bpfobj.CalledAll || c.Called6 != bpfobj.CalledAll {
		t.Fatalf("the program is %+v", c)
	}
	guardHasRoom(t, p.Programs[0].Words)
}

func guardHasRoom(t *testing.T, words []Word) {
	t.Helper()
	count := map[uint8]int{}
	for _, w := range words {
		count[w.Family()]++
	}
	var c bpfobj.Config
	for family, room := range map[uint8]int{0: len(c.Guard), 4: len(c.Guard4), 6: len(c.Guard6)} {
		if n := count[family]; n == 0 || n > room {
			t.Errorf("%d guard words of family %d, the program has room for %d", n, family, room)
		}
	}
}

func TestTrack(t *testing.T) {
	for want, nodes := range map[uint8][]graph.Node{
		0:                 {{Kind: graph.NodeFIB}},
		bpfobj.TrackAll:   {{Kind: graph.NodeTrack, Params: map[string]string{"nat": "left to Linux"}}},
		bpfobj.TrackNoTCP: {{Kind: graph.NodeFIB}, {Kind: graph.NodeTrack, Params: map[string]string{"tcp": "left to Linux"}}},
	} {
		if got := track(nodes); got != want {
			t.Errorf("%v: %d", nodes, got)
		}
	}
}

// What frames of a bridge may leave by is not what routes may lead to.
func TestBridgePort(t *testing.T) {
	net, g := router()
	g.Ports[0].Inputs = nil
	g.Ports[0].Bridge = &graph.Member{Index: 9, Name: "br0", Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}}
	why := []graph.Why{{Reason: reason.LinkUpper}}
	g.Egress[0] = &graph.Egress{Index: 3, Name: "eth1", Port: 3, XDP: why, TC: why, Bridge: &graph.Way{Index: 9, TC: why}}
	p := Build(net, g)
	prog := only(t, p)
	if prog.Config.Bridge != 1 || prog.Config.In.Ip4 == 0 || prog.Config.In.Ip6 == 0 || !p.Bridges() {
		t.Errorf("the program of a port is %+v", prog.Config)
	}
	want := []Word{{bpfobj.WordNFTBaseSeq, 0}, {bpfobj.WordPacketSockets, 0}, {bpfobj.WordBridgePrerouting, 0}, {bpfobj.WordBridgeForward, 0},
		{bpfobj.WordBridgePostrouting, 0}, {bpfobj.WordDevSockets, 2}}
	if !reflect.DeepEqual(prog.Words, want) {
		t.Errorf("it watches %v, want %v", prog.Words, want)
	}
	if want := map[uint32]uint32{3 | bpfobj.Bridged: 3}; !reflect.DeepEqual(p.Tables.TxXDP, want) || len(p.Tables.TxTC) != 0 {
		t.Errorf("ways out are %v and %v, want %v and none", p.Tables.TxXDP, p.Tables.TxTC, want)
	}
	if prog.Config.BridgeVlans != 0 || p.BridgeVLANs() {
		t.Error("a bridge without VLANs has them")
	}
	g.Ports[0].Bridge.VLANs = true
	if p = Build(net, g); only(t, p).Config.BridgeVlans != 1 || !p.BridgeVLANs() {
		t.Error("a bridge that filters by VLAN does not")
	}
}

// What is for this host enters by the bridge or by a VLAN device on it, at either hook, and may have a tag that has to go.
func TestBridgeHostByVLAN(t *testing.T) {
	net, g := router()
	fast := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeFIB}}}
	p0 := g.Ports[0]
	p0.Bridge = &graph.Member{Index: 9, Name: "br0", VLANs: true, Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}}
	p0.Inputs = []graph.Input{{Index: 9, Name: "br0", IP4: fast}}
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		p0.Hooks = []graph.Hook{hook}
		p0.Inputs = p0.Inputs[:1]
		if c := only(t, Build(net, g)).Config; c.Bridge != bpfobj.BridgeHost || c.BridgeVlans != 1 || c.VlanIn != flag(hook == graph.XDP) {
			t.Errorf("%s: bridge %d, by VLAN %d, tags %d", hook, c.Bridge, c.BridgeVlans, c.VlanIn)
		}
		p0.Inputs = append(p0.Inputs, graph.Input{Index: 15, Name: "br0.5", VLANs: []model.VLAN{{Proto: 0x8100, ID: 5}}, IP4: fast})
		vlans := Build(net, g).Tables.VLANs
		own, on := vlans[bpfobj.VLANKey{Port: 2 | bpfobj.Bridged}], vlans[bpfobj.VLANKey{Port: 2 | bpfobj.Bridged, OuterProto: be16(0x8100), OuterId: 5}]
		if len(vlans) != 2 || own.Ifindex != 9 || on.Ifindex != 15 {
			t.Errorf("%s: inputs are %v", hook, vlans)
		}
	}
}

// Programs look for the ports of bridges where routes may lead to one, but not those of the bridge that the packet came by, and not at XDP.
func TestOnto(t *testing.T) {
	_, g := router()
	net := &model.Network{Links: []*model.Link{{Index: 2, Name: "eth0"}, {Index: 3, Name: "eth1"}, {Index: 9, Name: "br0"}}}
	g.Ports[0].Hooks = []graph.Hook{graph.TC}
	g.Egress = append(g.Egress, &graph.Egress{Index: 9, Name: "br0", Port: 9, XDP: []graph.Why{{Reason: reason.LinkKind}}, Onto: true})
	p := Build(net, g)
	prog := only(t, p)
	if prog.Config.Onto != 1 || p.Tables.TxTC[9] != 9|bpfobj.Onto || p.Tables.TxTC[3] != 3 || !p.Bridges() {
		t.Errorf("onto %d, ways out %v", prog.Config.Onto, p.Tables.TxTC)
	}
	for _, w := range []bpfobj.Word{bpfobj.WordBridgeOutput, bpfobj.WordBridgePostrouting} {
		if !slices.Contains(prog.Words, Word{Word: w}) {
			t.Errorf("it does not watch %v", w)
		}
	}
	g.Ports[0].Bridge = &graph.Member{Index: 9, Name: "br0", Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}}
	if c := only(t, Build(net, g)).Config; c.Onto != 0 {
		t.Error("a port of the bridge looks for the other ports as a router")
	}
	g.Ports[0].Bridge.Index = 10
	prog = only(t, Build(net, g))
	words := 0
	for _, w := range prog.Words {
		if w.Family() == 0 {
			words++
		}
	}
	if prog.Config.Onto != 1 || words > len(prog.Config.Guard) {
		t.Errorf("onto %d, %d words of %d", prog.Config.Onto, words, len(prog.Config.Guard))
	}
	g.Egress = append(g.Egress, &graph.Egress{Index: 15, Name: "br0.5", Port: 9, XDP: []graph.Why{{Reason: reason.LinkKind}}, Onto: true, ByVLAN: true})
	if c := only(t, Build(net, g)).Config; c.Onto != bpfobj.OntoVLANs {
		t.Errorf("onto %d where a bridge filters by VLAN", c.Onto)
	}
	g.Ports[0].Bridge.Index = 9
	if c := only(t, Build(net, g)).Config; c.Onto != bpfobj.OntoVLANs {
		t.Error("from one VLAN of a bridge to another it does not look for ports")
	}
	g.Ports[0].Hooks = []graph.Hook{graph.XDP}
	if c := only(t, Build(net, g)).Config; c.Onto != 0 {
		t.Error("XDP looks for ports")
	}
}

// Where a packet meets two programs, it is sampled by the first.
func TestFlowsAreSampledAtTheFirstHook(t *testing.T) {
	net, g := router()
	g.Ports[0].Hooks = []graph.Hook{graph.XDP, graph.TC}
	for _, on := range []bool{false, true} {
		g.Flows = on
		progs := Build(net, g).Ports[0].Programs
		if len(progs) != 2 || progs[0].Config.Flows != flag(on) || progs[1].Config.Flows != 0 {
			t.Errorf("sampling %v: planned %+v", on, progs)
		}
	}
}

// The tables of ways out have as many entries as the data path has room for, and not one more, by which every round would fail.
func TestMoreWaysOutThanThereIsRoomFor(t *testing.T) {
	net, g := router()
	for index := 10; index < 10+maxWaysTC; index++ {
		g.Egress = append(g.Egress, &graph.Egress{Index: index, Port: index, Bridge: &graph.Way{}})
	}
	p := Build(net, g)
	if n, tc := len(p.Tables.TxXDP), len(p.Tables.TxTC); n != maxWays || tc != maxWaysTC {
		t.Errorf("%d ways at XDP and %d at TC, want %d and %d", n, tc, maxWays, maxWaysTC)
	}
	if n := len(p.Tables.Tags); n > maxWays {
		t.Errorf("%d tags, there is room for %d", n, maxWays)
	}
	xdp, err := bpfobj.LoadXDP()
	if err != nil {
		t.Fatal(err)
	}
	tc, err := bpfobj.LoadTC()
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := xdp.Maps["tx_xdp"].MaxEntries, xdp.Maps["tags"].MaxEntries, tc.Maps["tx_tc"].MaxEntries; a != maxWays || b != maxWays || c != maxWaysTC {
		t.Errorf("the data path has room for %d and %d ways at XDP, %d at TC", a, b, c)
	}
}
