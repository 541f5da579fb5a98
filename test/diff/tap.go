// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tap is a packet socket in the router: what tcpdump or a DHCP client opens.
type tap struct {
	name string // what it listens to
	fd   int
}

// tapBuffer holds what a listener hears between two looks; what overflows it is an error, not a difference.
const tapBuffer = 16 << 20

// listen reads "any" or a device's name, "all" or a protocol's number in hex, and a filter as tcpdump has it, which may be missing.
func (t *twin) listen(args string) (tap, error) {
	f := strings.Fields(args)
	if len(f) < 2 {
		return tap{}, fmt.Errorf("listen %q: want a port and a protocol", args)
	}
	index := 0
	if f[0] != "any" {
		link, err := t.dut.Netlink().LinkByName(f[0])
		if err != nil {
			return tap{}, fmt.Errorf("listening %s: %w", args, err)
		}
		index = link.Attrs().Index
	}
	proto := uint16(unix.ETH_P_ALL)
	if f[1] != "all" {
		if _, err := fmt.Sscanf(f[1], "%x", &proto); err != nil {
			return tap{}, fmt.Errorf("listen %q: %w", args, err)
		}
	}
	filter, err := compileFilter(strings.Join(f[2:], " "))
	if err != nil {
		return tap{}, err
	}
	wire := binary.NativeEndian.Uint16([]byte{byte(proto >> 8), byte(proto)})
	fd := -1
	err = t.dut.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer); err != nil {
			return err
		}
		if len(filter) > 0 {
			if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
				return err
			}
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: wire, Ifindex: index})
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return tap{}, fmt.Errorf("listening %s: %w", args, err)
	}
	return tap{name: args, fd: fd}, nil
}

// compileFilter has tcpdump translate a filter: what a listener has in real life, and what shunt has to understand.
func compileFilter(text string) ([]unix.SockFilter, error) {
	if text == "" {
		return nil, nil
	}
	out, err := exec.Command("tcpdump", "-y", "EN10MB", "-ddd", text).Output()
	if err != nil {
		return nil, fmt.Errorf("compiling the filter %q: %w", text, err)
	}
	var filter []unix.SockFilter
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n")[1:] {
		var n [4]uint64
		words := strings.Fields(line)
		if len(words) != len(n) {
			return nil, fmt.Errorf("compiling the filter %q: tcpdump says %q", text, line)
		}
		for i, w := range words {
			if n[i], err = strconv.ParseUint(w, 10, 32); err != nil {
				return nil, fmt.Errorf("compiling the filter %q: %w", text, err)
			}
		}
		filter = append(filter, unix.SockFilter{Code: uint16(n[0]), Jt: uint8(n[1]), Jf: uint8(n[2]), K: uint32(n[3])})
	}
	return filter, nil
}

func (s tap) close() error { return unix.Close(s.fd) }

// hearing is what listeners heard: frames in order, by listener, device and direction.
type hearing map[string][][]byte

// hear adds what the twin's listeners have heard since the last look. What the router says by timers is left out, as it is of what leaves.
func (t *twin) hear(to hearing) error {
	buf := make([]byte, 1<<16)
	for _, s := range t.taps {
		for {
			n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return fmt.Errorf("hearing what %q does: %w", s.name, err)
			}
			at, ok := from.(*unix.SockaddrLinklayer)
			if !ok || noise(buf[:n]) {
				continue
			}
			way := "in"
			if at.Pkttype == unix.PACKET_OUTGOING {
				way = "out"
			}
			key := fmt.Sprintf("%s, device %d, %s", s.name, at.Ifindex, way)
			to[key] = append(to[key], slices.Clone(buf[:n]))
		}
		stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return fmt.Errorf("asking what %q lost: %w", s.name, err)
		}
		if stats.Drops > 0 {
			return fmt.Errorf("%q lost %d frames: its buffer is too small", s.name, stats.Drops)
		}
	}
	return nil
}

// compareHearing lists the differences between what listeners heard in the two twins.
func compareHearing(linux, shunt hearing, own *addresses) []string {
	var diffs []string
	keys := slices.Concat(slices.Collect(maps.Keys(linux)), slices.Collect(maps.Keys(shunt)))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		diffs = append(diffs, compareFrames("heard by listener "+key, linux[key], shunt[key], own)...)
	}
	return diffs
}

// socketsWithin is when shunt knows of a socket or program that no event and no guard word tells of: each beat looks for traces of it, of which there are twenty a second. The
// rig keeps the processors busy.
const socketsWithin = 400 * time.Millisecond

// othersWithin is the same of other sockets than packet sockets, which it looks at once a second.
const othersWithin = 1200 * time.Millisecond

// listens says how long shunt may take to know what a step does with sockets, or attaches, of which nothing tells it; 0 for other steps.
func (s *Step) listens() (within time.Duration) {
	for _, cmd := range s.Commands {
		switch word, _, _ := strings.Cut(cmd, " "); word {
		case "listen", "unlisten", "foreign":
			within = max(within, socketsWithin)
		case "socket":
			within = max(within, othersWithin)
		}
	}
	return within
}

// comparable says whether listeners hear the same whatever the machine does: not of packets that may arrive merged, or cut.
func (s *Step) comparable() bool {
	return !slices.ContainsFunc(s.Packets, func(p Packet) bool { return p.Merge || p.How == Offload })
}

// listenersAgree compares what listeners heard since the last step.
func (r *run) listenersAgree(n int, s *Step, out *[2]output) error {
	if len(r.linux.taps) == 0 {
		return nil
	}
	heard := [2]hearing{{}, {}}
	hear := func() error { return both(func(i int) error { return r.twin(i).hear(heard[i]) }) }
	if err := hear(); err != nil || !s.comparable() {
		return err
	}
	if len(compareHearing(heard[0], heard[1], r.own)) > 0 { // as for what leaves: a busy machine may be late
		if err := both(func(i int) error { return r.twin(i).collect(&out[i], 50*r.rig.Quiet) }); err != nil {
			return err
		}
		if err := hear(); err != nil {
			return err
		}
	}
	for key, frames := range heard[0] {
		name, _, _ := strings.Cut(key, ", device")
		r.res.Heard[name] += len(frames)
	}
	for _, d := range compareHearing(heard[0], heard[1], r.own) {
		r.differ("step %d, %s", n+1, d)
	}
	return nil
}

// deaf are the listeners of a case that heard nothing: what they would have seen is not known.
func (c *Case) deaf(heard map[string]int) (out []string) {
	for _, s := range c.Steps {
		for _, cmd := range s.Commands {
			if what, ok := strings.CutPrefix(cmd, "listen "); ok && heard[what] == 0 {
				out = append(out, what)
			}
		}
	}
	return out
}
