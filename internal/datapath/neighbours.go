// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// Neighbour is a next hop that the fast path used lately.
type Neighbour struct {
	Index  int // ifindex
	Family int // unix.AF_INET, unix.AF_INET6
	Addr   netip.Addr
}

const neighSlots = 512 // SHUNT_NEIGH_SLOTS

// UsedNeighbours lists the next hops that programs used past the kernel's neighbour layer since the last call, or shortly before it. Calls are to be more than a quarter of a
// second apart: then a newest use that the last call saw already is past, and is not told for ever.
func (d *Datapath) UsedNeighbours() ([]Neighbour, error) {
	out, newest, err := d.neighboursSince(d.neighSeen)
	switch newest {
	case 0:
	case d.neighNewest:
		d.neighSeen = newest
	default:
		d.neighSeen = newest - 1 // the newest quarter second is not over yet
	}
	d.neighNewest = newest
	return out, err
}

// Neighbours lists all next hops that XDP programs remember to have used, without effect on UsedNeighbours.
func (d *Datapath) Neighbours() ([]Neighbour, error) {
	out, _, err := d.neighboursSince(0)
	return out, err
}

// neighboursSince lists those used after a stamp, and gives the newest stamp.
func (d *Datapath) neighboursSince(stamp uint64) (out []Neighbour, newest uint64, err error) {
	cpus, err := possibleCPUs()
	if err != nil {
		return nil, 0, err
	}
	keys := make([]uint32, neighSlots)
	values := make([]bpfobj.NeighUse, neighSlots*cpus)
	n, err := readPerCPU(d.objects.maps["neigh_use"], keys, values)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the table of used neighbours: %w", err)
	}
	seen := map[Neighbour]bool{}
	for _, v := range values[:n*cpus] {
		newest = max(newest, v.Stamp)
		if v.Stamp <= stamp {
			continue
		}
		nb := Neighbour{Index: int(v.Ifindex), Family: int(v.Family), Addr: neighAddr(v)}
		if !seen[nb] {
			seen[nb] = true
			out = append(out, nb)
		}
	}
	return out, newest, nil
}

func neighAddr(v bpfobj.NeighUse) netip.Addr {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], v.Addr[0])
	binary.NativeEndian.PutUint64(b[8:], v.Addr[1])
	if v.Family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}
