// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// linux/sock_diag.h, packet_diag.h, xdp_diag.h, inet_diag.h
const (
	sockDiagByFamily = 20

	packetMsg        = 16 // struct packet_diag_msg
	packetInfo       = 0
	packetFilter     = 7
	packetShowInfo   = 1
	packetShowFilter = 1 << 5

	xdpMsg      = 16 // struct xdp_diag_msg
	xdpInfo     = 1
	xdpShowInfo = 1

	inetMsg         = 72 // struct inet_diag_msg
	inetSockopt     = 22
	inetTransparent = 1 << 5
	inetSource      = 8 // idiag_state and its neighbours, two ports
	tcpEstablished  = 1
	tcpListen       = 10
)

// readSockets finds sockets that see or take forwarded packets. None of them announces itself, so /proc/net/protocols is
// looked at first: it says in one small file whether there is any socket of a kind.
func (r *Reader) readSockets(n *model.Network) {
	count, err := r.socketCounts()
	if err != nil {
		r.fault(Sockets, "/proc/net/protocols", err)
	}
	known := func(name string) bool { c, ok := count[name]; return err == nil && (!ok || c == 0) }
	s := model.Sockets{}
	if !known("PACKET") {
		s.Packet = r.readPacketSockets()
	}
	if !known("XDP") {
		s.XDP = r.readXDPSockets()
	}
	s.Transparent, s.Locals = r.readConnected(n.Sockets, count)
	n.Sockets = s
}

// socketCounts reads the number of sockets of each protocol in this namespace.
func (r *Reader) socketCounts() (map[string]int, error) {
	text, err := r.k.file("/proc/net/protocols")
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 3 {
			if c, err := strconv.Atoi(f[2]); err == nil {
				out[f[0]] = c
			}
		}
	}
	return out, nil
}

// timeWait says whether some TCP connection of this namespace is in TIME_WAIT: early demultiplexing finds it for another minute, and it is no socket that is counted.
func (r *Reader) timeWait() bool {
	text, err := r.k.file("/proc/net/sockstat")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if i := slices.Index(f, "tw"); i >= 0 && i+1 < len(f) {
			return f[i+1] != "0"
		}
	}
	return true // where it does not say so there can be
}

func (r *Reader) readPacketSockets() (out []model.PacketSocket) {
	fixed := make([]byte, 20) // struct packet_diag_req
	fixed[0] = unix.AF_PACKET
	put32(fixed, 8, packetShowInfo|packetShowFilter)
	err := r.ask("packet sockets", func() error {
		out = nil
		return r.k.netlink(request{proto: unix.NETLINK_SOCK_DIAG, typ: sockDiagByFamily, dump: true, body: fixed}, func(_ uint16, b []byte) error {
			s, running, err := decodePacketSocket(b)
			if err == nil && running {
				out = append(out, s)
			}
			return err
		})
	})
	if err != nil {
		// Their devices and filters are unknown: /proc/net/packet still says that there are some.
		r.fault(Sockets, "packet sockets (packet_diag)", err)
		return nil
	}
	for i := range out {
		if out[i].Harmless && !out[i].OfBridge {
			continue
		}
		name, ok := r.owners[out[i].Inode]
		if !ok {
			name, _ = r.k.owner(out[i].Inode)
			if len(r.owners) > 1024 {
				clear(r.owners)
			}
			r.owners[out[i].Inode] = name
		}
		out[i].Process = name
	}
	slices.SortFunc(out, func(a, b model.PacketSocket) int { return int(a.Inode) - int(b.Inode) })
	return out
}

// decodePacketSocket says of a packet socket what it listens to; running is false for one that is bound to nothing.
func decodePacketSocket(b []byte) (s model.PacketSocket, running bool, err error) {
	if len(b) < packetMsg {
		return s, false, errors.New("packet socket message too short")
	}
	s.Protocol = get16(b, 2) // the kernel converts it to host order
	s.Inode = uint64(get32(b, 4))
	running = true
	var filter []byte
	_, err = attrs(b[packetMsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case packetInfo:
			if info := raw(ad); len(info) >= 24 {
				s.Index = int(get32(info, 0))
				running = get32(info, 20)&1 != 0
			}
		case packetFilter:
			filter = raw(ad)
		}
		return true
	})
	// Protocol 0 receives nothing; a protocol handler of one ethertype sees packets before routing, so IPv4 and IPv6 count.
	running = running && s.Protocol != 0
	s.Harmless = harmlessProtocol(s.Protocol) || filter != nil && filterHarmless(filter, b[1], s.Protocol, routedPackets)
	// One of a single protocol comes after the bridge (rx_handler), which keeps what it forwards.
	s.OfBridge = s.Protocol == unix.ETH_P_ALL && (filter == nil || !filterHarmless(filter, b[1], s.Protocol, bridgedPackets))
	return s, running, err
}

