// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/synth"
)

// handmade is the graph of a two-port router, without asking Linux.
func handmade(n *lab.Net, hook graph.Hook) (*model.Network, *graph.Graph) {
	net, g := &model.Network{}, &graph.Graph{}
	fast := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeGuard}, {Kind: graph.NodeFIB}, {Kind: graph.NodeRedirect}}}
	for _, name := range []string{"in", "out"} {
		p := n.Port(lab.Dut, name)
		net.Links = append(net.Links, &model.Link{Index: p.Index, Name: name, Kind: "veth"})
		in := graph.Input{Index: p.Index, Name: name, MAC: [6]byte(p.MAC), IP4: fast, IP6: fast}
		g.Ports = append(g.Ports, &graph.Port{Index: p.Index, Name: name, Hooks: []graph.Hook{hook}, Inputs: []graph.Input{in}})
		g.Egress = append(g.Egress, &graph.Egress{Index: p.Index, Name: name, Port: p.Index, Frags: true})
	}
	return net, g
}

func TestForwarding(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { testForwarding(t, hook, func(*Datapath) {}) })
	}
	t.Run("driver without frags", func(t *testing.T) { testForwarding(t, graph.XDP, refuseFrags(t)) })
}

// refuseFrags makes attaching fail as at a driver that takes no program for frames in several buffers.
func refuseFrags(t *testing.T) func(*Datapath) {
	return func(d *Datapath) {
		d.attachXDP = func(o link.XDPOptions) (link.Link, error) {
			info, err := o.Program.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Name == stubXDP {
				return nil, unix.EOPNOTSUPP
			}
			return link.AttachXDP(o)
		}
	}
}

// testForwarding sends packets of each kind through the data path and compares what leaves, byte by byte, with what a router makes of it.
func testForwarding(t *testing.T, hook graph.Hook, prepare func(*Datapath)) {
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.Default()})
		if err != nil {
			return err
		}
		defer func() {
			if err := d.Detach(); err != nil {
				t.Error(err)
			}
		}()
		prepare(d)
		net, g := handmade(n, hook)
		s, err := d.Snapshot(false)
		if err != nil {
			return err
		}
		failures, err := d.Apply(synth.Build(net, g), &s)
		if err != nil {
			return err
		}
		for _, f := range failures {
			var ve *ebpf.VerifierError
			if errors.As(f.Err, &ve) {
				t.Logf("%+v", ve)
			}
			t.Fatal(f.Err)
		}
		forward(t, n, d, hook)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func forward(t *testing.T, n *lab.Net, d *Datapath, hook graph.Hook) {
	tx, out := n.Port(lab.Src, "tx"), n.Port(lab.Dut, "out")
	wire, err := tx.Wire()
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	c, err := n.Port(lab.SinkNode, "rx").Capture()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v4 := tx.Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String())
	v6 := tx.Flow("fd00:0:0:1::2", lab.V6Prefixes(1).Host(3, 9).String())
	frames := map[string][]byte{
		"udp": v4.UDP("hello"), "tcp": v4.TCP("S", 1, ""), "icmp": v4.Echo(1, 2, "ping"),
		"udp6": v6.UDP("hello"), "tcp6": v6.TCP("PA", 7, "data"), "icmp6": v6.Echo(1, 2, "ping"),
	}
	for name, f := range frames {
		for _, in := range [][]byte{f, lab.Edited(f, lab.Pad(90))} {
			want := lab.Edited(f, lab.L2(0, out.Peer.MAC...), lab.L2(6, out.MAC...), lab.TTL(63))
			explains(t, d, n.Port(lab.Dut, "in").Index, hook, in, out.Index, want)
			before := fast(t, d, n.Port(lab.Dut, "in").Index, hook)
			if err := wire.Send(in); err != nil {
				t.Fatal(err)
			}
			got := arrival(t, c)
			if got == nil {
				t.Fatalf("%s: nothing arrived", name)
			}
			if diff := lab.Diff(want, got); diff != "" {
				t.Errorf("%s:\n%s", name, diff)
			}
			if after := fast(t, d, n.Port(lab.Dut, "in").Index, hook); after != before+1 {
				t.Errorf("%s went through Linux: %d fast packets before, %d after", name, before, after)
			}
		}
	}
}

// arrival is the next frame that no host sent by itself; nil when none comes.
func arrival(t *testing.T, c *lab.Capture) []byte {
	t.Helper()
	for {
		got, err := c.Take(1, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return nil
		}
		if !lab.Noise(got[0].Data) {
			return got[0].Data
		}
	}
}

func fast(t *testing.T, d *Datapath, index int, hook graph.Hook) uint64 {
	t.Helper()
	c, ok, err := d.Counters(index, hook)
	if err != nil || !ok {
		t.Fatalf("counters of %d: %v, %v", index, ok, err)
	}
	return c[reason.Fast].Packets
}
