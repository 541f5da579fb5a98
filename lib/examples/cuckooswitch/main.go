// SPDX-License-Identifier: Apache-2.0

// Cuckooswitch is a learning Ethernet switch in XDP over the devices that it is given, with a blocked cuckoo hash as its table.
//
// Problem: a hash map of the kernel costs a call and a chain of cache misses per lookup, two lookups per frame.
//
// Mechanism: bpf/cuckooswitch.bpf.c looks stations up in two buckets of 8 places by their fingerprints (<shunt/cuckoo.h>), learns under a
// lock, and redirects through a map of devices; unknown and group addresses go to every other port.
//
// Invariant: no frame goes back to the port it came from. Nothing ages: restart it to forget. Nothing is pinned; a crash leaves nothing.
package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/cuckooswitch.bpf.o
var object []byte

type report struct {
	Known   uint64 `json:"known"`
	Flooded uint64 `json:"flooded"`
	Learned uint64 `json:"learned"`
	Full    uint64 `json:"full"`
	Local   uint64 `json:"local"`
}

func (r report) String() string {
	return fmt.Sprintf("%d sent to one port, %d to all, %d for the port they came from; %d times learned, %d times the table was full",
		r.Known, r.Flooded, r.Local, r.Learned, r.Full)
}

func newSwitch(seed uint64) *function.Function {
	return &function.Function{
		Name: "cuckooswitch", About: "a learning switch over some devices", Object: object, Program: "cuckooswitch", Several: true,
		Before: func(spec *ebpf.CollectionSpec) error { return spec.Variables["seed"].Set(seed) },
		Started: func(coll *ebpf.Collection, devices []net.Interface) error {
			if len(devices) < 2 {
				return fmt.Errorf("a switch needs two devices at least: -dev A,B")
			}
			for _, d := range devices {
				if err := coll.Maps["ports"].Update(uint32(d.Index), uint32(d.Index), ebpf.UpdateAny); err != nil {
					return fmt.Errorf("making %s a port: %w", d.Name, err)
				}
			}
			return nil
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			cpus, err := function.PerCPU[report](coll, "counts")
			if err != nil {
				return nil, err
			}
			var r report
			for _, one := range cpus {
				r.Known += one.Known
				r.Flooded += one.Flooded
				r.Learned += one.Learned
				r.Full += one.Full
				r.Local += one.Local
			}
			return r, nil
		},
	}
}

func main() {
	var secret [8]byte
	rand.Read(secret[:]) // never fails
	newSwitch(binary.NativeEndian.Uint64(secret[:])).Main()
}
