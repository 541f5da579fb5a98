// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/shuntnet/shunt/internal/api"
)

// explainSamples is how many packets of a case `shunt explain` is asked about.
const explainSamples = 2

// headers are the bytes of an Ethernet and an IPv6 header.
const headers = 14 + 40

// compareExplain asks shunt what it would do with some of the packets and then sends
// each alone: the counter that rises has to be that of the reason given.
func (r *run) compareExplain() error {
	if r.c.Slow.Tagged {
		return nil // programs sit on devices that packets cannot be sent to by themselves
	}
	last := r.c.Steps[len(r.c.Steps)-1].Packets
	stride := max(1, len(last)/explainSamples)
	for i := stride - 1; i < len(last); i += stride {
		p := last[i]
		if p.How == Offload || len(p.Frame) > 1500 {
			continue
		}
		said, err := r.shunt.daemon.explain(p.Port, p.Frame)
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Kind == api.KindUnsupported && len(p.Frame) < headers {
			continue // the kernel tests no TC program on less
		}
		if err != nil {
			return err
		}
		before, err := r.shunt.daemon.status()
		if err != nil {
			return err
		}
		var out output
		if err := r.shunt.inject([]Packet{p}); err != nil {
			return err
		}
		if err := r.shunt.collect(&out, r.rig.Quiet); err != nil {
			return err
		}
		now, err := r.shunt.daemon.status()
		if err != nil {
			return err
		}
		seen := newCoverage()
		seen.add(before, now)
		rose := map[string]uint64{}
		var total uint64
		for key, n := range seen.packets {
			if n > 0 {
				rose[key] = n
				total += n
			}
		}
		if said.Reason == "watchdog" || said.Reason == "stale" {
			continue // true of that moment only
		}
		r.res.Explained++
		if total == 0 && !said.Fast || rose["xdp watchdog"]+rose["tc watchdog"]+rose["xdp stale"]+rose["tc stale"] > 0 {
			continue // no program there, or one that was off just then
		}
		if inner, _ := unwrap(p.Frame); inner != nil && r.c.Slow.Tunnel {
			continue // what was in it may have been counted behind the tunnel
		}
		if seen.packets["xdp "+said.Reason]+seen.packets["tc "+said.Reason] == 0 {
			r.differ("explain says %q about %s, but the counters that rose are %v", said.Reason, p, rose)
		}
		switch {
		case said.Fast && plain(p):
			r.checkEgress(p, said.Egress, &out, before, now, func(f []byte) bool {
				ip := packetOf(f)
				return ip != "" && withoutNAT(withoutDS(ip)) == withoutNAT(withoutDS(forwarded(p)))
			})
		case said.Fast && plainBridged(p) && string(p.Frame[:6]) != string(bridgeMAC):
			r.checkEgress(p, said.Egress, &out, before, now, func(f []byte) bool {
				if bytes.HasPrefix(p.Frame, f) { // br_netfilter cuts padding off
					return true
				}
				was, is := packetOf(p.Frame), packetOf(f) // and translates
				return is != "" && string(f[:14]) == string(p.Frame[:14]) && strings.HasPrefix(withoutNAT(withoutDS(was)), withoutNAT(withoutDS(is)))
			})
		}
	}
	return nil
}

// checkEgress compares the way out that explain named with the port that the packet left by, as what same knows, and the bytes counted with its length.
func (r *run) checkEgress(p Packet, egress string, out *output, before, now status, same func(frame []byte) bool) {
	left, size := "nowhere", 0
	for _, longer := range []time.Duration{0, 50} {
		if err := r.shunt.collect(out, longer*r.rig.Quiet); err != nil || left != "nowhere" {
			break
		}
		for i := range Ports {
			for _, f := range out[i] {
				inner, _ := unwrap(f)
				switch {
				case same(f):
					left, size = portName(i), len(f)
					if now.onBridge(egress, left) && f[12] == 0x81 { // the tag is beside what is counted
						size -= 4
					}
				case inner != nil && same(inner) && now.tunnel(egress):
					left, size = egress, len(inner)
				}
			}
		}
	}
	if left == "nowhere" && now.tunnel(egress) {
		return // what the device makes of it is its own affair: its remote end may be unknown
	}
	if left != egress && now.bridge(left) != egress && !now.onBridge(egress, left) {
		r.differ("explain says that %s leaves by %s, it left by %s", p, egress, left)
	}
	if bytes := now.fastBytes() - before.fastBytes(); bytes != uint64(size) {
		r.differ("%s left with %d bytes, %d were counted", p, size, bytes)
	}
}

// bridge is that of a port, which is what explain names for what is routed to a bridge; Linux then finds the port.
func (s status) bridge(port string) string {
	for _, i := range s.Interfaces {
		if i.Name == port && i.Bridge != nil {
			return i.Bridge.Name
		}
	}
	return ""
}

// onBridge says whether a device is a VLAN of the bridge that a port belongs to, by its name.
func (s status) onBridge(device, port string) bool {
	br := s.bridge(port)
	return br != "" && strings.HasPrefix(device, br+".")
}

// tunnel says whether a device encapsulates: what it sends leaves by another.
func (s status) tunnel(device string) bool {
	for _, i := range s.Interfaces {
		if i.Name == device {
			return i.Kind == "vxlan"
		}
	}
	return false
}

func (s status) fastBytes() (n uint64) {
	for _, i := range s.Interfaces {
		n += i.Packets.Bytes
	}
	return n
}
