// SPDX-License-Identifier: Apache-2.0

// Countmin counts packets by flow with a count-min sketch in XDP: a fixed 16 KiB per CPU for any number of flows.
//
// Problem: a counter per flow needs memory for every flow that an attacker can think of.
//
// Mechanism: bpf/countmin.bpf.c updates one counter in each of four rows per packet (<shunt/cms.h>); user space adds the CPUs' sketches
// up and answers for flows that it is asked about.
//
// Invariant: an answer is never too low. Nothing is pinned; a crash leaves nothing.
package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/countmin.bpf.o
var object []byte

// As in bpf/countmin.bpf.c.
const rows, log2cols, columns = 4, 10, 1 << log2cols

type sketch struct {
	Packets uint64
	Counter [rows][columns]uint32
}

// An answer is what the sketch knows of a flow.
type answer struct {
	Flow   function.Flow `json:"flow"`
	AtMost uint32        `json:"packets_at_most"`
}

type report struct {
	Packets uint64   `json:"packets"`
	Flows   []answer `json:"flows"`
}

func (r report) String() string {
	lines := []string{fmt.Sprintf("%d packets", r.Packets)}
	for _, a := range r.Flows {
		lines = append(lines, fmt.Sprintf("%10d at most  %s", a.AtMost, a.Flow))
	}
	return strings.Join(lines, "\n")
}

// counter returns the function, which answers for these flows once they are parsed.
func counter(seed uint64, asked *function.Flows) *function.Function {
	return &function.Function{
		Name: "countmin", About: "count packets by flow in a count-min sketch", Object: object, Program: "countmin",
		Flags: func(fs *flag.FlagSet) {
			fs.Var(asked, "flow", "a flow to answer for, such as \"udp 192.0.2.1:53 192.0.2.2:4000\"; may be repeated")
		},
		Before: func(spec *ebpf.CollectionSpec) error { return spec.Variables["seed"].Set(seed) },
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			cpus, err := function.PerCPU[sketch](coll, "sketch")
			if err != nil {
				return nil, err
			}
			var all sketch
			for _, one := range cpus {
				all.Packets += one.Packets
				for row := range all.Counter {
					for col := range all.Counter[row] {
						all.Counter[row][col] += one.Counter[row][col]
					}
				}
			}
			r := report{Packets: all.Packets, Flows: []answer{}}
			for _, flow := range *asked {
				least, hash := ^uint32(0), flow.Hash(seed)
				for row := range all.Counter {
					least = min(least, all.Counter[row][function.HashSlice(hash, row, log2cols)])
				}
				r.Flows = append(r.Flows, answer{flow, least})
			}
			return r, nil
		},
	}
}

func main() {
	var secret [8]byte
	rand.Read(secret[:]) // never fails
	counter(binary.NativeEndian.Uint64(secret[:]), new(function.Flows)).Main()
}
