// SPDX-License-Identifier: Apache-2.0

// Membership says in XDP which set each packet's source is in (customers, sites, blocklists), counts by set, and drops sets that it is
// told to drop: 4 bytes per address, for up to 2^18 addresses and 255 sets.
//
// Problem: a hash map that stores each address with its set takes 64 bytes for it and a call to look it up.
//
// Mechanism: bpf/membership.bpf.c looks up 16 bits of the address's hash in a hash table set summary (<shunt/htss.h>); user space fills
// it by running a second program of the same object.
//
// Invariant: an address that was put into a set is never taken for a stranger. A stranger is taken for a member once in 2000 times 1/load;
// do not drop by it what must not be lost. Nothing is pinned; a crash leaves nothing.
package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/membership.bpf.o
var object []byte

// maxSets is SETS of bpf/membership.bpf.c.
const maxSets = 256

// A set is what the option -set gives: NAME=ADDRESS,... or NAME=@FILE with an address per line.
type set struct {
	name      string
	addresses []netip.Addr
}

type options struct {
	sets []set
	drop []string
}

func parseSet(s string) (set, error) {
	name, list, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return set{}, fmt.Errorf("set %q: want NAME=ADDRESS,ADDRESS or NAME=@FILE", s)
	}
	if file, ok := strings.CutPrefix(list, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return set{}, fmt.Errorf("set %s: %w", name, err)
		}
		list = strings.Join(strings.Fields(string(text)), ",")
	}
	out := set{name: name}
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		addr, err := netip.ParseAddr(field)
		if err != nil {
			return set{}, fmt.Errorf("set %s: %w", name, err)
		}
		out.addresses = append(out.addresses, addr)
	}
	return out, nil
}

type tally struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

type line struct {
	Set string `json:"set"`
	tally
}

type report struct {
	Sets []line `json:"sets"` // in the order of the options, and last what is in none
}

func (r report) String() string {
	var lines []string
	for _, l := range r.Sets {
		lines = append(lines, fmt.Sprintf("%12d packets %16d bytes  %s", l.Packets, l.Bytes, l.Set))
	}
	return strings.Join(lines, "\n")
}

// change is struct change of bpf/membership.bpf.c, padded to what a frame has at least.
func change(addr netip.Addr, number int, remove bool) []byte {
	raw := make([]byte, 64)
	a := addr.As16()
	copy(raw, a[:])
	binary.NativeEndian.PutUint16(raw[16:], uint16(number))
	if remove {
		raw[18] = 1
	}
	return raw
}

var errTable = errors.New("the table is full")

// apply puts an address into a set or takes it out; number counts from 1.
func apply(coll *ebpf.Collection, addr netip.Addr, number int, remove bool) error {
	ret, err := coll.Programs["change"].Run(&ebpf.RunOptions{Data: change(addr, number, remove)})
	switch {
	case err != nil:
		return fmt.Errorf("running the program that changes sets: %w", err)
	case ret != 0 && remove:
		return fmt.Errorf("address %s is not in set %d", addr, number)
	case ret != 0:
		return fmt.Errorf("adding %s to set %d: %w", addr, number, errTable)
	}
	return nil
}

func newMembership(seed uint64, o *options) *function.Function {
	return &function.Function{
		Name: "membership", About: "count packets by the set that their source address is in", Object: object, Program: "membership",
		Flags: func(fs *flag.FlagSet) {
			fs.Func("set", "a set: `NAME=ADDRESS,...`, or NAME=@FILE with one address per line; may be repeated", func(s string) error {
				one, err := parseSet(s)
				o.sets = append(o.sets, one)
				return err
			})
			fs.Func("drop", "drop packets of the set of this `NAME`; may be repeated", func(s string) error {
				o.drop = append(o.drop, s)
				return nil
			})
		},
		Before: func(spec *ebpf.CollectionSpec) error {
			if len(o.sets) >= maxSets {
				return fmt.Errorf("%d sets are more than %d", len(o.sets), maxSets-1)
			}
			var drop [maxSets]uint8
			for _, name := range o.drop {
				found := false
				for i, s := range o.sets {
					if s.name == name {
						drop[i+1], found = 1, true
					}
				}
				if !found {
					return fmt.Errorf("no set is named %q, so it cannot be dropped", name)
				}
			}
			return errors.Join(spec.Variables["drop"].Set(drop), spec.Variables["seed"].Set(seed))
		},
		After: func(coll *ebpf.Collection) error {
			for i, s := range o.sets {
				for _, addr := range s.addresses {
					if err := apply(coll, addr, i+1, false); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			var r report
			for i := 1; i <= len(o.sets)+1; i++ {
				number, name := i%(len(o.sets)+1), "(none)"
				if number > 0 {
					name = o.sets[number-1].name
				}
				var cpus []tally
				if err := coll.Maps["tallies"].Lookup(uint32(number), &cpus); err != nil {
					return nil, fmt.Errorf("reading set %s: %w", name, err)
				}
				l := line{Set: name}
				for _, one := range cpus {
					l.Packets += one.Packets
					l.Bytes += one.Bytes
				}
				r.Sets = append(r.Sets, l)
			}
			return r, nil
		},
	}
}

func main() {
	var secret [8]byte
	rand.Read(secret[:]) // never fails
	newMembership(binary.NativeEndian.Uint64(secret[:]), new(options)).Main()
}
