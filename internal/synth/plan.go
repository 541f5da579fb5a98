// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"encoding/binary"
	"maps"
	"slices"
	"sort"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Plan is everything that the data path has to hold.
type Plan struct {
	Ports   []*Port // one that is as it was in the plan before is the same pointer
	Tables  Tables
	Routes4 int // in the kernel: how much is worth remembering
	Rules   Rules

	graph  *graph.Graph // that it is made of
	shared shared
}

// Port is a device with the programs to run there, at most one for each hook.
type Port struct {
	Index    int
	Life     int // with Index names the device: a number can be given again
	Name     string
	Down     bool // by an administrator
	NoXDP    bool // an XDP program that does nothing does harm, too (graph.LosesFrames)
	Programs []Program

	port   *graph.Port // that it is made of
	tunnel bool
}

// Program is one program of the data path before the kernel is asked.
type Program struct {
	Hook   graph.Hook
	Config bpfobj.Config // guard addresses, namespace and kernel capabilities still zero
	Words  []Word        // what its guard watches
}

// Word names a kernel word: of the namespace (Index 0) or of a device.
type Word struct {
	Word  bpfobj.Word
	Index int
}

// Tables are the contents of the maps that a namespace's programs share.
type Tables struct {
	TxXDP    map[uint32]uint32 // logical egress ifindex → device that carries it; with bpfobj.Bridged, ports of bridges
	TxTC     map[uint32]uint32
	Tags     map[uint32]bpfobj.Tags
	VLANs    map[bpfobj.VLANKey]bpfobj.Input
	Local4   map[[4]byte]uint8
	Special4 map[bpfobj.Prefix4]bpfobj.Special
	Special6 map[bpfobj.Prefix6]bpfobj.Special
}

// Has says whether the plan's network has a device.
func (p *Plan) Has(index int) bool { return p.Port(index) != nil }

// Port is a device's, nil if the plan has none. They are in the order of their numbers.
func (p *Plan) Port(index int) *Port {
	i := sort.Search(len(p.Ports), func(i int) bool { return p.Ports[i].Index >= index })
	if i == len(p.Ports) || p.Ports[i].Index != index {
		return nil
	}
	return p.Ports[i]
}

// Bridges says whether some program forwards frames of a bridge, or finds the ports of one.
func (p *Plan) Bridges() bool {
	return p.some(func(c *bpfobj.Config) bool { return c.Bridge != 0 || c.Onto != 0 })
}

// BridgeVLANs says whether some program forwards frames of a bridge that filters by VLAN.
func (p *Plan) BridgeVLANs() bool {
	return p.some(func(c *bpfobj.Config) bool { return c.BridgeVlans != 0 })
}

func (p *Plan) some(has func(*bpfobj.Config) bool) bool {
	for _, port := range p.Ports {
		for i := range port.Programs {
			if has(&port.Programs[i].Config) {
				return true
			}
		}
	}
	return false
}

// Build runs the passes.
func Build(net *model.Network, g *graph.Graph) *Plan { return Next(net, g, nil) }

// Next is Build after a plan for an earlier graph: what follows from the same parts of a graph is the same value again. Graphs are never changed.
func Next(net *model.Network, g *graph.Graph, before *Plan) *Plan {
	if before == nil {
		before = &Plan{graph: &graph.Graph{}}
	}
	p := &Plan{Routes4: net.Routes.Count4, Rules: images(g), graph: g, Ports: make([]*Port, len(g.Ports))}
	t, old := &p.Tables, &before.Tables
	t.Local4 = carry(local4(net), old.Local4)
	t.egress(g, before)
	t.inputs(g, before)
	t.Special4, t.Special6 = special(g)
	t.Special4, t.Special6 = carry(t.Special4, old.Special4), carry(t.Special6, old.Special6)
	p.shared = t.shared(net, g)
	tunnels := map[int]bool{}
	for _, e := range g.Egress {
		if e.Tunnel {
			tunnels[e.Index] = true
		}
	}
	at := 0
	for i, port := range g.Ports {
		link, tunnel := net.Link(port.Index), tunnels[port.Index]
		for at < len(before.Ports) && before.Ports[at].Index < port.Index {
			at++
		}
		if at < len(before.Ports) && before.shared == p.shared {
			if was := before.Ports[at]; was.port == port && was.Life == link.Life && was.Down == !link.Up && was.NoXDP == graph.LosesFrames(link) && was.tunnel == tunnel {
				p.Ports[i] = was
				continue
			}
		}
		p.Ports[i] = p.shared.port(link, port, tunnel)
	}
	return p
}

