// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

const (
	streamFlows = 8
	// alwaysFlows are those, from the first on, that no version drops.
	alwaysFlows = 2
	// countedFlow is the one that asks for an ipset's element that counts: Linux's.
	countedFlow = streamFlows - 1
	// streamPort is the first flow's destination port; the others follow.
	streamPort = 2000
	// burstPackets go out at once, in a window that is waited for: fewer than a veth's queue holds, so that whatever is lost is the router's doing.
	burstPackets = 5 * streamFlows
	burstEvery   = 3 * time.Millisecond
)

// packetStream sends numbered packets of several flows through a router, burst by burst, until it is stopped.
type packetStream struct {
	twin   *twin
	flows  [streamFlows]lab.Flow
	bursts []burst
	sent   [][]byte // frames by their number, which is in their payload
	done   atomic.Int64
	kick   chan struct{} // a burst that need not wait for its time
	stop   chan struct{}
	ended  chan error
}

// burst is when some packets were on their way: all after begin, and none after end, when the router had taken them and dealt with them.
type burst struct {
	begin, end time.Time
	first      int // number of its first packet
}

// begin starts to send.
func (s *packetStream) begin(t *twin, v6 bool) {
	s.twin, s.stop, s.ended = t, make(chan struct{}), make(chan error, 1)
	s.kick = make(chan struct{}, 1)
	for i := range s.flows {
		src, dst := "10.0.0.10", fmt.Sprintf("10.1.2.%d", 10+i)
		if v6 {
			src, dst = addr6(0, 0, 0x10).String(), fmt.Sprintf("2001:db8:1::%d", 10+i)
		}
		s.flows[i] = flowOf(0, src, dst)
		s.flows[i].DstPort = uint16(streamPort + i)
	}
	go func() { s.ended <- s.run() }()
}

// end stops sending and waits until the last packets have left.
func (s *packetStream) end() error {
	close(s.stop)
	if err := <-s.ended; err != nil {
		return err
	}
	return awaitPolls()
}

func (s *packetStream) run() error {
	port, far := s.twin.port(0), s.twin.far(0)
	if err := s.twin.wire.Move(far); err != nil {
		return err
	}
	in := &injection{twin: s.twin}
	var err error
	if in.ports[0].received, err = port.Received(); err != nil {
		return err
	}
	next := time.Now()
	for {
		select {
		case <-s.stop:
			return nil
		default:
		}
		shots := make([]lab.Shot, burstPackets)
		b := burst{first: len(s.sent)}
		for i := range shots {
			frame := s.frame(len(s.sent))
			s.sent = append(s.sent, frame)
			shots[i] = lab.Shot{Port: far, Frame: frame}
		}
		b.begin = time.Now()
		if err := s.twin.wire.Fire(shots...); err != nil {
			return err
		}
		if err := in.await(0, burstPackets, time.Second); err != nil {
			return err
		}
		b.end = time.Now()
		s.bursts = append(s.bursts, b)
		s.done.Add(1)
		if next = next.Add(burstEvery); next.Before(b.end) {
			next = b.end
		}
		select {
		case <-s.kick:
		case <-time.After(time.Until(next)):
		}
	}
}

// frame is packet n: flows take turns, and lengths differ.
func (s *packetStream) frame(n int) []byte {
	return s.flows[n%streamFlows].UDP(fmt.Sprintf("%08x", n) + strings.Repeat(string(rune('a'+n%26)), n*7%200))
}

// arrived is a packet of the stream that has left the router.
type arrived struct {
	number int
	ds     byte
}

// arrivals reads what left by the port that all of it is for, in order; what is not a packet of the stream as it was sent, but for hop count and DSCP, is an error.
func (s *packetStream) arrivals() (out []arrived, odd []string, err error) {
	frames, err := s.twin.capture.Take(0, 100*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range frames {
		if noise(f.Data) {
			continue
		}
		a, why := s.read(f)
		if why != "" {
			odd = append(odd, fmt.Sprintf("%s: %s", why, f))
			continue
		}
		out = append(out, a)
	}
	return out, odd, nil
}

func (s *packetStream) read(f lab.Frame) (a arrived, why string) {
	h, ok := readIP(f.Data)
	if !ok || h.proto != 17 || len(f.Data) < h.l4+16 {
		return a, "not a packet of the stream"
	}
	if _, err := fmt.Sscanf(string(f.Data[h.l4+8:h.l4+16]), "%08x", &a.number); err != nil || a.number >= len(s.sent) {
		return a, "no number of a packet"
	}
	ds := binary.BigEndian.Uint16(f.Data[h.l3:])
	a.ds = byte(ds >> 4)
	if h.version == 4 {
		a.ds = byte(ds)
		if headerSum(f.Data[h.l3:h.l4]) != 0xffff {
			return a, "a wrong header checksum"
		}
	}
	want := forwarded(Packet{Frame: s.sent[a.number]})
	if portOf(f.Port) != 1 || string(f.Data[:12]) != string(hostMAC(1, 0))+string(portMAC(1)) || withoutDS(packetOf(f.Data)) != withoutDS(want) {
		return a, fmt.Sprintf("packet %d has changed, or left elsewhere", a.number)
	}
	return a, ""
}

// flowNumber is the flow of a packet.
func flowNumber(packet int) int { return packet % streamFlows }

// bytesOf are those of the IP packets of some flows, and how many packets they are.
func (s *packetStream) bytesOf(of func(flow int) bool) (c count) {
	for n, frame := range s.sent {
		if of(flowNumber(n)) {
			c.packets++
			c.bytes += uint64(len(frame) - 14)
		}
	}
	return c
}
