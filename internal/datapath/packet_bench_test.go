// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// A packetCase is a router with traffic whose cost per packet is of interest.
type packetCase struct {
	name   string
	routes int
	v6     bool
	flows  int // 0: one for each route
	shape  func(*graph.Graph)
	want   reason.Code
	bridge bool // the router's ports are a bridge's, and the packets are from one station to another
	rules  int  // rules behind the route for senders that the packets do not come from; less than none: the last drops them
}

// only4 leaves IPv6 to Linux, as on a router that forwards IPv4 alone.
func only4(g *graph.Graph) {
	for i := range g.Ports {
		g.Ports[i].Inputs[0].IP6 = graph.Path{Why: []graph.Why{{Reason: reason.ForwardingOff}}}
	}
}

// closed keeps the fast path out of the interface that the traffic leaves by.
func closed(g *graph.Graph) {
	e := g.Egress[len(g.Egress)-1]
	e.XDP, e.TC = []graph.Why{{Reason: reason.Excluded}}, []graph.Why{{Reason: reason.Excluded}}
}

func strict(g *graph.Graph) {
	path := &g.Ports[0].Inputs[0].IP4
	path.Nodes = append(path.Nodes, graph.Node{Kind: graph.NodeRPFilter, Params: map[string]string{"mode": "strict"}})
}

// sampled lets packets be sampled for the heaviest flows.
func sampled(g *graph.Graph) { g.Flows = true }

// bridged makes the ports those of one bridge.
func bridged(g *graph.Graph) {
	for i := range g.Ports {
		g.Ports[i].Inputs = nil
		g.Ports[i].Bridge = &graph.Member{Index: 99, Name: "br0", Path: graph.Path{Nodes: []graph.Node{{Kind: graph.NodeBridge}}}}
		g.Egress[i].Bridge = &graph.Way{Index: 99}
	}
}

const bridgeTheRouter = `
ip link add br0 type bridge
ip link set in master br0
ip link set out master br0
ip link set br0 up
bridge fdb add 02:aa:00:00:00:01 dev in master static
bridge fdb add 02:aa:00:00:00:02 dev out master static
`

// Tables of more routes than the CPU's caches hold are asked for with SHUNT_BENCH_ROUTES=all.
func packetCases() []packetCase {
	list := []packetCase{
		{"ip4", 50, false, 0, nil, reason.Fast, false, 0},
		{"ip4-alone", 50, false, 0, only4, reason.Fast, false, 0},
		{"ip4-sampled", 50, false, 0, sampled, reason.Fast, false, 0},
		{"ip4-strict", 50, false, 0, strict, reason.Fast, false, 0},
		{"ip4-10k-flows", 50, false, 10_000, nil, reason.Fast, false, 0},
		{"ip4-closed", 50, false, 0, closed, reason.EgressSlow, false, 0},
		{"ip6", 50, true, 0, nil, reason.Fast, false, 0},
		{"bridge", 50, false, 0, bridged, reason.Fast, true, 0},
		{"ip4-10k-routes", 10_000, false, 0, nil, reason.Fast, false, 0},
		{"ip4-1-rule", 50, false, 0, nil, reason.Fast, false, 1},
		{"ip4-100-rules", 50, false, 0, nil, reason.Fast, false, 100},
		{"ip4-1000-rules", 50, false, 0, nil, reason.Fast, false, 1000},
		{"ip4-dropped", 50, false, 0, nil, reason.RuleDrop, false, -100},
	}
	if os.Getenv("SHUNT_BENCH_ROUTES") == "all" {
		list = append(list, packetCase{"ip4-100k-routes", 100_000, false, 0, nil, reason.Fast, false, 0}, packetCase{"ip4-1M-routes", 1 << 20, false, 0, nil, reason.Fast, false, 0})
	}
	return list
}

// senderRules is the image of that many rules of FORWARD for senders of 172.20.0.0/16.
func senderRules(b *testing.B, n *lab.Net, count int) *image.Image {
	drops := count < 0
	chain := ruleset.Chain{Name: "FORWARD", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}}
	for i := range max(count, -count) {
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, byte(i >> 8), byte(i)}), 32)
		if drops && i == -count-1 {
			of = netip.MustParsePrefix("10.0.0.0/24")
		}
		chain.Rules = append(chain.Rules, ruleset.Rule{Number: i + 1, Steps: []ruleset.Step{ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.Prefix(of)}}, ruleset.Verdict{Code: ruleset.Drop}}})
	}
	rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: ruleset.IP4, Name: "filter", Chains: []ruleset.Chain{chain}}}}
	var devices []rules.Device
	for _, name := range []string{"in", "out"} {
		devices = append(devices, rules.Device{Name: name, Index: n.Port(lab.Dut, name).Index, Type: 1})
	}
	im, err := image.Compile(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}), devices, image.Options{Stage: image.Post})
	if err != nil || im == nil {
		b.Fatal(im, err)
	}
	return im
}

