// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// UDP ports of VXLAN: IANA's (RFC 7348), and the one that Linux had before and Flannel still takes.
const (
	vxlanPort   = 4789
	flannelPort = 8472
)

// tunnel is one direction of a VXLAN tunnel: what a frame is wrapped into.
type tunnel struct {
	port  int      // of the router, at which the other end's packets come
	outer lab.Flow // from the other end
	vni   uint32
}

// wrap puts a frame into the tunnel.
func (t tunnel) wrap(inner []byte) []byte {
	head := make([]byte, 8)
	head[0] = 0x08 // the VNI is valid
	binary.BigEndian.PutUint32(head[4:], t.vni<<8)
	return t.outer.UDP(string(slices.Concat(head, inner)))
}

// carry makes packets of frames that come by the tunnel, each by wire and as a socket buffer; edits are of the outer packet.
func (t tunnel) carry(frames [][]byte, edits ...lab.Edit) (out []Packet) {
	for _, f := range frames {
		out = append(out, in(t.port, lab.Edited(t.wrap(f), edits...))...)
	}
	return out
}

// unwrap gives the frame in a whole VXLAN packet, and where it begins; nil if it is none.
func unwrap(f []byte) (inner []byte, at int) {
	h, ok := readIP(f)
	if !ok || h.proto != 17 || !h.first || len(f) < h.l4+8+8+14 {
		return nil, 0
	}
	if port := binary.BigEndian.Uint16(f[h.l4+2:]); port != vxlanPort && port != flannelPort {
		return nil, 0
	}
	return f[h.l4+16:], h.l4 + 16
}

// Ends of the tunnels that cases by hand make: the router's device and the other host's.
var (
	vtepMAC = net.HardwareAddr{0x02, 0, 0, 0, 0xaa, 0x01}
	peerMAC = net.HardwareAddr{0x02, 0, 0, 0, 0xaa, 0x02}
)

// nodeAt is the tunnel to host n at a port of the common router.
func nodeAt(port, n int, vni uint32, udp uint16) tunnel {
	f := flowOf(port, "10.0.0.10", "10.0.0.1")
	f.SrcMAC = hostMAC(port, n)
	f.Src, f.Dst = netip.AddrFrom4([4]byte{10, 0, byte(port), byte(10 + n)}), netip.AddrFrom4([4]byte{10, 0, byte(port), 1})
	f.SrcPort, f.DstPort = 50000, udp
	return tunnel{port: port, outer: f, vni: vni}
}

// fromPod is a flow from a pod behind the other end of a tunnel.
func fromPod(src, dst string) lab.Flow {
	f := flowOf(0, src, dst)
	f.SrcMAC, f.DstMAC = peerMAC, vtepMAC
	return f
}

// withinTunnel normalises what is in a tunnel, and the outer checksum over it where that changed.
func withinTunnel(f []byte, own *addresses) []byte {
	inner, at := unwrap(f)
	if inner == nil {
		return f
	}
	same := normalise(inner, own)
	if slices.Equal(same, inner) {
		return f
	}
	return lab.Edited(slices.Concat(f[:at], same), lab.L4(6, 0, 0))
}

// arpRequest asks from one end of a tunnel for an address behind the other.
func arpRequest(from net.HardwareAddr, src, dst netip.Addr) []byte {
	return lab.Packet(
		&layers.Ethernet{SrcMAC: from, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
			SourceHwAddress: from, SourceProtAddress: src.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: dst.AsSlice()},
		gopacket.Payload(nil))
}
