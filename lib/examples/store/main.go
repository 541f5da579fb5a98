// SPDX-License-Identifier: Apache-2.0

// Store is an ordered key-value store that answers from XDP, over UDP: a skip list in one map.
//
// Problem: an ordered store in eBPF needs nodes that point to one another, which programs without a heap do not have.
//
// Mechanism: bpf/store.bpf.c keeps 65,535 keys of 64 bits in a skip list whose nodes refer to each other by their places
// (<shunt/skiplist.h>), under a lock; a request is turned round and leaves by the device that it came by, without Linux having seen it.
//
// Invariant: an answer is about the store as it was at one moment. Requests have a fixed size, so nobody is sent more than they sent.
// Nothing is pinned: what was stored ends with the process.
package main

import (
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/store.bpf.o
var object []byte

// Operations and statuses of bpf/store.bpf.c.
const (
	opGet, opSet, opDelete, opNext = 0, 1, 2, 3
	done, absent, full, unknown    = 0, 1, 2, 3
	tooLong                        = 4
)

type report struct {
	Keys    uint32 `json:"keys"`
	Done    uint64 `json:"done"`
	Absent  uint64 `json:"absent"`
	Full    uint64 `json:"full"`
	Unknown uint64 `json:"unknown"`
	TooLong uint64 `json:"too_long"`
}

func (r report) String() string {
	return fmt.Sprintf("%d keys; %d requests done, %d for keys that are not there, %d for a full store, %d unknown, %d searches too long",
		r.Keys, r.Done, r.Absent, r.Full, r.Unknown, r.TooLong)
}

func newStore(port *uint) *function.Function {
	return &function.Function{
		Name: "store", About: "an ordered key-value store over UDP", Object: object, Program: "answer",
		Flags: func(fs *flag.FlagSet) { fs.UintVar(port, "port", *port, "the UDP port to answer on") },
		Before: func(spec *ebpf.CollectionSpec) error {
			if *port == 0 || *port > 65535 {
				return fmt.Errorf("-port %d: between 1 and 65535", *port)
			}
			var raw [2]byte
			binary.BigEndian.PutUint16(raw[:], uint16(*port))
			return spec.Variables["port"].Set(binary.NativeEndian.Uint16(raw[:]))
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			var sums [tooLong + 1]uint64
			for status := range sums {
				var cpus []uint64
				if err := coll.Maps["answers"].Lookup(uint32(status), &cpus); err != nil {
					return nil, fmt.Errorf("map answers: %w", err)
				}
				for _, n := range cpus {
					sums[status] += n
				}
			}
			head, err := coll.Maps["store"].LookupBytes(uint32(0))
			if err != nil {
				return nil, fmt.Errorf("map store: %w", err)
			}
			keys := binary.NativeEndian.Uint32(head[8:])
			return report{keys, sums[done], sums[absent], sums[full], sums[unknown], sums[tooLong]}, nil
		},
	}
}

func main() {
	port := uint(7070)
	newStore(&port).Main()
}
