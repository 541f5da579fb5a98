// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

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
	words   *[bpfobj.WordNetCount]bpfobj.WordValue // the namespace's
	devices map[int]*deviceWords                   // nil: not read
}

// deviceWords are the words of one device.
type deviceWords [wordsOfAll - int(bpfobj.WordNetCount)]bpfobj.WordValue

const wordsOfAll = len(bpfobj.GuardQuery{}.Word)

// Snapshot reads the namespace's words and, if asked to, those of all devices of which programs watch some: ports', and their bridges' and lower devices', which have
// no programs themselves. Without, Keep gives it all of the last snapshot. What is new is read when a program first asks for it.
func (d *Datapath) Snapshot(devices bool) (Snapshot, error) {
	d.meetConntrack()
	d.meetBridges()
	s := Snapshot{words: new([bpfobj.WordNetCount]bpfobj.WordValue)}
	if devices {
		s.devices = make(map[int]*deviceWords, len(d.watched))
	}
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
	copy(s.words[:], q.Word[:])
	if devices {
		for index := range d.watched {
			if err := d.snapshotDevice(&s, index); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

func (d *Datapath) snapshotDevice(s *Snapshot, index int) error {
	q, err := d.query(index)
	if err != nil {
		return err
	}
	words := deviceWords(q.Word[bpfobj.WordNetCount:])
	if s.devices == nil {
		s.devices = map[int]*deviceWords{}
	}
	s.devices[index] = &words
	return nil
}

// word gives a word, if it was read.
func (s *Snapshot) word(w synth.Word) (v bpfobj.WordValue, known bool) {
	switch {
	case w.Index == 0 && s.words != nil:
		return s.words[w.Word], true
	case w.Index != 0 && s.devices[w.Index] != nil:
		return s.devices[w.Index][w.Word-bpfobj.WordNetCount], true
	}
	return v, false
}

// net gives a word of the namespace.
func (s *Snapshot) net(w bpfobj.Word) bpfobj.WordValue {
	v, _ := s.word(synth.Word{Word: w})
	return v
}

// query runs the guard program in the calling thread's namespace.
func (d *Datapath) query(index int) (q bpfobj.GuardQuery, err error) {
	in := bpfobj.GuardQuery{Ifindex: uint32(index)}
	if _, err := d.objects.guard.Run(&ebpf.RunOptions{Context: memory(&in), ContextOut: memory(&q)}); err != nil {
		return q, fmt.Errorf("reading guard words: %w", err)
	}
	return q, nil
}

// basis is what every program's configuration takes from the data path and from a snapshot, but for words of devices.
type basis struct {
	config bpfobj.Config // with what any program may need
	words  [bpfobj.WordNetCount]place
	moves  int // how often words of devices were found elsewhere
}

// place is where a word is.
type place struct{ addr, width uint64 }

func at(v bpfobj.WordValue) place { return place{v.Addr, uint64(v.Width)} }

// basis gathers what is the same for all.
func (d *Datapath) basis(s *Snapshot) *basis {
	b := &basis{moves: d.moves}
	c := &b.config
	c.Net, c.Peek = s.Net, d.features.Peek
	c.KernCtx, c.SkipNeigh = d.features.Ctx, flag(d.features.SkipNeigh)
	c.WatchdogJiffies = d.watchdogJiffies
	d.rules.configure(c)
	c.Hz, c.CtEstablished, c.CtStream, c.CtChecksum = uint32(d.features.HZ), s.net(bpfobj.WordCTEstablished).Addr, s.net(bpfobj.WordCTStream).Addr, s.net(bpfobj.WordCTChecksum).Addr
	c.SkbBorn, c.Bridges = flag(d.features.VethSKB), d.objects.bridges
	c.NexthopSeq, c.Genid4, c.Genid6 = s.net(bpfobj.WordNexthopSeq).Addr, s.net(bpfobj.WordRouteGenID4).Addr, s.net(bpfobj.WordRouteGenID6).Addr
	c.Cache4, c.Cache6 = flag(c.NexthopSeq != 0 && c.Genid4 != 0 && c.Peek != bpfobj.PeekNone), flag(c.NexthopSeq != 0 && c.Genid6 != 0 && c.Peek != bpfobj.PeekNone)
	c.Cache6Jiffies, c.Lines4 = d.features.jiffies(remember6), d.objects.lines4
	for w := range b.words {
		b.words[w] = at(s.net(bpfobj.Word(w)))
	}
	return b
}

// moved notes that words of devices are elsewhere than in the last snapshot, as those of a device are that got the number of another.
func (d *Datapath) moved(s *Snapshot) {
	for index, words := range s.devices {
		old := d.devices[index]
		if old == nil || old == words {
			continue
		}
		for w := range words {
			if at(words[w]) != at(old[w]) {
				d.moves++
				return
			}
		}
	}
}

// resolve puts addresses to a program's symbolic words. A word that this kernel lacks is left out: its subject is then covered by
// events and the watchdog alone, which `shunt check` says. So is, for now, one for which there is no slot: left.
func (d *Datapath) resolve(c *bpfobj.Config, words []synth.Word, b *basis, s *Snapshot) (left bool, err error) {
	all := &b.config
	c.Net, c.Peek, c.KernCtx, c.SkipNeigh, c.WatchdogJiffies = all.Net, all.Peek, all.KernCtx, all.SkipNeigh, all.WatchdogJiffies
	d.rules.configure(c)
	if c.Track4|c.Track6 != 0 {
		// The addresses of the timeouts and switches that Linux judges connections by.
		if all.CtEstablished == 0 || all.CtStream == 0 || all.CtChecksum == 0 {
			return false, errors.New("the timeouts of connection tracking cannot be read")
		}
		c.Flowtable &= uint32(flag(all.Genid4 != 0 && c.Peek != bpfobj.PeekNone))
		c.Track, c.Hz, c.CtEstablished, c.CtStream, c.CtChecksum = d.features.look(), all.Hz, all.CtEstablished, all.CtStream, all.CtChecksum
	}
	c.SkbBorn &= all.SkbBorn
	if c.Bridge != 0 || c.Onto != 0 {
		c.Bridges = all.Bridges
	}
	c.NexthopSeq, c.Genid4, c.Genid6 = all.NexthopSeq, all.Genid4, all.Genid6
	c.Cache4, c.Cache6 = c.Cache4&all.Cache4, c.Cache6&all.Cache6
	c.Cache6Jiffies, c.Lines4 = all.Cache6Jiffies, all.Lines4
	if c.Peek == bpfobj.PeekNone {
		return false, nil
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
			left = true
			continue
		}
		v, known := s.word(w)
		if !known && w.Index != 0 {
			if err := d.snapshotDevice(s, w.Index); err != nil {
				return left, err
			}
			v, _ = s.word(w)
		}
		if v.Addr == 0 {
			continue
		}
		if int(*n) == len(list) { // synth's test of the largest port says that this is not
			return left, fmt.Errorf("a program would rest on more than %d guard words of a family", len(list))
		}
		if !ok {
			slot = d.occupy(w)
			d.want(slot, expected(w, v))
		}
		list[*n] = bpfobj.GuardWord{Addr: v.Addr, Slot: slot, Width: uint8(v.Width)}
		*n++
	}
	return left, nil
}

// expected is the value with which a configuration holds: the one from before it was read. Nobody is to take the frames of a device that a program was made for, also if
// somebody has begun to since it was looked at (Handled).
func expected(w synth.Word, v bpfobj.WordValue) uint64 {
	if w.Word == bpfobj.WordDevHandler {
		return 0
	}
	return v.Value
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

// unwatch gives up the slots of devices that a plan has not: where containers come and go there would soon be none left. A packet on its way that still compares
// such a word with another's value goes to Linux.
func (d *Datapath) unwatch(plan *synth.Plan, s *Snapshot) {
	for index := range s.devices {
		if !plan.Has(index) {
			delete(s.devices, index)
		}
	}
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

// Remembered fills in what Linux remembers for the life of a namespace and tells nobody. Where it cannot be read it is taken for true.
func (s *Snapshot) Remembered(routes *model.RouteFacts) {
	set := func(w bpfobj.Word) bool {
		v, ok := s.word(synth.Word{Word: w})
		return !ok || v.Addr == 0 || byte(v.Value) != 0
	}
	routes.Custom4 = routes.Custom4 || set(bpfobj.WordCustomLocal4)
	routes.CustomRules4 = set(bpfobj.WordCustomRules4)
}

// commit makes a snapshot's values the expected ones.
func (d *Datapath) commit(s *Snapshot) {
	for w, slot := range d.slots {
		if v, ok := s.word(w); ok && d.wanted[slot] != expected(w, v) {
			d.want(slot, expected(w, v))
			d.changed = true
		}
	}
	d.devices = s.devices
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

// BeatDevices is how many devices of a namespace a beat looks at: MAX_DEVICES in bpf/hook/guard.bpf.c.
const BeatDevices = 8192

// Beat is the daemon's sign of life; programs pass everything to Linux when it is older than the watchdog's limit. It also says whether something was attached to a device of
// the calling thread's namespace, or taken away, since the last beat, of what raises no event: tcx programs, XDP programs by links, packet sockets. That may be the daemon's own,
// where it has not been added (see added).
func (d *Datapath) Beat() (attached bool, err error) {
	sum, err := d.sum(0)
	if err != nil {
		return false, fmt.Errorf("stamping the watchdog: %w", err)
	}
	if attached = sum != d.attached; attached {
		d.attached = sum
		d.changes++
	}
	return attached, nil
}

// sum is that of a beat (0), or what a device's tcx ingress has to do with it, which is no sign of life. It may be called from any goroutine.
func (d *Datapath) sum(index int) (uint64, error) {
	in, out := bpfobj.BeatQuery{Index: uint32(index)}, bpfobj.BeatQuery{}
	_, err := d.objects.beat.Run(&ebpf.RunOptions{Context: memory(&in), ContextOut: memory(&out)})
	return out.Attached, err
}

// memory is a query as C lays it out.
func memory[Q any](q *Q) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(q)), unsafe.Sizeof(*q)) }

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
