// SPDX-License-Identifier: Apache-2.0

// Nitro counts packets by flow with a NitroSketch in XDP: it looks at a share of the packets only and is right on average.
//
// Problem: at millions of packets per second even a sketch's four memory accesses and one hash per packet are too many.
//
// Mechanism: bpf/nitro.bpf.c updates each row with probability p and then by 1/p, and draws beforehand how many to leave out
// (<shunt/nitro.h>). User space adds the CPUs' sketches up and takes the median of the rows.
//
// Invariant: the expected answer is the truth. Nothing is pinned; a crash leaves nothing.
package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
	"github.com/shuntnet/shunt/lib/geo"
)

//go:generate ../../build.sh

//go:embed testdata/nitro.bpf.o
var object []byte

// As in bpf/nitro.bpf.c.
const rows, columns = 5, 1 << 10

type sketch struct {
	State      uint64
	Skip, Step uint32
	Packets    uint64
	Counter    [rows][columns]int32
}

type options struct {
	flows       function.Flows
	probability float64
}

type answer struct {
	Flow    function.Flow `json:"flow"`
	Packets float64       `json:"packets"`
}

type report struct {
	Packets uint64   `json:"packets"`
	Flows   []answer `json:"flows"`
}

func (r report) String() string {
	lines := []string{fmt.Sprintf("%d packets", r.Packets)}
	for _, a := range r.Flows {
		lines = append(lines, fmt.Sprintf("%10.0f about  %s", a.Packets, a.Flow))
	}
	return strings.Join(lines, "\n")
}

// estimate is the median of the rows, each with the sign that it gives the flow.
func estimate(s *[rows][columns]int64, hash uint64) float64 {
	var each []int64
	for row := range s {
		v := s[row][function.HashNth(hash, row)%columns]
		if hash>>(63-row)&1 != 0 {
			v = -v
		}
		each = append(each, v)
	}
	slices.Sort(each)
	return float64(each[rows/2]) / 256
}

func counter(seed uint64, o *options) *function.Function {
	return &function.Function{
		Name: "nitro", About: "count packets by flow, looking at a share of them", Object: object, Program: "nitro",
		Flags: func(fs *flag.FlagSet) {
			fs.Var(&o.flows, "flow", "a flow to answer for, such as \"udp 192.0.2.1:53 192.0.2.2:4000\"; may be repeated")
			fs.Float64Var(&o.probability, "p", o.probability, "the probability with which a row counts a packet, from 0.001 to 1")
		},
		Before: func(spec *ebpf.CollectionSpec) error {
			if !(o.probability >= 0.001 && o.probability <= 1) {
				return fmt.Errorf("-p %v: between 0.001 and 1", o.probability)
			}
			return spec.Variables["seed"].Set(seed)
		},
		After: func(coll *ebpf.Collection) error {
			if err := coll.Maps["geo"].Update(uint32(0), geo.NewTable(o.probability), ebpf.UpdateAny); err != nil {
				return fmt.Errorf("map geo: %w", err)
			}
			return function.Fill(coll, "sketch", sketch{Step: uint32(math.Round(256 / o.probability))}, func(cpu int, s *sketch) {
				s.State = seed ^ uint64(cpu+1)<<32 | 1
			})
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			cpus, err := function.PerCPU[sketch](coll, "sketch")
			if err != nil {
				return nil, err
			}
			var all [rows][columns]int64
			r := report{Flows: []answer{}}
			for _, one := range cpus {
				r.Packets += one.Packets
				for row := range all {
					for col := range all[row] {
						all[row][col] += int64(one.Counter[row][col])
					}
				}
			}
			for _, flow := range o.flows {
				r.Flows = append(r.Flows, answer{flow, estimate(&all, flow.Hash(seed))})
			}
			return r, nil
		},
	}
}

func main() {
	var secret [8]byte
	rand.Read(secret[:]) // never fails
	counter(binary.NativeEndian.Uint64(secret[:]), &options{probability: 0.02}).Main()
}
