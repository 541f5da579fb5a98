// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// An injection sends packets into a twin so that what Linux does to one does not hang on which others happen to share its receive batch.
//
// Packets that a device hands over together are received as a list, and there Linux takes the route of one for those behind it that have its
// destination and TOS, without a look at their sources (ip_route_use_hint(), net/ipv4/route.c): a packet that it drops alone may pass behind another. What
// shares a list is a matter of load, and shunt takes packets out of it. So no list here ever holds two packets to one destination from two
// sources: they are sent in windows, and a window ends when the router's ports have counted all of it as received. With the same source too, both
// packets would have come to the same verdict. IPv6 does the same (ip6_can_use_hint()), but its route hangs on the source only where there are rules
// or routes by source, and with those it takes no hint.
type injection struct {
	twin    *twin
	ports   [Ports]portState
	shots   []lab.Shot
	sources map[hintKey]netip.Addr // of the packets in this window
}

// portState is what sending needs to know of one of the router's ports.
type portState struct {
	up       bool
	longest  int    // bytes of a frame that the port takes
	received uint64 // frames, when all that was sent has been received
}

// hintKey is what packets have in common that may share a route.
type hintKey struct {
	port int
	dst  netip.Addr
	tos  byte
}

const (
	// tick is longer than one of the kernel's: 10 ms at most.
	tick = 12 * time.Millisecond
	// windowSize is below what a veth's queue holds, 256.
	windowSize = 128
	// receivedWithin bounds the wait for a window's end: frames may be lost where shunt attaches just then, as that empties a veth's queue.
	receivedWithin = 100 * time.Millisecond
	// segmentsWithin is the same for a packet that may arrive whole or cut, so that its count is not known.
	segmentsWithin = 3 * time.Millisecond
)

// inject sends packets in order. Those for a port that is down, and those longer than it takes, are lost on any wire, and here before it.
func (t *twin) inject(packets []Packet) error { return t.injectBy((*injection).add, packets) }

func (t *twin) injectBy(send func(*injection, Packet) error, packets []Packet) error {
	in := &injection{twin: t, shots: make([]lab.Shot, 0, windowSize), sources: map[hintKey]netip.Addr{}}
	if open, err := in.open(); err != nil || !open {
		return err
	}
	for _, p := range packets {
		if err := send(in, p); err != nil {
			return err
		}
	}
	return in.end()
}

// open reads the state of the ports; false: none is up.
func (in *injection) open() (bool, error) {
	var far []*lab.Port
	for i := range Ports {
		link, err := in.twin.dut.Netlink().LinkByIndex(in.twin.port(i).Index)
		if err != nil {
			return false, fmt.Errorf("reading %s: %w", in.twin.port(i), err)
		}
		const vlanTag = 4
		a := link.Attrs()
		in.ports[i] = portState{up: a.Flags&net.FlagUp != 0 && a.RawFlags&unix.IFF_RUNNING != 0, longest: a.MTU + 14 + vlanTag}
		if in.ports[i].received, err = in.twin.port(i).Received(); err != nil {
			return false, err
		}
		if in.ports[i].up {
			far = append(far, in.twin.far(i))
		}
	}
	if len(far) == 0 {
		return false, nil
	}
	return true, in.twin.wire.Move(far...)
}

// add sends a packet, or puts it into the window to be sent with others.
func (in *injection) add(p Packet) error {
	port := &in.ports[p.Port]
	if !port.up || len(p.Frame) > port.longest && p.GSO == 0 {
		return nil
	}
	if moved := in.twin.stations.moves(p); moved || teaches(p) || in.twin.stations != nil && joins(p) {
		return in.teach(p)
	}
	if in.conflicts(p) {
		if err := in.end(); err != nil {
			return err
		}
		in.conflicts(p) // the first of the new window
	}
	return in.put(p)
}

// single sends a packet alone. Linux takes all packets of a receive batch through prerouting before it forwards the first, so one that ends a translated connection, because the way out has changed
// (nf_nat_oif_changed()), does so for as many behind it as happened to arrive with it; and shunt takes packets out of a batch.
func (in *injection) single(p Packet) error {
	port := &in.ports[p.Port]
	if !port.up || len(p.Frame) > port.longest && p.GSO == 0 {
		return nil
	}
	in.twin.stations.moves(p)
	return in.teach(p)
}

