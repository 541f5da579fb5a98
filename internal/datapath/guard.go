// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/synth"
)

const (
	offHeartbeat = 0
	offStale     = 8
	offEpoch     = 16
	offWant      = 24
	guardSlots   = 512 // SHUNT_GUARD_SLOTS
)

// remember6 is how long an IPv6 route lookup is remembered at most. Generations and events end it earlier; this bounds what neither tells in time
// where the daemon hangs: a route that was removed. For IPv4 the watchdog does.
const remember6 = 20 * time.Millisecond

// Snapshot holds the guard words' addresses and values at one moment. It must be taken before the configuration is read, so that a
// change in between shows as a mismatch.
type Snapshot struct {
	Net     uint64 // address of the namespace
	Jiffies uint64
	words   map[synth.Word]bpfobj.WordValue
}

// Snapshot reads the namespace's words and those of the given devices.
func (d *Datapath) Snapshot(devices []int) (Snapshot, error) {
	d.meetConntrack()
	d.meetBridges()
	s := Snapshot{words: make(map[synth.Word]bpfobj.WordValue, 32)}
	q, err := d.query(0)
	if err != nil {
		return s, err
	}
	if q.Legacy == 0 && d.objects.rebind() {
		if q, err = d.query(0); err != nil {
			return s, err
		}
	}
	s.Net, s.Jiffies = q.Net, q.Jiffies
	for w := range bpfobj.WordNetCount {
		s.words[synth.Word{Word: w}] = q.Word[w]
	}
	for _, index := range devices {
		if !d.guarded(index) {
			continue // what is new is read when a program first asks for it
		}
		if err := d.snapshotDevice(&s, index); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (d *Datapath) snapshotDevice(s *Snapshot, index int) error {
	q, err := d.query(index)
	if err != nil {
		return err
	}
	for w := bpfobj.WordNetCount; w < bpfobj.Word(len(q.Word)); w++ {
		s.words[synth.Word{Word: w, Index: index}] = q.Word[w]
	}
	return nil
}

// query runs the guard program in the calling thread's namespace.
func (d *Datapath) query(index int) (q bpfobj.GuardQuery, err error) {
	q.Ifindex = uint32(index)
	in := make([]byte, binary.Size(q))
	if _, err := binary.Encode(in, binary.NativeEndian, &q); err != nil {
		return q, fmt.Errorf("encoding the guard query: %w", err)
	}
	out := make([]byte, len(in))
	if _, err := d.objects.guard.Run(&ebpf.RunOptions{Context: in, ContextOut: out}); err != nil {
		return q, fmt.Errorf("reading guard words: %w", err)
	}
	_, err = binary.Decode(out, binary.NativeEndian, &q)
	return q, err
}

// resolve puts addresses to a program's symbolic words. A word that this kernel lacks is left out: its subject is then covered by
// events and the watchdog alone, which `shunt check` says.
func (d *Datapath) resolve(c *bpfobj.Config, words []synth.Word, s *Snapshot) error {
	c.Net, c.Peek = s.Net, d.features.Peek
	c.KernCtx, c.SkipNeigh = d.features.Ctx, flag(d.features.SkipNeigh)
	c.WatchdogJiffies = d.watchdogJiffies
	d.rules.configure(c)
	if err := d.resolveConntrack(c, s); err != nil {
		return err
	}
	if !d.features.VethSKB {
		c.SkbBorn = 0
	}
	if c.Bridge != 0 || c.Onto != 0 {
		c.Bridges = d.objects.bridges
	}
	var seq uint8
	c.NexthopSeq, seq = s.generation(bpfobj.WordNexthopSeq, 1)
	c.Cache4, c.Cache6 = c.Cache4&seq, c.Cache6&seq
	c.Genid4, c.Cache4 = s.generation(bpfobj.WordRouteGenID4, c.Cache4)
	c.Genid6, c.Cache6 = s.generation(bpfobj.WordRouteGenID6, c.Cache6)
	c.Cache6Jiffies, c.Lines4 = d.features.jiffies(remember6), d.objects.lines4
	if c.Peek == bpfobj.PeekNone {
		c.Cache4, c.Cache6 = 0, 0
		return nil
	}
	for _, w := range words {
		list, n := c.Guard[:], &c.Guards
		switch w.Family() {
		case 4:
			list, n = c.Guard4[:], &c.Guards4
		case 6:
			list, n = c.Guard6[:], &c.Guards6
		}
		slot, ok := d.slots[w]
		if !ok && !d.vacant() {
			continue
		}
		v, known := s.words[w]
		if !known && w.Index != 0 {
			if err := d.snapshotDevice(s, w.Index); err != nil {
				return err
			}
			v = s.words[w]
		}
		if v.Addr == 0 || int(*n) == len(list) {
			continue
		}
		if !ok {
			slot = d.occupy(w)
			d.want(slot, v.Value)
		}
		list[*n] = bpfobj.GuardWord{Addr: v.Addr, Slot: slot, Width: uint8(v.Width)}
		*n++
	}
	return nil
}

// vacant says whether there is a slot for one more word.
func (d *Datapath) vacant() bool { return len(d.slots) < guardSlots }

// occupy gives a word a slot; there must be a vacant one.
func (d *Datapath) occupy(w synth.Word) uint16 {
	slot := uint16(len(d.slots))
	if n := len(d.free); n > 0 {
		slot, d.free = d.free[n-1], d.free[:n-1]
	}
	d.slots[w] = slot
	if w.Index != 0 {
		d.watched[w.Index]++
	}
	return slot
}

// guarded says whether programs watch words of a device.
func (d *Datapath) guarded(index int) bool { return d.watched[index] > 0 }

// unwatch gives up the slots of devices that a plan has not: where containers come and go there would soon be none left. A packet on its way that still compares
// such a word with another's value goes to Linux.
func (d *Datapath) unwatch(plan *synth.Plan) {
	for index := range d.watched {
		if plan.Has(index) {
			continue
		}
		for w, slot := range d.slots {
			if w.Index == index {
				delete(d.slots, w)
				d.free = append(d.free, slot)
			}
		}
		delete(d.watched, index)
	}
}

// resolveConntrack gives programs that look connections up the addresses of the timeouts and switches that Linux judges them by.
func (d *Datapath) resolveConntrack(c *bpfobj.Config, s *Snapshot) error {
	if c.Track4|c.Track6 == 0 {
		return nil
	}
	c.Track, c.Hz = 1, uint32(d.features.HZ)
	for word, addr := range map[bpfobj.Word]*uint64{bpfobj.WordCTEstablished: &c.CtEstablished, bpfobj.WordCTStream: &c.CtStream,
		bpfobj.WordCTChecksum: &c.CtChecksum} {
		if *addr = s.words[synth.Word{Word: word}].Addr; *addr == 0 {
			return errors.New("the timeouts of connection tracking cannot be read")
		}
	}
	return nil
}

// Remembered fills in what Linux remembers for the life of a namespace and tells nobody. Where it cannot be read it is taken for true.
func (s *Snapshot) Remembered(routes *model.RouteFacts) {
	set := func(w bpfobj.Word) bool {
		v, ok := s.words[synth.Word{Word: w}]
		return !ok || v.Addr == 0 || byte(v.Value) != 0
	}
	routes.Custom4 = routes.Custom4 || set(bpfobj.WordCustomLocal4)
	routes.CustomRules4 = set(bpfobj.WordCustomRules4)
}

// generation gives the address of a route generation; without it nothing is remembered.
func (s *Snapshot) generation(word bpfobj.Word, wanted uint8) (addr uint64, cache uint8) {
	addr = s.words[synth.Word{Word: word}].Addr
	return addr, wanted & flag(addr != 0)
}

// commit makes a snapshot's values the expected ones.
func (d *Datapath) commit(s *Snapshot) {
	for w, slot := range d.slots {
		if v, ok := s.words[w]; ok && d.wanted[slot] != v.Value {
			d.want(slot, v.Value)
			d.changed = true
		}
	}
	d.forgetIf(d.changed || d.Stale())
	d.store(offStale, 0)
}

// Forget ends all remembered route lookups. It may be called from any goroutine.
func (d *Datapath) Forget() {
	d.epochMu.Lock()
	defer d.epochMu.Unlock()
	d.epoch++
	d.store(offEpoch, d.epoch)
}

func (d *Datapath) want(slot uint16, value uint64) {
	d.wanted[slot] = value
	d.store(offWant+8*int64(slot), value)
}

// store writes one word that programs read.
func (d *Datapath) store(offset int64, value uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], value)
	d.objects.live.WriteAt(b[:], offset) //nolint: the offset is inside by construction
}

// Stale says whether a program has seen a guard word differ since the last Apply.
func (d *Datapath) Stale() bool {
	var b [8]byte
	if _, err := d.objects.live.ReadAt(b[:], offStale); err != nil {
		return true
	}
	return binary.NativeEndian.Uint64(b[:]) != 0
}

// Beat is the daemon's sign of life; programs pass everything to Linux when it is older than the watchdog's limit.
func (d *Datapath) Beat() error {
	if _, err := d.objects.beat.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("stamping the watchdog: %w", err)
	}
	return nil
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
