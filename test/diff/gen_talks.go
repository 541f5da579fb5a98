// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// Conversations makes a case of several conversations at a time through the common router, which tracks and mostly translates them and asks rules about
// their states, while its configuration changes. What sides send follows TCP, so that both twins' windows hold it, with accidents between. In some cases they pass by bridges or
// tunnels (placing), where the kernel has these kinds of links.
func Conversations(seed uint64, hook string, kinds []string) *Case {
	g := &talkGen{at: newPlacing(seed, hook, kinds), rng: rand.New(rand.NewPCG(seed, 0x74_61_6c_6b)), later: rand.New(rand.NewPCG(seed, 0x6c_61_74_65)), zones: rand.New(rand.NewPCG(seed, 0x7a_6f_6e_65))}
	if chance(g.rng, 40) {
		g.tables = pick(g.rng, []string{"legacy", "nft"})
	}
	g.short = chance(g.rng, 15)
	for i := range 3 + g.rng.IntN(3) {
		t := g.newTalk(i)
		g.at.put(t, i)
		g.talks = append(g.talks, t)
	}
	out := &Case{Name: g.at.title(seed), Seed: seed, Hook: g.at.hook(hook), Slow: Excuse{IP4: true, IP6: true}, Late: chance(g.rng, 10), Strict: chance(g.later, 12)}
	g.strict = out.Strict
	switch seed % 7 {
	case 0:
		out.Tier = string(datapath.Generic)
	case 1:
		out.Tier = string(datapath.Both)
	}
	out.Steps = append(out.Steps, Step{Commands: slices.Concat(g.at.base(), g.at.placed(g.setup()), g.portRules()), Packets: g.at.hello(g.talks)})
	for range 5 { // handshakes, and the mark
		out.Steps = append(out.Steps, Step{Packets: g.turn(0)}, Step{Packets: g.turn(1)})
	}
	out.Steps = append(out.Steps, Step{Commands: []string{"sleep 50ms"}})
	dies := -1
	if chance(g.later, 30) {
		dies = g.later.IntN(4)
	}
	for i := range 4 + g.rng.IntN(5) {
		g.wild = true
		s := Step{Packets: g.turn(0)}
		if chance(g.rng, 60) {
			s.Commands, s.Immediate = g.change()
			s.Commands = g.at.placed(s.Commands)
			if do, atOnce := g.at.change(g.talks[0]); do != nil {
				s.Commands, s.Immediate = append(s.Commands, do...), s.Immediate && atOnce
			}
			s.Frozen = s.Immediate && chance(g.rng, 15)
		}
		if i == dies {
			s.Frozen, s.Killed = false, true
		}
		s.Alone = slices.ContainsFunc(s.Commands, func(do string) bool { return strings.HasPrefix(do, "ip route replace ") })
		out.Steps = append(out.Steps, s, Step{Packets: g.turn(1), Alone: s.Alone})
	}
	out.Steps = append(out.Steps, Step{Packets: g.farewell(0)}, Step{Packets: g.farewell(1)}, Step{Commands: []string{"sleep 50ms"}, Packets: g.farewell(0)}, Step{Packets: g.farewell(1)})
	return out
}

type talkGen struct {
	at     *placing
	rng    *rand.Rand
	later  *rand.Rand // for what was added later, so that the rest of a seed's meaning stays
	zones  *rand.Rand // the same, of zones
	strict bool       // nothing may differ even outside of windows
	tables string     // the kind of iptables that speaks, "legacy" or "nft"; "": nft itself
	short  bool       // timeouts that pass during the case
	wild   bool       // accidents happen
	talks  []*talking
	undo   [][]string // what changes of the configuration have to be taken back
}

// talking is a conversation under way.
type talking struct {
	talk
	udp, v6 bool
	nat     string    // "", "masquerade", "snat", "dnat", "both" or "netmap"
	next    [2]uint32 // sequence number of what the client and the server say next
	got     [2]uint32 // how much of it the other has acknowledged
	state   int
	ended   [2]bool   // a side has sent its FIN
	crosses [2]bool   // and the other's is to be under way already
	called  [2]uint32 // the sequence number of a call in the midst of it
}

const (
	talkNew = iota
	talkCalled
	talkAnswered
	talkOpen
	talkOver // reset
)

