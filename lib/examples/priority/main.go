// SPDX-License-Identifier: Apache-2.0

// Priority tells user space of packets, the most important first: of a flood it gets as many records as it asked for, by DSCP and then in
// order of arrival, and none of the important ones is lost to the others.
//
// Problem: a ring buffer is first come, first served: whoever reads slower than packets come loses the rare important ones first.
//
// Mechanism: bpf/priority.bpf.c puts a record of each IP packet into a bitmap priority queue (<shunt/ffsqueue.h>); less important ones
// leave slots free for others; user space takes the next ones by running a second program of the same object.
//
// Invariant: packets pass whatever happens to their records. Nothing is pinned; a crash leaves nothing.
package main

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/priority.bpf.o
var object []byte

// As in bpf/priority.bpf.c.
const slots, ranks = 1024, 64

// A record is struct record of bpf/priority.bpf.c.
type record struct {
	Flow        function.Flow
	Time        uint64
	Bytes, Rank uint32
}

const recordSize = 56

func (r record) dscp() int { return ranks - 1 - int(r.Rank) }

type report struct {
	Records []record
	Taken   uint64 // of packets, records in the queue or read before
	Refused uint64 // packets for which it had no slot
	now     uint64
}

func (r report) String() string {
	lines := []string{fmt.Sprintf("%d packets noted, %d not", r.Taken, r.Refused)}
	for _, one := range r.Records {
		lines = append(lines, fmt.Sprintf("  dscp %2d  %5d bytes  %8v ago  %s",
			one.dscp(), one.Bytes, time.Duration(r.now-one.Time).Round(time.Millisecond), one.Flow))
	}
	return strings.Join(lines, "\n")
}

// MarshalJSON writes the report with classes in place of ranks.
func (r report) MarshalJSON() ([]byte, error) {
	type line struct {
		DSCP  int           `json:"dscp"`
		Bytes uint32        `json:"bytes"`
		AgoNs uint64        `json:"ago_ns"`
		Flow  function.Flow `json:"flow"`
	}
	all := struct {
		Taken   uint64 `json:"noted"`
		Refused uint64 `json:"not_noted"`
		Records []line `json:"records"`
	}{r.Taken, r.Refused, []line{}}
	for _, one := range r.Records {
		all.Records = append(all.Records, line{one.dscp(), one.Bytes, r.now - one.Time, one.Flow})
	}
	return json.Marshal(all)
}

// take takes the next record out of the queue.
func take(coll *ebpf.Collection) (r record, ok bool, err error) {
	frame := make([]byte, 64)
	opts := ebpf.RunOptions{Data: make([]byte, 64), DataOut: frame}
	ret, err := coll.Programs["take"].Run(&opts)
	if err != nil {
		return r, false, fmt.Errorf("running the program that takes records out: %w", err)
	}
	if ret != 0 {
		return r, false, nil
	}
	_, err = binary.Decode(frame[:recordSize], binary.NativeEndian, &r)
	return r, true, err
}

func newPriority(budget *int) *function.Function {
	return &function.Function{
		Name: "priority", About: "tell of the most important packets first", Object: object, Program: "priority",
		Flags: func(fs *flag.FlagSet) { fs.IntVar(budget, "n", 10, "how many packets to tell of in one report") },
		Before: func(*ebpf.CollectionSpec) error {
			if *budget < 1 {
				return fmt.Errorf("-n %d: want 1 packet at least", *budget)
			}
			return nil
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			var r report
			for len(r.Records) < *budget {
				one, ok, err := take(coll)
				if err != nil {
					return nil, err
				}
				if !ok {
					break
				}
				r.Records = append(r.Records, one)
			}
			raw, err := coll.Maps["notes"].LookupBytes(uint32(0))
			if err != nil {
				return nil, fmt.Errorf("reading what was counted: %w", err)
			}
			counts := raw[len(raw)-slots*recordSize-2*8*ranks:]
			for rank := range ranks {
				r.Taken += binary.NativeEndian.Uint64(counts[8*rank:])
				r.Refused += binary.NativeEndian.Uint64(counts[8*(ranks+rank):])
			}
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return nil, fmt.Errorf("reading the clock: %w", err)
			}
			r.now = uint64(now.Nano())
			return r, nil
		},
	}
}

func main() { newPriority(new(int)).Main() }
