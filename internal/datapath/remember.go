// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The memory of IPv4 route lookups (bpf/node/route_cache.h): each CPU has lines of four destinations, 64 bytes, and slots of next hops. With
// few routes a lookup is quick and a small memory does; it grows with the table of routes, until the daemon ends, to 32 MiB for each CPU and a 64th of
// the machine's memory at most. The kernel counts it as the maps' (memlock of `bpftool map`).
const (
	destsMap  = "dests4"
	hopsMap   = "hops4"
	hopSlots  = 2048    // SHUNT_HOP_SLOTS
	minLines4 = 1 << 10 // for 2000 routes
	maxLines4 = 1 << 19 // for a million
	lineSize  = 64
	growth    = 8
)

// lines4 is how many lines each CPU should have: places for twice as many destinations as there are routes, since places are drawn by hash.
func lines4(routes, cpus int, memory uint64) uint32 {
	lines := minLines4
	for 2*lines < routes && growth*lines <= maxLines4 && uint64(growth*lines*lineSize*cpus) <= memory/64 {
		lines *= growth
	}
	return uint32(lines)
}

// machine says how large this one is: CPUs that there can be, and bytes.
func machine() (cpus int, memory uint64, err error) {
	if cpus, err = possibleCPUs(); err != nil {
		return 0, 0, err
	}
	var system unix.Sysinfo_t
	if err = unix.Sysinfo(&system); err != nil {
		return 0, 0, fmt.Errorf("asking for the size of the memory: %w", err)
	}
	return cpus, uint64(system.Totalram) * uint64(system.Unit), nil
}

// fit makes the memory of lookups larger where the number of routes asks for it. Programs refer to the map, so they are all loaded anew then; without
// memory for it what is there stays.
func (d *Datapath) fit(routes int) {
	cpus, memory, err := machine()
	if err != nil {
		d.log.Warn("the memory of route lookups stays as it is", "err", err)
		return
	}
	before := d.objects.lines4
	err = d.growth.grow(before, lines4(routes, cpus, memory), time.Now(), func(lines uint32) error {
		d.behind.end() // nobody else refers to the map by name
		return d.objects.resize(lines, cpus)
	})
	if err != nil {
		d.log.Warn("the memory of route lookups is smaller than the routes ask for", "lines", d.objects.lines4, "err", err)
	}
	if d.objects.lines4 == before {
		return
	}
	for _, a := range d.ports {
		a.forget()
	}
}

// growthOf4 remembers how large the memory of lookups was to be and could not: to ask for that costs the work behind the loop, and there is a round each second.
type growthOf4 struct {
	refused uint32 // lines for each CPU
	when    time.Time
}

// growAgain is when it is asked for again.
const growAgain = time.Minute

// grow gets as many lines as are wanted, or as many as can be had if that is more than there are. The error is of those that were wanted.
func (g *growthOf4) grow(have, want uint32, now time.Time, resize func(lines uint32) error) (refused error) {
	if want <= have || want == g.refused && now.Sub(g.when) < growAgain {
		return nil
	}
	g.refused = 0
	for lines := want; lines > have; lines /= growth {
		err := resize(lines)
		if err == nil {
			break
		}
		if g.refused == 0 {
			g.refused, g.when, refused = want, now, err
		}
	}
	return refused
}

// resize replaces the map of destinations.
func (o *objects) resize(lines uint32, cpus int) error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: destsMap, Type: ebpf.Array, KeySize: 4, ValueSize: lineSize,
		MaxEntries: lines * uint32(cpus), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return fmt.Errorf("creating map %s for %d lines: %w", destsMap, lines, err)
	}
	o.maps[destsMap].Close()
	o.maps[destsMap], o.lines4 = m, lines
	return nil
}

// The memory of what rules said (bpf/node/verdicts.h): places of 128 bytes for each CPU, a megabyte at most and not more than a 256th of the machine's memory in all.
const (
	verdictsMap  = "verdicts"
	verdictSize  = 128
	minVerdicts  = 1 << 8
	maxVerdicts  = 1 << 13
	rememberFrom = 2 // entries of an image that is worth remembering: one is a policy alone
)

// verdictPlaces is how many places each CPU should have.
func verdictPlaces(cpus int, memory uint64) uint32 {
	n := maxVerdicts
	for n > minVerdicts && uint64(n*verdictSize*cpus) > memory/256 {
		n /= 2
	}
	return uint32(n)
}

// newVerdicts replaces the table of remembered verdicts by an empty one.
func (o *objects) newVerdicts() (places uint32, err error) {
	cpus, memory, err := machine()
	if err != nil {
		return 0, err
	}
	places = verdictPlaces(cpus, memory)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: verdictsMap, Type: ebpf.Array, KeySize: 4, ValueSize: verdictSize, MaxEntries: places * uint32(cpus), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return 0, fmt.Errorf("creating map %s for %d verdicts: %w", verdictsMap, places, err)
	}
	o.maps[verdictsMap].Close()
	o.maps[verdictsMap] = m
	return places, nil
}

// An unchanged configuration says nothing new about routes, so what was found is kept; but for so long only, since slots of next hops that are
// no longer in use come free this way.
const keepLookups = time.Minute

// forgetIf ends remembered lookups after a round, if that changed what they rest on.
func (d *Datapath) forgetIf(changed bool) {
	if changed || time.Since(d.forgot) > keepLookups {
		d.Forget()
		d.forgot = time.Now()
	}
}
