// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// Stage is the part of a packet's way that an image is for.
type Stage uint8

// The stages: where Linux tracks connections the hooks before that, the others before the routing decision, and those behind it.
const (
	Raw Stage = iota
	Pre
	Post
	Stages
)

// Shape says what an image asks of a packet; the program that evaluates it has to bring that. A program with a larger shape serves too.
type Shape struct {
	On   bool
	Dims uint16 // 1 << Dim
	Asks uint32 // 1 << value: what the conditions ask for that no row knows; AsksSender, AsksReceiver
	Sets Sets
	Tree bool // entries may be found by trees, in place of rows
}

// AsksSender, in Shape.Asks, says that the image holds for senders whose address is of type unicast, which the program has to prove: SHUNT_ASKS_SENDER.
const AsksSender = 1 << 30

// AsksReceiver is the same for the receivers of IPv6 behind the route: SHUNT_ASKS_RECEIVER.
const AsksReceiver = 1 << 29

// Sets is what entries change of a packet.
type Sets uint32

// What they can change: SHUNT_RULES_DS, SHUNT_RULES_MARK, SHUNT_RULES_NOTRACK, SHUNT_RULES_ZONE and SHUNT_RULES_PRIORITY in bpf/types.h.
const (
	SetsDS       Sets = 1 << 30
	SetsMark     Sets = 1 << 29
	SetsTrack    Sets = 1 << 28
	SetsZone     Sets = 1 << 27
	SetsPriority Sets = 1 << 25

	shapeOn   = 1 << 31 // SHUNT_RULES_ON
	shapeTree = 1 << 26 // SHUNT_RULES_TREE
)

// Or is the shape that serves both.
func (s Shape) Or(t Shape) Shape {
	return Shape{s.On || t.On, s.Dims | t.Dims, s.Asks | t.Asks, s.Sets | t.Sets, s.Tree || t.Tree}
}

// Word is the shape but for Asks, as programs are told (struct shunt_rule_shape); 0 where there is no stage.
func (s Shape) Word() uint32 {
	if !s.On {
		return 0
	}
	word := uint32(s.Dims) | uint32(s.Sets) | shapeOn
	if s.Tree {
		word |= shapeTree
	}
	return word
}

// Image is what one stage does to the packets of one family.
type Image struct {
	Bytes    []byte
	Shape    Shape
	Counters []ruleset.CounterID // the counters that entries move
	Places   []uint32            // where in Bytes a number of Counters stands, 32 bits; the installer writes the counter's slot there
	SetsAt   uint32              // where in Bytes the installer writes how each of SetKinds is asked; 0 where no rule asks ipsets
	Sets     []Set               // the ipsets that rules ask
	Entries  int
	Slow     int                 // entries that leave packets to Linux
	Unsaid   int                 // of these, entries that do so since the image cannot express them
	Left     []rules.SlowTraffic // which these are

	asks  []deviceAsk
	named bool // it has the names of all devices
}

// Place writes an image's counters: slot gives the slot of each.
func (im *Image) Place(bytes []byte, slot func(ruleset.CounterID) uint32) {
	im.EachPlace(slot, func(at, word uint32) { binary.NativeEndian.PutUint32(bytes[at:], word) })
}

// EachPlace gives the words that Place writes, and where, to those who have the rest of the image elsewhere.
func (im *Image) EachPlace(slot func(ruleset.CounterID) uint32, put func(at, word uint32)) {
	for _, at := range im.Places {
		n := binary.NativeEndian.Uint32(im.Bytes[at:])
		put(at, n&^counterMask|slot(im.Counters[n&counterMask]))
	}
}

// Options say what to compile for.
type Options struct {
	Stage Stage
	// CT says that the fast path takes only packets of established connections (node/conntrack.h), which
	// decides what rules ask of the state. Without it whoever reaches such a test goes to Linux.
	CT bool
	// Valued are dimensions (1 << Dim) that no row is to be made of: what they stand for is asked one by one.
	Valued uint16
	// TreeFrom is how many entries it takes to have trees in place of rows (and in a leaf at most, if that is fewer than usual): 0 for as many as are worth it, less for never.
	TreeFrom int
}

// Compile makes the image of one stage of a program whose class leaves the devices open. devices are all logical interfaces that a packet can come
// in or leave by. It is nil when the stage does nothing.
func Compile(pr *rules.Program, devices []rules.Device, o Options) (*Image, error) {
	l := newLowering(pr, devices, o)
	entries := l.run()
	if entries == nil {
		return nil, nil
	}
	im, err := layOut(entries, devices, pr.Class, o)
	if im != nil {
		im.asks = entries.asks
	}
	return im, err
}