// Where talks of index i have their ends. The client is a host behind p0; the server behind p1, known by another name where its address is mapped.
func (g *talkGen) newTalk(i int) *talking {
	t := &talking{udp: chance(g.rng, 30), v6: chance(g.rng, 35)}
	t.nat = pick(g.rng, []string{"", "masquerade", "masquerade", "snat", "dnat", "dnat", "both", "both", "netmap"})
	t.port, t.dport = uint16(1000+i), 80
	name := func(four, six string) string {
		if t.v6 {
			return fmt.Sprintf(six, i+1)
		}
		return fmt.Sprintf(four, i+1)
	}
	t.client, t.server = name("10.3.0.%d", "2001:db8:3::%d"), name("10.1.2.%d", "2001:db8:1::%d")
	t.hairpin = (t.nat == "both" || t.nat == "") && chance(g.rng, 15)
	if t.hairpin {
		t.server = name("10.3.9.%d", "2001:db8:3::9:%d")
	}
	if t.nat == "dnat" || t.nat == "both" {
		t.real, t.realPort = t.server, 80
		t.server, t.dport = name("10.9.0.%d", "2001:db8:9::%d"), 8080
		if chance(g.rng, 50) {
			t.server, t.dport = t.own(0), uint16(8080+i)
		}
	}
	switch t.nat {
	case "masquerade":
		t.seen = t.own(1)
	case "snat", "both":
		t.seen = name("10.0.77.%d", "fd00::2:0:0:77:%d")
	case "netmap":
		if t.seen = name("10.77.0.%d", ""); t.v6 {
			t.nat, t.seen = "snat", name("", "fd00::2:0:0:77:%d")
		}
	}
	t.next = [2]uint32{100, 500}
	if chance(g.rng, 10) {
		t.next[0] = 0xffffff80 // wraps
	}
	t.got = t.next
	return t
}

// own is the router's address at a port.
func (t *talking) own(port int) string {
	if t.v6 {
		return addr6(port, 0, 1).String()
	}
	return fmt.Sprintf("10.0.%d.1", port)
}

func (t *talking) proto() string {
	if t.udp {
		return "udp"
	}
	return "tcp"
}

// turn is what one side of all conversations says, one after the other.
func (g *talkGen) turn(side int) (out []Packet) {
	for _, t := range g.talks {
		if t.udp {
			out = append(out, g.datagrams(t, side)...)
		} else {
			out = append(out, g.segments(t, side)...)
		}
	}
	return out
}

// how is the way of a frame into the router.
func (g *talkGen) how(port int, frame []byte) Packet {
	p := Packet{Port: port, How: WireFrame, Frame: frame}
	if chance(g.rng, 15) || len(frame) > lab.MaxWireFrame {
		p.How = SKB
	}
	return p
}

func (g *talkGen) datagrams(t *talking, side int) (out []Packet) {
	if side == 1 && t.state == talkNew {
		return nil
	}
	t.state = talkOpen
	port, f := t.flow(side == 1)
	for range 1 + g.rng.IntN(8) {
		frame := f.UDP(strings.Repeat("d", pick(g.rng, []int{0, 1, 3, 18, 400, 1400})))
		if g.wild {
			frame = g.accident(t, frame)
		}
		out = append(out, g.how(port, t.wrapped(side, frame)))
	}
	if g.wild && chance(g.rng, 15) {
		out = append(out, g.complains(t, side)...)
	}
	return out
}

// accident is what may happen to a packet on its way without that the sides come out of step.
func (g *talkGen) accident(t *talking, frame []byte) []byte {
	if inner, _ := unwrap(frame); inner != nil && t.tunnel != nil {
		return t.tunnel.wrap(g.accident(t, inner))
	}
	switch g.rng.IntN(25) {
	case 0:
		return lab.Edited(frame, lab.TTL(pick(g.rng, []byte{1, 2, 255})))
	case 1:
		if t.udp && !t.v6 {
			return lab.Edited(frame, lab.L4(6, 0, 0))
		}
	case 2:
		if t.udp {
			return lab.Edited(frame, lab.BadTransportChecksum())
		}
	case 3:
		if !t.v6 {
			return lab.Edited(frame, lab.L3(1, 0xb8), lab.FixIPChecksum())
		}
	case 4:
		if !t.v6 {
			return lab.Edited(frame, lab.FragmentField(2, 0)) // does not let itself be fragmented
		}
	}
	return frame
}

// complains is an ICMP error of a router behind one side, about what came to it last.
func (g *talkGen) complains(t *talking, side int) []Packet {
	port, f := t.flow(side == 1)
	back := f
	back.Src, back.Dst, back.SrcPort, back.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	var about []byte
	if t.udp {
		about = back.UDP("quoted")
	} else {
		about = back.TCP("PA", t.next[1-side], "quoted")
	}
	ip := about[14:]
	if t.v6 {
		f.Src = addr6(port, 0, 0x11)
		kind := pick(g.rng, []layers.ICMPv6TypeCode{layers.CreateICMPv6TypeCode(1, 4), layers.CreateICMPv6TypeCode(2, 0), layers.CreateICMPv6TypeCode(3, 0)})
		return []Packet{{Port: port, How: WireFrame, Frame: t.wrapped(side, f.Carry(&layers.ICMPv6{TypeCode: kind}, gopacket.Payload(append([]byte{0, 0, 5, 0x14}, ip...))))}}
	}
	kind := pick(g.rng, []layers.ICMPv4TypeCode{layers.CreateICMPv4TypeCode(3, 3), layers.CreateICMPv4TypeCode(3, 4), layers.CreateICMPv4TypeCode(11, 0)})
	return []Packet{{Port: port, How: WireFrame, Frame: t.wrapped(side, f.Carry(&layers.ICMPv4{TypeCode: kind, Seq: 1300}, gopacket.Payload(ip)))}}
}

