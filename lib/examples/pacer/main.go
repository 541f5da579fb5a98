// SPDX-License-Identifier: Apache-2.0

// Pacer holds each flow that enters a device to a rate, and drops what a pacer with a queue of a given length would drop.
//
// Problem: a token bucket per flow knows nothing of the others; a pacer knows how much it holds of all flows, and does not take more.
//
// Mechanism: bpf/pacer.bpf.c gives each packet the time at which it would have been sent and lets it occupy a place in a timing wheel
// (<shunt/wheel.h>) until then. XDP cannot hold a packet itself: those that fit into the queue pass at once, so bursts of up to the
// queue's length remain bursts. To spread them out as well, hand the times to the fq qdisc on the way out.
//
// Invariant: over any time, no flow passes more than rate times (this time plus the queue's length). Nothing is pinned; a crash leaves
// nothing.
package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/pacer.bpf.o
var object []byte

// As in bpf/pacer.bpf.c: places in the wheel, and how far it reaches.
const (
	places = 4096
	slot   = 1 << 14
	slots  = 1 << 12
)

type options struct {
	rate  float64 // of a flow, Mbit/s
	queue time.Duration
	trace bool
}

// byteTime is how long a byte takes, in 2^-16 ns.
func (o options) byteTime() uint64 { return uint64(8000 / o.rate * 65536) }

func (o options) check() error {
	switch {
	case !(o.rate >= 0.001 && o.rate <= 1e6):
		return fmt.Errorf("-rate %v: want 0.001 to 1000000 Mbit/s", o.rate)
	case o.queue < time.Millisecond || o.queue > 60*time.Millisecond:
		return fmt.Errorf("-queue %v: want 1ms to 60ms, which is what the wheel holds", o.queue)
	}
	return nil
}

type report struct {
	Passed      uint64 `json:"passed"`
	PassedBytes uint64 `json:"passed_bytes"`
	Late        uint64 `json:"dropped_late"`
	Full        uint64 `json:"dropped_full"`
	Held        uint64 `json:"held"`
	HeldBytes   uint64 `json:"held_bytes"`
}

func (r report) String() string {
	return fmt.Sprintf("%d packets (%d bytes) passed; %d dropped, %d of them for want of places; %d (%d bytes) would wait now",
		r.Passed, r.PassedBytes, r.Late+r.Full, r.Full, r.Held, r.HeldBytes)
}

func newPacer(o *options) *function.Function {
	return &function.Function{
		Name: "pacer", About: "hold each flow to a rate", Object: object, Program: "pace",
		Flags: func(fs *flag.FlagSet) {
			fs.Float64Var(&o.rate, "rate", 10, "what a flow may have, in Mbit/s")
			fs.DurationVar(&o.queue, "queue", 50*time.Millisecond, "for how long a packet may have to wait")
		},
		Before: func(spec *ebpf.CollectionSpec) error {
			if err := o.check(); err != nil {
				return err
			}
			var trace uint8
			if o.trace {
				trace = 1
			}
			return errors.Join(spec.Variables["byte_time"].Set(o.byteTime()), spec.Variables["patience"].Set(uint64(o.queue)),
				spec.Variables["trace"].Set(trace))
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			if _, err := coll.Programs["settle"].Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
				return nil, fmt.Errorf("running the program that frees places: %w", err)
			}
			raw, err := coll.Maps["pacer"].LookupBytes(uint32(0))
			if err != nil {
				return nil, fmt.Errorf("reading what was counted: %w", err)
			}
			end := raw[len(raw)-5*8:]
			word := func(i int) uint64 { return binary.NativeEndian.Uint64(end[8*i:]) }
			// The wheel counts what is in it: the fourth of its fields, after three words.
			held := uint64(binary.NativeEndian.Uint32(raw[24:]))
			return report{Passed: word(1), PassedBytes: word(2), Late: word(3), Full: word(4), Held: held, HeldBytes: word(0)}, nil
		},
	}
}

func main() { newPacer(new(options)).Main() }