// teach sends a packet that the router learns something from, when all before it have been dealt with, and waits until it has been, too.
func (in *injection) teach(p Packet) error {
	if err := in.end(); err != nil {
		return err
	}
	in.waitForClock(p)
	if err := awaitPolls(); err != nil {
		return err
	}
	if err := in.put(p); err != nil {
		return err
	}
	if err := in.end(); err != nil {
		return err
	}
	return awaitPolls()
}

// awaitPolls waits until every poll under way has ended, on whichever processor: packets that have been counted as received may still be in one. Polls are
// read-side sections of RCU, and the call waits for those.
func awaitPolls() error {
	const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL, <linux/membarrier.h>
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		return fmt.Errorf("waiting for the kernel's polls (membarrier): %w", errno)
	}
	return nil
}

// put sends a packet that may go now, or puts it into the window.
func (in *injection) put(p Packet) error {
	if p.How == WireFrame {
		in.shots = append(in.shots, lab.Shot{Port: in.twin.far(p.Port), Frame: p.Frame})
		if len(in.shots) == cap(in.shots) {
			return in.end()
		}
		return nil
	}
	if err := in.end(); err != nil {
		return err
	}
	if err := in.twin.senders.send(in.twin.far(p.Port), p); err != nil {
		return err
	}
	if err := awaitBacklog(); err != nil {
		return err
	}
	if p.GSO > 0 { // a port with a program gets the segments, others the whole
		return in.await(p.Port, 1+len(p.Frame)/int(p.GSO), segmentsWithin)
	}
	return in.await(p.Port, 1, receivedWithin)
}

// end sends the window and waits until all of it has been received.
func (in *injection) end() error {
	if len(in.shots) == 0 {
		return nil
	}
	if err := in.twin.wire.Fire(in.shots...); err != nil {
		return err
	}
	for i := range Ports {
		n := 0
		for _, s := range in.shots {
			if s.Port == in.twin.far(i) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if err := in.await(i, n, receivedWithin); err != nil {
			return err
		}
	}
	in.shots = in.shots[:0]
	clear(in.sources)
	return nil
}

// await waits until a port has received n frames more, or has had time to.
func (in *injection) await(port, n int, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Microsecond) {
		now, err := in.twin.port(port).Received()
		if err != nil {
			return err
		}
		if now >= in.ports[port].received+uint64(n) || time.Now().After(deadline) {
			in.ports[port].received = now
			return nil
		}
	}
}

// waitForClock lets a tick pass between two ARP packets of one sender: within a tick Linux heeds the first of them (arp_process() and locktime).
func (in *injection) waitForClock(p Packet) {
	at := 12 + len(tagsOf(p.Frame))
	if len(p.Frame) < at+30 || binary.BigEndian.Uint16(p.Frame[at:]) != 0x0806 {
		return
	}
	sender := netip.AddrFrom4([4]byte(p.Frame[at+16:]))
	time.Sleep(time.Until(in.twin.arps[sender].Add(tick)))
	in.twin.arps[sender] = time.Now()
}

// teaches says whether a packet may change what the router knows of neighbours and paths: fast packets behind it could overtake it.
func teaches(p Packet) bool {
	h, ok := readIP(p.Frame)
	if !ok {
		return true // ARP, for one
	}
	t := h.icmpType(p.Frame)
	return h.version == 4 && (t == 3 || t == 5) || h.version == 6 && (t == 2 || t >= 133 && t <= 137)
}

// joins says whether a packet may be a report or query of group membership, which a bridge learns from.
func joins(p Packet) bool {
	h, ok := readIP(p.Frame)
	return ok && h.dst.IsMulticast() && (h.proto == 2 || h.proto == 0 || h.proto == 58)
}

// conflicts notes a packet's source in the window, and says whether there is another one for its destination.
func (in *injection) conflicts(p Packet) bool {
	h, ok := readIP(p.Frame)
	if !ok || h.version != 4 {
		return false
	}
	key := hintKey{p.Port, h.dst, p.Frame[h.l3+1]}
	if src, ok := in.sources[key]; ok {
		return src != h.src
	}
	in.sources[key] = h.src
	return false
}
