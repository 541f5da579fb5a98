// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// contents are what goes into the object's data sections.
type contents struct {
	images [2 * image.Stages]*image.Image
	maps   *mappings
}

const (
	firstImage = 128 // behind the table of lowest_bit()
	deBruijn   = 0x03f79d71b4cb0a89
	maxRules   = 1 << 27 // bytes

	mapDestinations = 1
	mapSources      = 2
)

// write puts the contents into the object for a hook.
func (c *contents) write(hook Hook) ([]byte, error) {
	skeleton := bpfobj.AloneXDP()
	if hook == TC {
		skeleton = bpfobj.AloneTC()
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(skeleton))
	if err != nil {
		return nil, fmt.Errorf("reading the object that is built in: %w", err)
	}
	o, err := openELF(skeleton)
	if err != nil {
		return nil, fmt.Errorf("reading the object that is built in: %w", err)
	}
	data, bases, err := c.rules()
	if err != nil {
		return nil, err
	}
	config := bpfobj.Config{RuleMask: uint64(len(data) - 1), RuleMoves: bpfobj.RuleMoves}
	for i, im := range c.images {
		if im != nil {
			config.Rules[i].Dims, config.Rules[i].Asks = im.Shape.Word(), im.Shape.Asks
			config.RuleDims |= config.Rules[i].Dims
			config.RuleAsks |= im.Shape.Asks
		}
	}
	var frozen bytes.Buffer
	if err := binary.Write(&frozen, binary.LittleEndian, &config); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	at, err := liveRules(spec)
	if err != nil {
		return nil, err
	}
	mapped, size, err := c.maps.tables()
	if err != nil {
		return nil, err
	}
	var on uint32
	if len(c.maps.destinations) > 0 {
		on |= mapDestinations
	}
	if len(c.maps.sources) > 0 {
		on |= mapSources
	}
	for _, w := range []error{
		o.patch(".rodata", offsetOf(spec, "frozen"), frozen.Bytes()),
		o.patch(".rodata", offsetOf(spec, "mapping"), binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, on), uint32(size-1))),
		o.patch(".data.live", offsetOf(spec, "live")+at, bases),
		o.replace(".data.rules", data),
		o.replace(".data.mapping", mapped),
	} {
		if w != nil {
			return nil, fmt.Errorf("writing the object: %w", w)
		}
	}
	return o.bytes, nil
}

// rules are the images, one behind the other, in an array whose size is a power of two; and where each begins.
func (c *contents) rules() (data, bases []byte, err error) {
	need := firstImage
	bases = make([]byte, 8*len(c.images))
	for i, im := range c.images {
		if im != nil {
			binary.LittleEndian.PutUint64(bases[8*i:], uint64(need))
			need = (need + len(im.Bytes) + 63) &^ 63
		}
	}
	size := 1 << bits.Len(uint(need-1))
	if size > maxRules {
		return nil, nil, fmt.Errorf("the rules take %d bytes, more than an object can hold", need)
	}
	data = make([]byte, size)
	for i := range 64 {
		data[uint64(deBruijn)<<i>>58] = byte(i)
	}
	for i, im := range c.images {
		if im != nil {
			at := binary.LittleEndian.Uint64(bases[8*i:])
			copy(data[at:], im.Bytes)
			im.Place(data[at:], func(ruleset.CounterID) uint32 { return 0 })
		}
	}
	return data, bases, nil
}

// offsetOf is where a variable lies in its section.
func offsetOf(spec *ebpf.CollectionSpec, name string) int {
	for _, m := range spec.Maps {
		if sec, ok := m.Value.(*btf.Datasec); ok {
			for _, v := range sec.Vars {
				if v.Type.TypeName() == name {
					return int(v.Offset)
				}
			}
		}
	}
	return -1
}

// liveRules is where struct shunt_live says where images begin.
func liveRules(spec *ebpf.CollectionSpec) (int, error) {
	var live *btf.Struct
	if err := spec.Types.TypeByName("shunt_live", &live); err != nil {
		return 0, fmt.Errorf("reading the object that is built in: %w", err)
	}
	for _, m := range live.Members {
		if m.Name == "rules" {
			return int(m.Offset.Bytes()), nil
		}
	}
	return 0, fmt.Errorf("reading the object that is built in: struct shunt_live has no rules")
}

// ordered gives entries in an order that does not change from run to run.
func ordered(entries map[end]end) iter.Seq2[end, end] {
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b end) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return func(yield func(end, end) bool) {
		for _, k := range keys {
			if !yield(k, entries[k]) {
				return
			}
		}
	}
}
