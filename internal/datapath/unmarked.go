// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Connection is a TCP connection in the direction of some packet of it.
type Connection struct {
	Src, Dst netip.AddrPort
	Zone     uint16          // where packets of that direction are looked up,
	ZoneDir  ruleset.ZoneDir // which is so for these directions; 0 for both
}

// Unmarked tells of connections whose packets would be fast if Linux did not check their TCP windows. A connection is told again after
// some more packets, so losing word of one does no harm.
type Unmarked struct {
	ring *ringbuf.Reader
	raw  ringbuf.Record
}

// Unmarked starts listening. There may be one listener.
func (d *Datapath) Unmarked() (*Unmarked, error) {
	ring, err := ringbuf.NewReader(d.objects.maps["unmarked"])
	if err != nil {
		return nil, fmt.Errorf("listening for TCP connections: %w", err)
	}
	return &Unmarked{ring: ring}, nil
}

// Next waits for a connection, and a little longer for more: what comes by itself would wake a thread each. os.ErrClosed says that Close was called.
func (u *Unmarked) Next() (all []Connection, err error) {
	for len(all) == 0 || u.ring.AvailableBytes() > 0 && len(all) < mostUnmarked {
		if err := u.ring.ReadInto(&u.raw); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				err = os.ErrClosed
			}
			return nil, fmt.Errorf("listening for TCP connections: %w", err)
		}
		var v bpfobj.Conn
		if _, err := binary.Decode(u.raw.RawSample, binary.NativeEndian, &v); err != nil {
			return nil, fmt.Errorf("decoding a TCP connection: %w", err)
		}
		if len(all) == 0 {
			time.Sleep(gatherUnmarked)
		}
		all = append(all, Connection{
			Src:  netip.AddrPortFrom(connAddr(v.Is6 != 0, v.Src), hostPort(v.Sport)),
			Dst:  netip.AddrPortFrom(connAddr(v.Is6 != 0, v.Dst), hostPort(v.Dport)),
			Zone: v.Zone, ZoneDir: ruleset.ZoneDir(v.ZoneDir),
		})
	}
	return all, nil
}

const (
	gatherUnmarked = 5 * time.Millisecond // a connection that lives on has a few slow packets more
	mostUnmarked   = 256
)

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
