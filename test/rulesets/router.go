// SPDX-License-Identifier: Apache-2.0

package rulesets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

const (
	wires    = "wire" // the namespace in which hosts of both sides are played
	patience = 20 * time.Second
	// assured is how long an exchange over UDP goes on before Linux takes it for a connection.
	assured = 2100 * time.Millisecond
)

// share is what became of packets.
type share struct {
	Fast int            `json:"fast"` // forwarded or dropped without Linux
	All  int            `json:"all"`
	Why  map[string]int `json:"why,omitempty"` // what sent the others to Linux
}

// router is a fixture's router between two wires, with shunt on it.
type router struct {
	net      *lab.Net
	fixture  fixture
	hook     graph.Hook
	lan, wan *lab.Port // the router's own
	wire     *lab.Wire
	heard    *lab.Capture
	engine   *control.Engine
	stop     func() error
}

// topology is the router's: what is inside and outside lies one hop behind the wires, so that any address of theirs is a host's.
func (f *fixture) topology() lab.Topology {
	end := func(device, four, six, four2, six2 string, peer byte) lab.End {
		mac := net.HardwareAddr{2, 0, 0, 0, 0xee, peer}
		return lab.End{Node: lab.Dut, Name: device, Quiet: true, Receive: lab.ReceiveGRO,
			Addrs:      []netip.Prefix{netip.MustParsePrefix(four), netip.MustParsePrefix(six)},
			Neighbours: map[netip.Addr]net.HardwareAddr{netip.MustParseAddr(four2): mac, netip.MustParseAddr(six2): mac}}
	}
	out := lab.End{Node: wires, Name: "w0", Wire: true, Receive: lab.ReceiveXDP, MAC: net.HardwareAddr{2, 0, 0, 0, 0xee, 0}}
	in := out
	in.Name, in.MAC = "w1", net.HardwareAddr{2, 0, 0, 0, 0xee, 1}
	t := lab.Topology{
		Nodes: []lab.Node{{Name: lab.Dut, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}}, {Name: wires}},
		Links: []lab.Link{
			{A: end(f.lan.device, "192.0.2.1/30", "fd00:0:0:1::1/64", "192.0.2.2", "fd00:0:0:1::2", 0), B: out},
			{A: end(f.wan.device, "192.0.2.5/30", "fd00:0:0:2::1/64", "192.0.2.6", "fd00:0:0:2::2", 1), B: in},
		},
	}
	near, far := "via 192.0.2.2", "via 192.0.2.6"
	t.Nodes[0].Commands = []string{
		"ip route add " + f.lan.four + " " + near, "ip route add default " + far, "ip -6 route add default via fd00:0:0:2::2",
	}
	if f.bench != nil { // its headers have any address
		t.Nodes[0].Commands = []string{"ip route add default " + near}
	} else if f.lan.six != "" {
		t.Nodes[0].Commands = append(t.Nodes[0].Commands, "ip -6 route add "+f.lan.six+" via fd00:0:0:1::2")
	}
	return t
}

// build makes the fixture's router, without rules and without shunt.
func (f fixture) build() (*router, error) {
	n, err := lab.Build(lab.UniquePrefix("set"), f.topology())
	if err != nil {
		return nil, err
	}
	return &router{net: n, fixture: f, lan: n.Port(lab.Dut, f.lan.device), wan: n.Port(lab.Dut, f.wan.device)}, nil
}