// harmlessProtocol says whether packets of an ethertype go to Linux anyway.
func harmlessProtocol(proto uint16) bool {
	switch proto {
	case unix.ETH_P_ALL, unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_8021Q, unix.ETH_P_8021AD:
		return false
	}
	// Numbers below 1536 are the kernel's own (802.2 frames, loopback …); those that mean "all" are above.
	return true
}

func (r *Reader) readXDPSockets() (out []int) {
	fixed := make([]byte, 20) // struct xdp_diag_req
	fixed[0] = unix.AF_XDP
	put32(fixed, 8, xdpShowInfo)
	err := r.ask("AF_XDP sockets", func() error {
		out = nil
		return r.k.netlink(request{proto: unix.NETLINK_SOCK_DIAG, typ: sockDiagByFamily, dump: true, body: fixed}, func(_ uint16, b []byte) error {
			if len(b) < xdpMsg {
				return errors.New("xdp socket message too short")
			}
			_, err := attrs(b[xdpMsg:], func(ad *netlink.AttributeDecoder) bool {
				if info := raw(ad); ad.Type() == xdpInfo && len(info) >= 8 {
					if index := int(get32(info, 0)); index != 0 { // bound
						out = append(out, index)
					}
				}
				return true
			})
			return err
		})
	})
	if err != nil {
		r.fault(Sockets, "AF_XDP sockets (xdp_diag)", err)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// transparentShare is the part of time, one over it, that looking at connected sockets may take: a proxy can have a
// hundred thousand sockets.
const transparentShare = 50

// manyLocals is how many addresses of sockets are told apart. Who has more has them by IP_TRANSPARENT.
const manyLocals = 4096

// readConnected looks for sockets that early demultiplexing can find, which are connected TCP and UDP sockets: for IP_TRANSPARENT, and for their own
// addresses. A listening one, or one without a remote address, is found only through a netfilter rule, which is a reason by itself.
func (r *Reader) readConnected(last model.Sockets, count map[string]int) (transparent bool, locals []netip.Addr) {
	if r.now().Sub(r.transparentRead) < transparentShare*r.transparentCost {
		return last.Transparent, last.Locals
	}
	start := r.now()
	found := map[netip.Addr]bool{}
	waiting := r.timeWait()
	for _, p := range []struct {
		proto  byte
		name   string
		states uint32
	}{{unix.IPPROTO_TCP, "TCP", 0xffffffff &^ (1 << tcpListen)}, {unix.IPPROTO_UDP, "UDP", 1 << tcpEstablished}} {
		for _, f := range []struct {
			af     byte
			suffix string
		}{{unix.AF_INET, ""}, {unix.AF_INET6, "v6"}} {
			if c, ok := count[p.name+f.suffix]; ok && c == 0 && !(waiting && p.proto == unix.IPPROTO_TCP) {
				continue
			}
			fixed := make([]byte, 56) // struct inet_diag_req_v2
			fixed[0], fixed[1] = f.af, p.proto
			put32(fixed, 4, p.states)
			err := r.ask("sockets", func() error {
				return r.k.netlink(request{proto: unix.NETLINK_SOCK_DIAG, typ: sockDiagByFamily, dump: true, body: fixed}, func(_ uint16, b []byte) error {
					local, isTransparent, err := decodeConnected(b)
					transparent = transparent || isTransparent
					if local.IsValid() && !local.IsUnspecified() && !local.IsLoopback() && !local.IsLinkLocalUnicast() && len(found) <= manyLocals {
						found[local] = true
					}
					return err
				})
			})
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, os.ErrNotExist) {
				r.fault(Sockets, p.name+" sockets", err)
			}
		}
	}
	r.transparentRead = r.now()
	r.transparentCost = r.transparentRead.Sub(start)
	if len(found) > manyLocals {
		return true, nil
	}
	return transparent, slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}

// decodeConnected reads a socket's own address, and whether it has IP_TRANSPARENT.
func decodeConnected(b []byte) (local netip.Addr, transparent bool, err error) {
	if len(b) < inetMsg {
		return local, false, errors.New("socket message too short")
	}
	switch src := b[inetSource:]; b[0] { // idiag_family
	case unix.AF_INET:
		local = netip.AddrFrom4([4]byte(src))
	case unix.AF_INET6:
		local = netip.AddrFrom16([16]byte(src)).Unmap()
	}
	_, err = attrs(b[inetMsg:], func(ad *netlink.AttributeDecoder) bool {
		if opt := raw(ad); ad.Type() == inetSockopt && len(opt) > 0 && opt[0]&inetTransparent != 0 {
			transparent = true
		}
		return true
	})
	return local, transparent, err
}

// now is the clock; a replay has none and reads everything once.
func (r *Reader) now() time.Time { return time.Now() }
