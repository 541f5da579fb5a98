// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// Connection is a TCP connection in the direction of some packet of it.
type Connection struct {
	Src, Dst netip.AddrPort
}

// Unmarked tells of connections whose packets would be fast if Linux did not check their TCP windows. A connection is told again after
// some more packets, so losing word of one does no harm.
type Unmarked struct{ ring *ringbuf.Reader }

// Unmarked starts listening. There may be one listener.
func (d *Datapath) Unmarked() (*Unmarked, error) {
	ring, err := ringbuf.NewReader(d.objects.maps["unmarked"])
	if err != nil {
		return nil, fmt.Errorf("listening for TCP connections: %w", err)
	}
	return &Unmarked{ring}, nil
}

// Next waits for a connection; os.ErrClosed says that Close was called.
func (u *Unmarked) Next() (c Connection, err error) {
	var raw ringbuf.Record
	if err := u.ring.ReadInto(&raw); err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			err = os.ErrClosed
		}
		return c, fmt.Errorf("listening for TCP connections: %w", err)
	}
	var v bpfobj.Conn
	if _, err := binary.Decode(raw.RawSample, binary.NativeEndian, &v); err != nil {
		return c, fmt.Errorf("decoding a TCP connection: %w", err)
	}
	c.Src = netip.AddrPortFrom(connAddr(v.Is6 != 0, v.Src), hostPort(v.Sport))
	c.Dst = netip.AddrPortFrom(connAddr(v.Is6 != 0, v.Dst), hostPort(v.Dport))
	return c, nil
}

// Close ends a Next that waits.
func (u *Unmarked) Close() error { return u.ring.Close() }

func connAddr(is6 bool, words [4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	if is6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

func hostPort(be uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, be))
}