// send has shunt serve the router at a hook and gives what becomes of each class of the fixture's traffic.
func (r *router) send(hook graph.Hook, pins string) (out map[string]share, err error) {
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.start(hook, pins); err != nil {
		return nil, err
	}
	out = map[string]share{}
	for _, c := range r.fixture.traffic() {
		if len(c.packets) == 0 {
			continue
		}
		if out[c.name], err = r.share(c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return out, nil
}

// start has shunt serve the router at a hook, with its pins in a folder.
func (r *router) start(hook graph.Hook, pins string) (err error) {
	if r.wire, err = lab.NewWire(r.lan.Peer, r.wan.Peer); err != nil {
		return err
	}
	r.wire.Unchecked = true
	if r.heard, err = lab.NewCapture(r.lan.Peer, r.wan.Peer); err != nil {
		return err
	}
	r.hook = hook
	r.engine = control.New(control.Options{
		Namespace: lab.Dut, NetnsPath: r.net.Node(lab.Dut).Path(), PinDir: pins, Policy: graph.Policy{Hook: string(hook)},
		Watchdog: patience, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx) }()
	r.stop = func() error {
		r.engine.DetachOnStop()
		cancel()
		return <-done
	}
	select {
	case <-r.engine.Ready():
		return nil
	case err := <-done:
		r.stop = nil
		cancel()
		return fmt.Errorf("starting shunt: %w", err)
	case <-time.After(time.Minute):
		return fmt.Errorf("shunt did not start within a minute")
	}
}

// end is the end of shunt.
func (r *router) end() (err error) {
	if r.stop != nil {
		err = r.stop()
	}
	if r.heard != nil {
		err = errors.Join(err, r.heard.Close())
	}
	if r.wire != nil {
		err = errors.Join(err, r.wire.Close())
	}
	r.stop, r.heard, r.wire = nil, nil, nil
	return err
}

// counters are those of both devices together.
func (r *router) counters() (c [reason.Count]uint64, err error) {
	err = r.engine.Do(context.Background(), func(d *datapath.Datapath) error {
		for _, p := range []*lab.Port{r.lan, r.wan} {
			got, ok, err := d.Counters(p.Index, r.hook)
			if err == nil && !ok {
				err = fmt.Errorf("nothing is attached to %s at %s", p, r.hook)
			}
			if err != nil {
				return err
			}
			for i := range got {
				c[i] += got[i].Packets
			}
		}
		return nil
	})
	return c, err
}

// passed sends frames and gives the exits of the data path by which they left it.
func (r *router) passed(shots []lab.Shot) (s share, err error) {
	before, err := r.counters()
	if err != nil {
		return s, err
	}
	if err := r.wire.Fire(shots...); err != nil {
		return s, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		after, err := r.counters()
		if err != nil {
			return s, err
		}
		s = share{Why: map[string]int{}}
		for i := range after {
			n := int(after[i] - before[i])
			s.All += n
			switch code := reason.Code(i); {
			case n == 0:
			case code.Describe().Class == reason.Forwarded || code.Describe().Class == reason.Dropped:
				s.Fast += n
			default:
				s.Why[code.String()] += n
			}
		}
		if s.All == len(shots) {
			return s, nil
		}
		if time.Now().After(end) {
			return s, fmt.Errorf("%d packets were sent, the data path counted %d", len(shots), s.All)
		}
	}
}

// unsettled are exits that say something about the moment and not about the packet.
var unsettled = []reason.Code{reason.Stale, reason.Watchdog, reason.Resting, reason.WrongDevice, reason.Paused, reason.NoNeighbour}

// share sends a class of traffic until what comes of it says nothing about the moment.
func (r *router) share(c class) (s share, err error) {
	if c.name == established && r.fixture.tracked {
		return r.connections(c)
	}
	var shots []lab.Shot
	for _, p := range c.packets {
		shots = append(shots, r.shot(p, 1, 0, p.Length))
	}
	for end := time.Now().Add(patience); ; {
		if r.fixture.tracked { // what an attempt before has begun
			if err := r.net.Node(lab.Dut).Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
				return s, err
			}
		}
		s, err = r.passed(shots)
		if err != nil || s.settled() || time.Now().After(end) {
			return s, err
		}
	}
}

// beginning are exits of connections whose beginning is not over.
var beginning = []reason.Code{reason.ConntrackNew, reason.ConntrackState, reason.ConntrackWindow}

func (s share) settled(also ...reason.Code) bool {
	for _, code := range append(also, unsettled...) {
		if s.Why[code.String()] > 0 {
			return false
		}
	}
	return true
}

// shot is a packet of a class as a frame: to the router, with at least a word as payload.
func (r *router) shot(p rules.Packet, seq, ack uint32, length uint16) lab.Shot {
	at := r.lan
	if p.IIF.Name == r.fixture.wan.device {
		at = r.wan
	}
	f := lab.Flow{SrcMAC: at.Peer.MAC, DstMAC: at.MAC, Src: p.Src, Dst: p.Dst, SrcPort: p.SPort, DstPort: p.DPort, TTL: p.TTL, TOS: p.DSField}
	head := 20
	if p.Src.Is6() {
		head = 40
	}
	payload := func(transport int) gopacket.Payload { return make([]byte, max(4, int(length)-head-transport)) }
	switch p.Proto {
	case 6:
		return lab.Shot{Port: at.Peer, Frame: f.Carry(&layers.TCP{SrcPort: layers.TCPPort(p.SPort), DstPort: layers.TCPPort(p.DPort), Seq: seq, Ack: ack, Window: 65535,
			SYN: p.TCPFlags&2 != 0, ACK: p.TCPFlags&0x10 != 0}, payload(20))}
	case 1:
		return lab.Shot{Port: at.Peer, Frame: f.Carry(&layers.ICMPv4{TypeCode: layers.ICMPv4TypeCode(p.ICMPType)}, payload(8))}
	}
	return lab.Shot{Port: at.Peer, Frame: f.Carry(&layers.UDP{SrcPort: layers.UDPPort(p.SPort), DstPort: layers.UDPPort(p.DPort)}, payload(8))}
}

// talk is a connection: its two ends, what each of them sees of the other, and where they are in their streams.
type talk struct {
	ends [2]rules.Packet // what the client and the server send
	seq  [2]uint32
	up   bool // the server heard the client, and the client the server
}

// connections opens connections as their ends would, lets them talk until Linux knows them for established, and gives what becomes of more of it.
func (r *router) connections(c class) (s share, err error) {
	var talks []*talk
	for i := 0; i < len(c.packets); i += 2 {
		talks = append(talks, &talk{ends: [2]rules.Packet{c.packets[i], c.packets[i+1]}, seq: [2]uint32{1000, 5000}})
	}
	for _, from := range []int{0, 1} {
		if err := r.open(talks, from); err != nil {
			return s, err
		}
	}
	if talks = slices.DeleteFunc(talks, func(t *talk) bool { return !t.up }); len(talks) == 0 {
		return s, fmt.Errorf("no connection came about")
	}
	round := func() (s share, err error) {
		var shots []lab.Shot
		for _, from := range []int{0, 1} {
			for _, t := range talks {
				shots = append(shots, r.say(t, from, t.ends[from].Length))
			}
		}
		return r.passed(shots)
	}
	if _, err = round(); err != nil {
		return s, err
	}
	time.Sleep(assured)
	// Some packets go to Linux until it and the daemon have done what they do for a connection; then nothing changes any more.
	for same, last, end := 0, -1, time.Now().Add(patience); same < 8 || !s.settled(beginning...); time.Sleep(20 * time.Millisecond) {
		if s, err = round(); err != nil || time.Now().After(end) {
			return s, err
		}
		if same++; s.Fast != last {
			same, last = 0, s.Fast
		}
	}
	return s, nil
}

// open sends the first packets of one end and learns by what addresses and ports the other end sees it.
func (r *router) open(talks []*talk, from int) error {
	r.heard.Take(0, 20*time.Millisecond)
	var shots []lab.Shot
	waiting := 0
	for i, t := range talks {
		p := t.ends[from]
		if p.TCPFlags = 0; p.Proto == 6 {
			p.TCPFlags = [2]uint8{2, 0x12}[from]
		}
		if from == 1 && !t.up {
			continue
		}
		t.up = false
		shot := r.shot(p, t.seq[from], [2]uint32{0, t.seq[0]}[from], 0)
		// The payload says which connection it is, whatever the router makes of addresses and ports.
		shot.Frame = lab.Edited(shot.Frame, lab.Truncate(len(shot.Frame)-4), lab.Append(number(i)...), lab.FixTransportChecksum())
		shots = append(shots, shot)
		if t.seq[from] += 4; p.Proto == 6 {
			t.seq[from]++
		}
		waiting++
	}
	if err := r.wire.Fire(shots...); err != nil {
		return err
	}
	other := map[int]*lab.Port{0: r.wan.Peer, 1: r.lan.Peer}[from]
	for waiting > 0 {
		got, err := r.heard.Take(1, 300*time.Millisecond)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			break // what is missing was refused
		}
		for _, f := range got {
			pkt := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.NoCopy)
			if f.Port != other || pkt.NetworkLayer() == nil || pkt.TransportLayer() == nil || len(pkt.TransportLayer().LayerPayload()) < 4 {
				continue
			}
			i := int(binary.BigEndian.Uint32(pkt.TransportLayer().LayerPayload())) - magic
			if i < 0 || i >= len(talks) || talks[i].up {
				continue
			}
			answer := &talks[i].ends[1-from]
			src, dst := pkt.NetworkLayer().NetworkFlow().Endpoints()
			answer.Src, _ = netip.AddrFromSlice(dst.Raw())
			answer.Dst, _ = netip.AddrFromSlice(src.Raw())
			sport, dport := pkt.TransportLayer().TransportFlow().Endpoints()
			answer.SPort, answer.DPort = binary.BigEndian.Uint16(dport.Raw()), binary.BigEndian.Uint16(sport.Raw())
			talks[i].up = true
			waiting--
		}
	}
	return nil
}

// magic makes the number of a connection unlike what else is on the wire.
const magic = 0x73680000

func number(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(magic+i)) }

// say is the next packet of one end of a connection.
func (r *router) say(t *talk, from int, length uint16) lab.Shot {
	p := t.ends[from]
	shot := r.shot(p, t.seq[from], t.seq[1-from], length)
	if head := map[bool]int{true: 20, false: 40}[p.Src.Is4()]; p.Proto == 6 {
		t.seq[from] += uint32(len(shot.Frame) - 14 - head - 20)
	}
	return shot
}
