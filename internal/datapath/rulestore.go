// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

const (
	ruleHead      = 128     // bytes in front of all images: the table of lowest_bit(), and what is never an image
	firstRuleSize = 1 << 20 // bytes of a new array of images
	maxRuleSize   = 1 << 27
	firstCounts   = 1 << 10 // slots of a new array of counters
	maxCounts     = 1 << 20
	graceTime     = time.Second // a packet that began with an image has ended by then
	offRules      = offWant + 8*guardSlots
)

// ruleStore holds the images of rules that programs read, and the counters of rules.
//
// An image is written into room that no packet reads, and is in force with one store of its offset. Its room, and the slots of counters that
// no rule has any more, are used again after a grace period. When images do not fit the array is replaced by a larger one, which
// programs get by being loaded anew.
type ruleStore struct {
	data   *ebpf.Map
	memory *ebpf.Memory
	size   int
	counts *ebpf.Map
	maps   uint32 // how often the maps were replaced
	shapes [ruleStages]image.Shape
	now    [ruleImages]*image.Image
	number uint32 // of the image that was put in force last, of those whose verdicts may be remembered

	verdicts uint32     // how many of these there is room for on each CPU; 0 until an image is worth it
	askers   ruleAskers // programs that the table of them is for

	at     [ruleImages]room
	rooms  []room // in use and not yet free again, in the order of their offsets
	slots  counterSlots
	buffer countBuffer
	grace  grace
	sets   setLayout
	clock  func() time.Time
}

// Images by stage and family, and behind them what is asked before each family's, and before its last.
const (
	ruleStages = synth.Ways * int(image.Stages)
	ruleFronts = 2
	ruleImages = ruleStages + ruleFronts + 2
)

// all are the images of a plan as the data path counts them (SHUNT_RULE_STAGES, SHUNT_RULE_FRONTS, SHUNT_RULE_OVERS).
func allImages(want *synth.Rules) (out [ruleImages]*image.Image) {
	copy(out[:], want.Images[:])
	copy(out[ruleStages:], want.Fronts[:])
	for i, over := range want.Overs {
		out[ruleStages+ruleFronts+i] = over.Image
	}
	return out
}

// room is a part of the array.
type room struct {
	from, to int
	freed    time.Time // when it was given up; zero while it is in use
}

// deBruijn is the sequence by which bpf/node/rule_step.h finds a word's lowest bit.
const deBruijn = 0x03f79d71b4cb0a89

// open makes the maps.
func (s *ruleStore) open(o *objects, size, slots int) error {
	m, err := newRuleMaps(o, size, slots)
	if err == nil {
		s.use(o, m)
	}
	return err
}

// ruleMaps are the array for images and the counters.
type ruleMaps struct {
	data, counts *ebpf.Map
	memory       *ebpf.Memory
	size, slots  int
}

func newRuleMaps(o *objects, size, slots int) (m ruleMaps, err error) {
	spec := o.ruleData.Copy()
	spec.ValueSize, spec.Contents, spec.Key, spec.Value = uint32(size), nil, nil, nil
	spec.Flags |= unix.BPF_F_MMAPABLE
	m.size, m.slots = size, slots
	if m.data, err = ebpf.NewMap(spec); err != nil {
		return m, fmt.Errorf("creating an array of %d bytes for rules: %w", size, err)
	}
	if m.memory, err = m.data.Memory(); err != nil {
		m.data.Close()
		return m, fmt.Errorf("mapping the array for rules: %w", err)
	}
	count := o.ruleCounts.Copy()
	count.MaxEntries = uint32(slots)
	if m.counts, err = ebpf.NewMap(count); err != nil {
		m.data.Close()
		return m, fmt.Errorf("creating %d counters for rules: %w", slots, err)
	}
	var head [64]byte
	for i := range head {
		head[uint64(deBruijn)<<i>>58] = byte(i)
	}
	m.memory.WriteAt(head[:], 0) //nolint: the offset is inside by construction
	return m, nil
}

// use makes maps the ones that are used.
func (s *ruleStore) use(o *objects, m ruleMaps) {
	s.data, s.memory, s.size, s.counts, s.slots.limit = m.data, m.memory, m.size, m.counts, m.slots
	s.maps++
	s.rooms, s.at, s.now = nil, [ruleImages]room{}, [ruleImages]*image.Image{}
	o.maps[rulesMap], o.maps[countMap] = m.data, m.counts
}

