// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// learned are Linux's forwarding databases before and after a step's packets; what they agree on held for all of these.
type learned struct {
	before, after fdb
	host, onto    bool // does the data path route what comes by a bridge, and enter bridges from routes?
	tunnels       bool // and is it at the devices of tunnels?
}

// at says whether an address was known behind a port all the time.
func (l learned) at(mac []byte, port int) bool {
	return l.before.at(mac, portName(port)) && l.after.at(mac, portName(port))
}

// plainBridged says whether a frame by itself is a bridge's everyday business: an IP packet, whatever is in it, from one host to another.
func plainBridged(p Packet) bool {
	f := p.Frame
	if p.How == Offload || p.Merge || len(f) < 14+20 || len(f) > lab.MaxWireFrame || f[0]&1 != 0 || f[6]&1 != 0 {
		return false
	}
	t := binary.BigEndian.Uint16(f[12:])
	return t == 0x0800 || t == 0x86dd
}

// plainShown says whether br_netfilter has nothing to say to a frame but that its header is right: as to one for the router.
func plainShown(p Packet) bool {
	p.Frame = slices.Clone(p.Frame)
	copy(p.Frame, portMAC(p.Port))
	return plain(p)
}

// mustBridge says whether the configuration leaves shunt no excuse for a frame from one port of a bridge to another.
func (x *Excuse) mustBridge(p Packet, out int) bool {
	v6 := p.Frame[12] == 0x86
	return !x.Bridge && !(x.IP4 && !v6) && !(x.IP6 && v6) && !slices.Contains(x.In, p.Port) && !slices.Contains(x.Out, out)
}

// expectBridged adds those frames that had to be bridged fast: which left Linux as they were by one port only, behind which their destination was known, as their
// source was behind the port that they came by.
func (e *expectation) expectBridged(x *Excuse, packets []Packet, linux *output, l learned, allowed func(p Packet, out int) bool) {
	exits := map[string][]int{}
	for i := range Ports {
		for _, f := range linux[i] {
			if !slices.Contains(exits[string(f)], i) {
				exits[string(f)] = append(exits[string(f)], i)
			}
		}
	}
	for _, p := range packets {
		out := exits[string(p.Frame)]
		if !plainBridged(p) || x.Shown && !plainShown(p) || len(out) != 1 || out[0] == p.Port || !x.mustBridge(p, out[0]) || !allowed(p, out[0]) {
			continue
		}
		if l.at(p.Frame[6:12], p.Port) && l.at(p.Frame[:6], out[0]) {
			e.packets = append(e.packets, p)
			e.frames[packetOf(p.Frame)] = true
		}
	}
}

// routed is a packet for the router as a bridge's host sends it, with the address that its port would have if it were no bridge's, so that the
// model of routed packets holds for it; ok is false where it is certain that it need not be fast.
func (x *Excuse) routed(p Packet, l learned) (_ Packet, ok bool) {
	if !x.bridges(p.Port) || len(p.Frame) < 14 {
		return p, true
	}
	if string(p.Frame[:6]) != string(bridgeMAC) { // by the port's own address it goes to the router as well, where few would send it
		return p, false
	}
	p.Frame = slices.Clone(p.Frame)
	copy(p.Frame, portMAC(p.Port))
	return p, l.host && !x.Bridge && l.at(p.Frame[6:12], p.Port)
}

// leaves says whether a routed packet can be fast on its way out: into a bridge only to an address that it knows, and not back into the bridge
// that it came from.
func (x *Excuse) leaves(p Packet, out int, mac string, l learned) bool {
	return !x.bridges(out) || l.onto && !x.Bridge && !x.bridges(p.Port) && l.at([]byte(mac), out)
}

// bridges says whether a port is one of the bridge's.
func (x *Excuse) bridges(port int) bool { return slices.Contains(x.Bridged, port) }