// carry is what a table has, as the very table of before where that has the same.
func carry[K, V comparable](now, before map[K]V) map[K]V {
	if before != nil && maps.Equal(now, before) {
		return before
	}
	return now
}

// local4 lists the addresses that Linux refuses as a source (inet_lookup_ifaddr_rcu(): any device, any VRF). Where it refuses broadcast
// addresses too, the graph asks for the reverse lookup. Those that left are refused as well where there are routes with several next hops, which may still know them.
func local4(net *model.Network) map[[4]byte]uint8 {
	out := map[[4]byte]uint8{}
	if graph.Crowded(net) { // IPv4 is Linux's
		return out
	}
	if slices.ContainsFunc(net.Routes.Notable, func(r model.Route) bool { return r.Multipath && r.Family != model.IP6 }) {
		for _, a := range net.Left {
			out[a.As4()] = 1
		}
	}
	for _, a := range net.Addrs {
		if a.Prefix.Addr().Is4() {
			out[a.Prefix.Addr().As4()] = 1
		}
	}
	return out
}

// egress fills the tables of enterable devices for both hooks: those of before, as far as devices are others.
func (t *Tables) egress(g *graph.Graph, before *Plan) {
	t.TxXDP, t.TxTC, t.Tags = before.Tables.TxXDP, before.Tables.TxTC, before.Tables.Tags
	old := before.graph.Egress
	if t.Tags != nil && slices.Equal(g.Egress, old) {
		return
	}
	clone := func(m map[uint32]uint32) map[uint32]uint32 {
		if m == nil {
			return map[uint32]uint32{}
		}
		return maps.Clone(m)
	}
	if t.TxXDP, t.TxTC = clone(t.TxXDP), clone(t.TxTC); t.Tags == nil {
		t.Tags = map[uint32]bpfobj.Tags{}
	} else {
		t.Tags = maps.Clone(t.Tags)
	}
	for _, e := range g.Egress {
		for ; len(old) > 0 && old[0].Index < e.Index; old = old[1:] {
			t.without(old[0])
		}
		if len(old) > 0 && old[0].Index == e.Index {
			was := old[0]
			if old = old[1:]; was == e {
				continue
			}
			t.without(was)
		}
		t.with(e)
	}
	for _, e := range old {
		t.without(e)
	}
}

// maxWays is the room of the maps of ways out at XDP (tx_xdp and tags), maxWaysTC of that at TC (tx_tc). By one for which there is none, packets go to Linux (egress-slow); a host has that many VLANs if at all.
const (
	maxWays   = 4096
	maxWaysTC = 16384
)

// with adds a device.
func (t *Tables) with(e *graph.Egress) {
	if len(e.XDP) == 0 && len(t.TxXDP) < maxWays {
		t.TxXDP[uint32(e.Index)] = uint32(e.Port)
		t.Tags[uint32(e.Index)] = tags(e)
	}
	if len(e.TC) == 0 && len(t.TxTC) < maxWaysTC {
		t.TxTC[uint32(e.Index)] = uint32(e.Index) | wayOut(e)
	}
	if e.Bridge != nil && len(e.Bridge.XDP) == 0 && len(t.TxXDP) < maxWays {
		t.TxXDP[uint32(e.Index)|bpfobj.Bridged] = uint32(e.Index)
	}
	if e.Bridge != nil && len(e.Bridge.TC) == 0 && len(t.TxTC) < maxWaysTC {
		way := uint32(e.Index)
		if e.Bridge.Peer {
			way |= bpfobj.ByPeer
		}
		if e.Bridge.Veth {
			way |= bpfobj.Veth
		}
		if e.Tunnel {
			way |= bpfobj.IntoTunnel
		}
		t.TxTC[uint32(e.Index)|bpfobj.Bridged] = way
	}
}

// without takes a device out.
func (t *Tables) without(e *graph.Egress) {
	for _, m := range []map[uint32]uint32{t.TxXDP, t.TxTC} {
		delete(m, uint32(e.Index))
		delete(m, uint32(e.Index)|bpfobj.Bridged)
	}
	delete(t.Tags, uint32(e.Index))
}