// prepare finds room for what a plan has and the shape of programs that serve it: larger maps, where they do not suffice.
func (d *Datapath) prepareRules(want *synth.Rules) error {
	s := &d.rules
	need, worth := ruleHead, s.verdicts > 0
	for i, im := range allImages(want) {
		if im == nil {
			continue
		}
		worth = worth || rememberable(i, im)
		need += len(im.Bytes) + ruleHead
		if i < ruleStages { // the others ask for nothing that these do not
			s.shapes[i] = s.shapes[i].Or(im.Shape)
		}
	}
	d.findSets(want.Images[:])
	s.slots.want(want, s.clock())
	if err := s.rebase(false); err != nil {
		return err
	}
	if need == ruleHead && s.data == nil {
		return nil // no rules so far
	}
	size := s.size
	if 2*need > size { // there has to be room for each image beside the one that it replaces
		size = max(firstRuleSize, 1<<bits.Len(uint(2*need-1)))
	}
	slots := max(firstCounts, s.slots.limit)
	if n := s.slots.needed(); n > slots {
		slots = 1 << bits.Len(uint(n-1))
	}
	switch {
	case size > maxRuleSize:
		return fmt.Errorf("rules take %d bytes, more than the data path has room for", need)
	case slots > maxCounts:
		return fmt.Errorf("rules have more than %d counters", maxCounts)
	case size != s.size || slots != s.slots.limit:
		if err := d.growRules(size, slots); err != nil {
			return err
		}
	}
	if worth {
		d.fitVerdicts()
	}
	return nil
}

// ruleAskers are programs that hear the same of an image: what they ask of packets, and which maps they have.
type ruleAskers struct {
	shapes [ruleStages]image.Shape
	maps   uint32
}

// fitVerdicts makes the table of remembered verdicts, and another one where programs with other questions come: those before them may still run, and meet the new images, of
// which they do not ask everything. Without memory for it nothing is remembered.
func (d *Datapath) fitVerdicts() {
	s := &d.rules
	askers := ruleAskers{s.shapes, s.maps}
	if s.askers == askers {
		return
	}
	d.behind.end() // nobody else refers to the table by name
	places, err := d.objects.newVerdicts()
	if err != nil {
		d.log.Warn("what rules say is not remembered", "err", err)
	}
	s.verdicts, s.askers = places, askers
}

// rememberable says whether what an image says is worth remembering: that of routed packets, if it says more than a policy and asks no ipset.
func rememberable(i int, im *image.Image) bool {
	return i < 2*int(image.Stages) && im.Entries >= rememberFrom && len(im.Sets) == 0
}

// word is what programs are told of an image at that place.
func (s *ruleStore) word(i int, im *image.Image, r room) uint64 {
	if im == nil || !rememberable(i, im) {
		return uint64(r.from)
	}
	s.number = max(s.number+1, 1)
	return uint64(s.number)<<32 | uint64(r.from)
}

// growRules replaces the maps; everything goes to Linux until programs with the new ones are in place.
func (d *Datapath) growRules(size, slots int) error {
	s := &d.rules
	d.behind.end() // nobody else refers to the maps by name
	m, err := newRuleMaps(d.objects, size, slots)
	if err != nil {
		return err // with what there is the next round tries again
	}
	if s.data != nil {
		d.store(offStale, 1)
		if err := s.rebase(true); err != nil {
			return errors.Join(err, m.data.Close(), m.counts.Close())
		}
		s.data.Close()
		s.counts.Close()
	}
	for i := range ruleImages {
		d.store(offRules+8*int64(i), 0)
	}
	s.use(d.objects, m)
	return nil
}

// installRules puts a plan's images in force. Programs with their shape are in place, or everything goes to Linux until they are.
func (d *Datapath) installRules(want *synth.Rules) error {
	s := &d.rules
	images := allImages(want)
	fresh, changed, err := s.writeNew(want, &images)
	if errors.Is(err, errNoRoom) { // what is in force lies in the way of what is to be: without it there is room
		d.store(offStale, 1)
		for i := range images { // what begins now goes to Linux, and counts nothing on its way
			d.store(offRules+8*int64(i), 0)
		}
		if err := s.grace.wait(); err != nil {
			return err
		}
		s.rooms, s.at, s.now = nil, [ruleImages]room{}, [ruleImages]*image.Image{}
		fresh, changed, err = s.writeNew(want, &images)
	}
	if err != nil {
		return err
	}
	if changed > 1 { // a packet must not meet one stage of the old rules and another of the new ones
		d.store(offStale, 1)
	}
	for i, im := range images {
		if im == s.now[i] {
			continue
		}
		d.store(offRules+8*int64(i), s.word(i, im, fresh[i]))
		s.free(s.at[i])
		s.now[i], s.at[i] = im, fresh[i]
	}
	return nil
}