// segments is what a side of a TCP connection says: what moves it on, or data, or an acknowledgement.
func (g *talkGen) segments(t *talking, side int) (out []Packet) {
	port, _ := t.flow(side == 1)
	send := func(flags string, payload string, advance uint32, edits ...lab.Edit) {
		seq := t.next[side]
		frame := t.says(side == 1, flags, seq, t.next[1-side], payload, edits...)[0].Frame
		if g.wild && len(payload) > 0 && len(edits) == 0 {
			frame = g.accident(t, frame)
		}
		out = append(out, g.how(port, frame))
		t.next[side] += advance
		if strings.Contains(flags, "A") {
			t.got[1-side] = t.next[1-side]
		}
	}
	switch {
	case t.state == talkNew && side == 0:
		out = append(out, g.how(port, t.says(false, "S", t.next[0], 0, "")[0].Frame))
		t.next[0]++
		t.state = talkCalled
		return out
	case t.state == talkCalled && side == 1:
		send("SA", "", 1)
		t.state = talkAnswered
		return out
	case t.state == talkAnswered && side == 0:
		send("A", "", 0)
		t.state = talkOpen
	case t.state != talkOpen:
		return nil
	}
	if t.crosses[1-side] { // this side's FIN knows nothing of the other's
		t.crosses[1-side], t.ended[side] = false, true
		out = append(out, g.how(port, t.says(side == 1, "FA", t.next[side], t.next[1-side]-1, "")[0].Frame))
		t.next[side]++
		return out
	}
	if t.ended[side] {
		send("A", "", 0)
		if t.ended[0] && t.ended[1] && chance(g.rng, 50) {
			t.again(g)
		}
		return out
	}
	for range 1 + g.rng.IntN(10) {
		size := t.room(pick(g.rng, []int{0, 1, 3, 511, 1400}))
		if t.next[side]-t.got[side] > 40_000 {
			size = 0
		}
		send("PA", strings.Repeat("t", size), uint32(size))
	}
	if !g.wild {
		return out
	}
	if g.strict && chance(g.later, 30) { // outside of the window, by what it says or what it has heard
		far := pick(g.later, []uint32{70_000, 1 << 20, 1<<32 - 200_000})
		if chance(g.later, 50) {
			out = append(out, g.how(port, t.says(side == 1, "PA", t.next[side]+far, t.next[1-side], "out")[0].Frame))
		} else {
			out = append(out, g.how(port, t.says(side == 1, "PA", t.next[side], t.next[1-side]+far, "out")[0].Frame))
		}
	}
	switch g.rng.IntN(14) {
	case 0: // keep-alive
		t.next[side]--
		send("A", "", 1)
	case 1: // again
		t.next[side]--
		send("PA", "t", 1)
	case 2:
		send("PA", "bad", 0, lab.BadTransportChecksum())
	case 3, 4:
		send("FA", "", 1)
		t.ended[side] = true
		t.crosses[side] = !t.ended[1-side] && chance(g.later, 40)
	case 5:
		send(pick(g.rng, []string{"R", "RA"}), "", 0)
		t.state = talkOver
	case 6:
		out = append(out, g.complains(t, side)...)
	case 7:
		if t.next[side]-t.got[side] < 40_000 {
			frame := t.says(side == 1, "PA", t.next[side], t.next[1-side], strings.Repeat("f", 1200))[0].Frame
			for _, part := range lab.Fragments(frame, 600) {
				out = append(out, Packet{Port: port, How: SKB, Frame: part})
			}
			t.next[side] += 1200
		}
	case 8: // a call of a connection that there is
		t.called[side] = t.next[side] + 70_000
		out = append(out, g.how(port, t.says(side == 1, "S", t.called[side], 0, "")[0].Frame))
	}
	if other := t.called[1-side]; other != 0 && chance(g.rng, 60) { // which is answered, though the other side has spoken on
		out = append(out, g.how(port, t.says(side == 1, "SA", t.next[side], other+1, "")[0].Frame))
		t.called[1-side] = 0
	}
	return out
}

// farewell is what leaves Linux with nothing unacknowledged, and a packet that it sees itself.
func (g *talkGen) farewell(side int) (out []Packet) {
	for _, t := range g.talks {
		if t.udp || t.state != talkOpen {
			continue
		}
		port, _ := t.flow(side == 1)
		for _, edits := range [][]lab.Edit{nil, {lab.TTL(1)}} {
			out = append(out, g.how(port, t.says(side == 1, "A", t.next[side], t.next[1-side], "", edits...)[0].Frame))
		}
	}
	return out
}

// again: both sides have ended, and the client calls from the same port once more.
func (t *talking) again(g *talkGen) {
	t.state, t.ended, t.crosses = talkNew, [2]bool{}, [2]bool{}
	t.next = [2]uint32{t.next[0] + 100_000, t.next[1] + 300_000}
	t.got = t.next
}