// wayOut marks a bridge whose port may be entered at once, what leads into a tunnel, and what has an MTU of its own for IPv6.
func wayOut(e *graph.Egress) (way uint32) {
	if e.Onto {
		way |= bpfobj.Onto
	}
	if e.Tunnel {
		way |= bpfobj.IntoTunnel
	}
	if e.Short6 {
		way |= bpfobj.Short6
	}
	return way
}

func tags(e *graph.Egress) bpfobj.Tags {
	out := bpfobj.Tags{N: uint32(len(e.VLANs)), MaxLen: uint32(e.XDPMax)}
	if !e.Frags {
		out.NoFrags = 1
	}
	if len(e.VLANs) > 0 {
		out.OuterProto, out.OuterId = be16(e.VLANs[0].Proto), e.VLANs[0].ID
	}
	if len(e.VLANs) > 1 {
		out.InnerProto, out.InnerId = be16(e.VLANs[1].Proto), e.VLANs[1].ID
	}
	return out
}

// be16 gives the value whose native representation is v in network byte order.
func be16(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// maxHandedUp bounds the entries of interfaces on bridges, a VLAN device on a bridge being one for each of its ports: the map `vlans` has room for them and some thousand
// tagged interfaces. What is left out is Linux's, by `vlan-unknown`.
const maxHandedUp = 60_000

// inputs fills the table from tags to logical interfaces. Those of a bridge that filters by VLAN have keys of their own (SHUNT_BRIDGED), since by the same tag a port that is
// none of a bridge is entered otherwise, and its program may still run.
func (t *Tables) inputs(g *graph.Graph, before *Plan) {
	t.VLANs = before.Tables.VLANs
	if t.VLANs != nil && slices.Equal(g.Ports, before.graph.Ports) {
		return
	}
	defer func() { t.VLANs = carry(t.VLANs, before.Tables.VLANs) }()
	t.VLANs = map[bpfobj.VLANKey]bpfobj.Input{}
	for _, port := range g.Ports {
		up := byVLAN(port) // by a tag or none, at either hook
		if len(port.Hooks) == 0 || !up && !slices.Contains(port.Hooks, graph.XDP) {
			continue
		}
		for _, in := range port.Inputs {
			key := bpfobj.VLANKey{Port: uint32(port.Index)}
			if up {
				key.Port |= bpfobj.Bridged
			}
			switch {
			case up && len(t.VLANs) >= maxHandedUp:
				continue
			case len(in.VLANs) > 0:
				key.OuterProto, key.OuterId = be16(in.VLANs[0].Proto), in.VLANs[0].ID
			case !up:
				continue
			}
			if len(in.VLANs) > 1 {
				key.InnerProto, key.InnerId = be16(in.VLANs[1].Proto), in.VLANs[1].ID
			}
			t.VLANs[key] = input(&in)
		}
	}
}

// byVLAN says whether a port is one of a bridge that filters by VLAN.
func byVLAN(port *graph.Port) bool { return port.Bridge != nil && port.Bridge.VLANs }

// input freezes a logical interface.
func input(in *graph.Input) bpfobj.Input {
	out := bpfobj.Input{Ifindex: uint32(in.Index), Mac: in.MAC, Ip4: code(in.IP4), Ip6: code(in.IP6)}
	for _, n := range in.IP4.Nodes {
		switch n.Kind {
		case graph.NodeLocal:
			out.Local4 = 1
		case graph.NodeRPFilter:
			out.Rpf4 = rpfMode(n.Params["mode"])
			out.RpfIn = flag(n.Params["iif"] == "ingress")
		}
	}
	return out
}

// code is 0 for a fast path and the first reason otherwise; a path without nodes and without reasons cannot be promised.
func code(p graph.Path) uint8 {
	switch {
	case p.Fast():
		return 0
	case len(p.Why) > 0:
		return uint8(p.Why[0].Reason)
	}
	return uint8(reason.Unreadable)
}

// rpfMode translates the graph's word; one that is not known gets the strictest check.
func rpfMode(mode string) uint8 {
	switch mode {
	case "loose":
		return bpfobj.RPFLoose
	case "source":
		return bpfobj.RPFSource
	}
	return bpfobj.RPFStrict
}

// shared is what the programs of all ports have in common, as it is asked for each of them.
type shared struct {
	flows          bool
	cache4, cache6 uint8
	special        [2]uint8
	onLink6        uint8
	vlanOut, frags uint8
	priority       bool
	onto           others // bridges whose ports are entered at once, and VLAN devices on such
	ontoVLANs      bool   // some of these filter by VLAN
	tunnels        others // that tc enters
}

func (t *Tables) shared(net *model.Network, g *graph.Graph) shared {
	s := shared{flows: g.Flows, cache4: flag(cacheable(net, model.IP4)), cache6: flag(cacheable(net, model.IP6)),
		special: [2]uint8{flag(len(t.Special4) > 0), flag(len(t.Special6) > 0)}, priority: net.Sysctl.UpdatePriority}
	if g.OnLink6 > 64 {
		s.onLink6 = g.OnLink6 - 64
	}
	for _, tag := range t.Tags {
		s.vlanOut |= flag(tag.N > 0)
		s.frags |= uint8(tag.NoFrags)
	}
	for _, e := range g.Egress {
		if e.Onto {
			s.onto.add(e.Index)
			s.ontoVLANs = s.ontoVLANs || e.ByVLAN
		}
		if e.Tunnel && (len(e.TC) == 0 || e.Bridge != nil && len(e.Bridge.TC) == 0) {
			s.tunnels.add(e.Index)
		}
	}
	return s
}

// others is a set of devices, of which one asks whether it has others than itself.
type others struct {
	some, more bool
	one        int
}

func (o *others) add(index int) {
	if o.more = o.some; !o.some {
		o.some, o.one = true, index
	}
}

func (o others) than(index int) bool { return o.more || o.some && o.one != index }

// port freezes one program for each hook.
func (s *shared) port(link *model.Link, port *graph.Port, tunnel bool) *Port {
	out := &Port{Index: port.Index, Life: link.Life, Name: port.Name, Down: !link.Up, NoXDP: graph.LosesFrames(link), port: port, tunnel: tunnel}
	for _, hook := range port.Hooks {
		c := bpfobj.Config{Port: uint32(port.Index), Watchdog: 1, Flows: flag(s.flows && hook == port.Hooks[0])} // a packet that meets two programs is sampled once
		c.Cache4, c.Cache6 = s.cache4, s.cache6
		c.In.Ip4, c.In.Ip6 = uint8(reason.LinkAttribute), uint8(reason.LinkAttribute) // until inputs say otherwise
		var words wordSet
		if port.Bridge != nil && port.Bridge.Fast() {
			c.Bridge, c.BridgeVlans = bpfobj.BridgeFrames, flag(port.Bridge.VLANs)
			words.bridge(port.Index)
			c.In.Ifindex = uint32(port.Bridge.Index) // to rules that are shown what is bridged
			c.Called4, c.Shown4, c.Track4 = called(port.Bridge.Call4)
			c.Called6, c.Shown6, c.Track6 = called(port.Bridge.Call6)
			c.Chains = flag(port.Bridge.Chains)
			words.called(c.Called4, called4)
			words.called(c.Called6, called6)
		}
		for i := range port.Inputs {
			in := &port.Inputs[i]
			if len(in.VLANs) > 0 {
				c.VlanIn = flag(hook == graph.XDP)
			} else {
				c.In = input(in)
			}
			words.add(in)
			if c.Bridge != 0 && (in.IP4.Fast() || in.IP6.Fast()) {
				c.Bridge = bpfobj.BridgeHost
				c.VlanIn |= c.BridgeVlans & flag(hook == graph.XDP) // a tag may have to go, whatever the interface
				words.words(0, bpfobj.WordBridgeInput)
			}
			c.Track4 = max(c.Track4, track(in.IP4.Nodes))
			c.Track6 = max(c.Track6, track(in.IP6.Nodes))
			c.Nat |= flag(in.IP4.Node(graph.NodeNAT) != nil)*uint8(bpfobj.NATIP4) | flag(in.IP6.Node(graph.NodeNAT) != nil)*uint8(bpfobj.NATIP6)
			for _, n := range slices.Concat(in.IP4.Nodes, in.IP6.Nodes) {
				if n.Kind == graph.NodeTrack && n.Params["flowtable"] != "" {
					c.Flowtable = uint32(flag(hook == graph.XDP))
				}
				if n.Kind == graph.NodeFIB && n.Params["ports"] != "" {
					c.Ports = 1
				}
				if n.Kind == graph.NodeFIB && n.Params["marks"] != "" {
					c.Marks = flag(hook == graph.TC)
					c.FibMark |= flag(n.Params["marks"] == graph.MarksSet)
				}
			}
		}
		c.Special4, c.Special6, c.Onlink6 = s.special[0], s.special[1], s.onLink6
		if hook == graph.XDP {
			c.NeighUse = 1
			c.SkbBorn = flag(link.Kind == "veth")
			c.Lower = flag(link.Kind == "bond")
			c.VlanOut, c.Frags = s.vlanOut, s.frags
		} else {
			c.SetPriority = flag(s.priority)
			c.Tunnel = flag(tunnel && s.tunnels.than(port.Index)) // what the port receives may come out of a tunnel and be routed into another
			if s.leadsOnto(port) {
				c.Onto = bpfobj.OntoPlain
				if s.ontoVLANs {
					c.Onto = bpfobj.OntoVLANs
				}
				words.words(0, bpfobj.WordBridgeOutput, bpfobj.WordBridgePostrouting)
			}
		}
		out.Programs = append(out.Programs, Program{Hook: hook, Config: c, Words: words.list})
	}
	return out
}

// leadsOnto says whether what a port receives may be routed to a bridge whose port is entered at once. The port's own bridge is none: that would be out where it came in.
// Nor is any where rules are asked for what the port's bridge forwards: with both the program is more than verifiers take.
func (s *shared) leadsOnto(port *graph.Port) bool {
	if m := port.Bridge; m != nil && (m.Call4.Asks || m.Call6.Asks || m.Call4.Frames || m.Call6.Frames) {
		return false
	}
	if !slices.ContainsFunc(port.Inputs, func(in graph.Input) bool { return in.IP4.Fast() || in.IP6.Fast() }) {
		return false
	}
	if port.Bridge == nil {
		return s.onto.some
	}
	return s.onto.than(port.Bridge.Index)
}

// called says what a program does where br_netfilter looks at frames of a family: whether it asks the rules for them, and connection tracking.
func called(c graph.Call) (how, shown, tracked uint8) {
	shown = flag(c.Asks)*bpfobj.ShownIP | flag(c.Frames)*bpfobj.ShownFrames
	switch {
	case len(c.Why) > 0:
		return bpfobj.CalledSlow, 0, 0
	case c.By == "":
		return bpfobj.CalledNone, shown, 0
	}
	how = bpfobj.CalledOption
	if c.All {
		how = bpfobj.CalledAll
	}
	return how, shown, track(c.Nodes)
}

// track says which connections are looked up.
func track(nodes []graph.Node) uint8 {
	for _, n := range nodes {
		switch {
		case n.Kind != graph.NodeTrack:
		case n.Params["tcp"] != "":
			return bpfobj.TrackNoTCP
		default:
			return bpfobj.TrackAll
		}
	}
	return 0
}

// cacheable says whether a route lookup depends on nothing but what the route cache keys by: no policy rules but the kernel's own.
func cacheable(net *model.Network, family model.Family) bool {
	return !slices.ContainsFunc(net.Rules, func(r model.Rule) bool { return r.Family == family && !r.Default })
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// special writes the graph's special destinations as rows of the tries.
func special(g *graph.Graph) (map[bpfobj.Prefix4]bpfobj.Special, map[bpfobj.Prefix6]bpfobj.Special) {
	out4, out6 := map[bpfobj.Prefix4]bpfobj.Special{}, map[bpfobj.Prefix6]bpfobj.Special{}
	for _, s := range g.Special {
		row := bpfobj.Special{Mtu: s.MTU, Reason: uint32(s.Always)}
		if addr, bits := s.Prefix.Addr(), uint32(s.Prefix.Bits()); addr.Is4() {
			out4[bpfobj.Prefix4{Prefixlen: bits, Addr: addr.As4()}] = row
		} else {
			out6[bpfobj.Prefix6{Prefixlen: bits, Addr: addr.As16()}] = row
		}
	}
	return out4, out6
}