// writeNew writes the images that are not in force into free room; nothing is changed where one does not fit. changed counts those that are not in force any more, too.
func (s *ruleStore) writeNew(want *synth.Rules, images *[ruleImages]*image.Image) (fresh [ruleImages]room, changed int, err error) {
	for i, im := range images {
		if im == s.now[i] {
			continue
		}
		changed++
		if im == nil {
			continue
		}
		var places []ruleset.CounterPlace // fronts count nothing
		if over := i - ruleStages - ruleFronts; over >= 0 {
			places = want.Overs[over].Places
		}
		if fresh[i], err = s.write(im, s.slots.ofImage(i, places)); err != nil {
			for _, r := range fresh {
				s.free(r)
			}
			return fresh, changed, err
		}
	}
	return fresh, changed, nil
}

// write puts an image into free room; slot gives the places of its counters.
func (s *ruleStore) write(im *image.Image, slot func(ruleset.CounterID) uint32) (room, error) {
	r, err := s.take(len(im.Bytes))
	if err != nil {
		return r, err
	}
	put := func(b []byte, at int) {
		if _, e := s.memory.WriteAt(b, int64(r.from+at)); e != nil && err == nil {
			err = fmt.Errorf("writing rules: %w", e)
		}
	}
	put(im.Bytes, 0)
	var b [4]byte
	im.EachPlace(slot, func(at, word uint32) {
		binary.NativeEndian.PutUint32(b[:], word)
		put(b[:], int(at))
	})
	if im.SetsAt != 0 && err == nil {
		kinds := slices.Clone(im.Bytes[im.SetsAt:][:len(image.SetKinds)*image.SetKindSize])
		err = s.sets.put(kinds)
		put(kinds, int(im.SetsAt))
	}
	if err != nil {
		s.free(r)
	}
	return r, err
}

// take finds the first free room of n bytes, waiting for running programs where only rooms that they may still read are in the way.
func (s *ruleStore) take(n int) (room, error) {
	s.vacate(func(r room) bool { return s.clock().Sub(r.freed) >= graceTime })
	if r, ok := s.fit(n); ok {
		return r, nil
	}
	if err := s.grace.wait(); err != nil {
		return room{}, err
	}
	s.vacate(func(room) bool { return true })
	if r, ok := s.fit(n); ok {
		return r, nil
	}
	return room{}, fmt.Errorf("%w for %d bytes of rules among %d", errNoRoom, n, s.size)
}

var errNoRoom = errors.New("no room")

// vacate takes the rooms back that were given up and that nobody reads.
func (s *ruleStore) vacate(unread func(room) bool) {
	s.rooms = slices.DeleteFunc(s.rooms, func(r room) bool { return !r.freed.IsZero() && unread(r) })
}

// small is the part of the array up to which an image is kept out of the way of large ones, at the array's end: it comes and goes while those stay, and two of those are all that fit.
const small = 32

// fit takes the first gap between rooms that has n bytes, or the last for a small image.
func (s *ruleStore) fit(n int) (room, bool) {
	if n < s.size/small {
		return s.fitLast(n)
	}
	from := ruleHead
	for i := 0; ; i++ {
		if i < len(s.rooms) && s.rooms[i].from-from < n {
			from = (s.rooms[i].to + 63) &^ 63
			continue
		}
		r := room{from: from, to: from + n}
		if r.to > s.size {
			return room{}, false
		}
		s.rooms = slices.Insert(s.rooms, i, r)
		return r, true
	}
}

func (s *ruleStore) fitLast(n int) (room, bool) {
	end := s.size
	for i := len(s.rooms); ; i-- {
		from, begin := ruleHead, (end-n)&^63
		if i > 0 {
			from = s.rooms[i-1].to
		}
		if begin >= from {
			r := room{from: begin, to: begin + n}
			s.rooms = slices.Insert(s.rooms, i, r)
			return r, true
		}
		if i == 0 {
			return room{}, false
		}
		end = s.rooms[i-1].from
	}
}

func (s *ruleStore) free(r room) {
	for i := range s.rooms {
		if s.rooms[i].from == r.from && r.to != 0 {
			s.rooms[i].freed = s.clock()
		}
	}
}

// configure writes what is fixed about rules into a program's configuration.
func (s *ruleStore) configure(c *bpfobj.Config) {
	for i, shape := range s.shapes {
		if !shape.On {
			continue
		}
		c.Rules[i].Dims, c.Rules[i].Asks = shape.Word(), shape.Asks
		c.RuleDims |= c.Rules[i].Dims
		c.RuleAsks |= shape.Asks
	}
	if c.RuleDims != 0 {
		c.RuleMask, c.RuleMaps, c.Sets, c.RuleMoves, c.Verdicts = uint64(s.size-1), s.maps, s.sets.at, bpfobj.RuleMoves, s.verdicts
	}
}
