// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// Values of struct virtio_net_hdr, <linux/virtio_net.h>.
const (
	vnetNeedsChecksum = 1
	vnetTCP4          = 1
	vnetTCP6          = 4
	vnetHeader        = 10
)

// withOffload puts before a TCP or UDP frame what a local sender's stack tells the device: that the checksum is left to it
// and, with GSO set, the cutting into segments too.
func withOffload(p Packet) []byte {
	hdr := make([]byte, vnetHeader, vnetHeader+len(p.Frame))
	frame := p.Frame
	v6 := binary.BigEndian.Uint16(frame[12:]) == 0x86dd
	l4, proto := 34, frame[23]
	if v6 {
		l4, proto = 54, frame[20]
	}
	hdr[0] = vnetNeedsChecksum
	binary.NativeEndian.PutUint16(hdr[6:], uint16(l4))
	at, head := 6, 8
	if proto == unix.IPPROTO_TCP {
		at, head = 16, int(frame[l4+12]>>4)*4
	}
	binary.NativeEndian.PutUint16(hdr[8:], uint16(at))
	if p.GSO > 0 {
		hdr[1] = vnetTCP4
		if v6 {
			hdr[1] = vnetTCP6
		}
		binary.NativeEndian.PutUint16(hdr[2:], uint16(l4+head))
		binary.NativeEndian.PutUint16(hdr[4:], p.GSO)
	}
	return append(hdr, frame...)
}

// vethShowsOffloads says whether an XDP program on a veth can see what a sender left to the device (struct veth_xdp_buff, Linux 6.3). On
// earlier kernels it cannot, and forwarding such packets at XDP loses it: docs/architecture.md says so, and `auto` chooses TC.
func vethShowsOffloads() bool {
	for _, load := range []func() (*btf.Spec, error){btf.LoadKernelSpec, func() (*btf.Spec, error) { return btf.LoadKernelModuleSpec("veth") }} {
		var buff *btf.Struct
		if spec, err := load(); err == nil && spec.TypeByName("veth_xdp_buff", &buff) == nil {
			return true
		}
	}
	return false
}

// withoutOffloads is a case without packets whose checksum or segments are left to the device.
func (c *Case) withoutOffloads() *Case {
	out := c.clone()
	for i := range out.Steps {
		out.Steps[i].Packets = slices.DeleteFunc(slices.Clone(out.Steps[i].Packets), func(p Packet) bool { return p.How == Offload })
	}
	return out
}

// senders are the packet sockets that a twin's frames enter by, opened when needed.
type senders map[senderKey]int

type senderKey struct {
	port    int
	offload bool
}

// send transmits a packet at the wire's end as a socket buffer. One that the link does not take, as it is longer than the
// router's end allows, is lost as on any wire.
func (s senders) send(port *lab.Port, p Packet) error {
	key := senderKey{p.Port, p.How == Offload}
	fd, ok := s[key]
	if !ok {
		var err error
		if fd, err = openSender(port, key.offload); err != nil {
			return err
		}
		s[key] = fd
	}
	frame := p.Frame
	if key.offload {
		frame = withOffload(p)
	}
	err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: port.Index})
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("sending %s: %w", p, err)
	}
	return nil
}

func (s senders) close() {
	for key, fd := range s {
		unix.Close(fd)
		delete(s, key)
	}
}

func openSender(port *lab.Port, offload bool) (fd int, err error) {
	err = port.NS.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("opening a packet socket: %w", err)
	}
	if offload {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("asking for offload headers: %w", err)
		}
	}
	return fd, nil
}