// fed is one case at one hook, ready to run.
type fed struct {
	name          string
	prog, nothing *ebpf.Program
	feeder        *lab.Feeder
	ns            *lab.NS
	index         int
	best, base    float64
}

func (f *fed) run(packets int) error {
	return f.ns.Do(func() error {
		base, _, err := f.feeder.Run(f.nothing, f.index, packets)
		if err != nil {
			return err
		}
		ns, _, err := f.feeder.Run(f.prog, f.index, packets)
		f.best, f.base = min(f.best, ns), min(f.base, base)
		return err
	})
}

// BenchmarkPacket gives the programs' own time per packet in test runs: caches warm but for the routes, no device, no redirect. All cases
// take turns, and the smallest of each is kept, so that what else the machine does matters little.
func BenchmarkPacket(b *testing.B) {
	var list []*fed
	for _, c := range packetCases() {
		list = append(list, feed(b, c, graph.XDP), feed(b, c, graph.TC))
	}
	const packets = 20_000
	for range 15 {
		for _, f := range list {
			if err := f.run(packets); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, f := range list {
		b.Run(f.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(f.best-f.base, "ns/packet")
		})
	}
}

// feed builds a case's router and checks that its packets go where the case says.
func feed(b *testing.B, c packetCase, hook graph.Hook) *fed {
	n := lab.BuildLineT(b, lab.LineOptions{V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO})
	ns, in := n.Node(lab.Dut), n.Port(lab.Dut, "in")
	if err := ns.ChangeRoutes(lab.V4Prefixes(c.routes), "10.0.1.2", true); err != nil {
		b.Fatal(err)
	}
	if c.bridge {
		if err := ns.Shell(bridgeTheRouter); err != nil {
			b.Fatal(err)
		}
	}
	f := &fed{name: string(hook) + "/" + c.name, ns: ns, index: in.Index, best: math.Inf(1), base: math.Inf(1)}
	traffic := n.Port(lab.Src, "tx").Traffic("10.0.0.2", lab.V4Prefixes(c.routes))
	if c.v6 {
		traffic = n.Port(lab.Src, "tx").Traffic("fd00:0:0:1::2", lab.V6Prefixes(50))
	}
	if c.bridge {
		traffic.SrcMAC, traffic.DstMAC = net.HardwareAddr{2, 0xaa, 0, 0, 0, 1}, net.HardwareAddr{2, 0xaa, 0, 0, 0, 2}
	}
	traffic.Flows = c.flows
	pins := b.TempDir() + "/bpf"
	err := ns.Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Hour, Log: slog.Default()})
		if err != nil {
			return err
		}
		b.Cleanup(func() { ns.Do(d.Detach) })
		d.Meet(Needs{Bridges: c.bridge})
		network, g := handmade(n, hook)
		for i := range network.Links {
			network.Links[i].Kind = "" // a test run has nothing of veth's to look at
		}
		if c.shape != nil {
			c.shape(g)
		}
		network.Routes.Count4 = c.routes
		plan := synth.Build(network, g)
		if c.rules != 0 {
			plan.Rules.Images[image.Post] = senderRules(b, n, c.rules)
		}
		s, err := d.Snapshot(true)
		if err != nil {
			return err
		}
		failures, err := d.Apply(plan, &s)
		if err != nil || len(failures) > 0 {
			b.Fatal(err, failures)
		}
		if g.Flows {
			if err := d.StartFlows(); err != nil {
				return err
			}
		}
		f.prog = d.ports[hookKey{in.Index, hook}].prog
		spec := d.objects.programs[hook].Copy()
		if f.feeder, err = traffic.Feeder(spec.Type, spec.AttachType); err != nil {
			return err
		}
		b.Cleanup(func() { f.feeder.Close() })
		spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}
		if f.nothing, err = ebpf.NewProgram(spec); err != nil {
			return err
		}
		b.Cleanup(func() { f.nothing.Close() })
		if _, _, err := f.feeder.Run(f.prog, in.Index, 100); err != nil {
			return err
		}
		counts, _, err := d.Counters(in.Index, hook)
		if err != nil {
			return err
		}
		if counts[c.want].Packets != 100 {
			b.Fatalf("%s: of 100 packets %d left by %s", f.name, counts[c.want].Packets, c.want)
		}
		_, _, err = f.feeder.Run(f.prog, in.Index, 4*c.routes) // so that what is remembered is
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return f
}
