// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// kind is an extension whose options are understood: how they are written into its struct.
type kind struct {
	rev     uint8
	size    int    // of the struct
	kernel  string // the kernel's name for it, where it is another
	only    int    // 4 or 6: for one family
	begin   func(b []byte)
	options map[string]option
	others  map[string]int // options that only Linux evaluates, with the number of their words
	need    []string       // one of them has to be given
}

// option is an option with so many words behind it.
type option struct {
	words int
	not   bool   // can be negated
	what  string // that its words are
	name  string // of options that exclude each other, and of aliases; "" for the one it is called
	set   func(p *ruleParser, b []byte, w []word, not bool) error
}

// key is the name under which an option is remembered as given.
func (o *option) key(name string) string {
	if o.name != "" {
		return o.name
	}
	return name
}

func (k *kind) knows(option string) bool {
	_, native := k.options[option]
	_, other := k.others[option]
	return native || other
}

func (k *kind) names() string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(k.options)), maps.Keys(k.others))
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (k *kind) kernelName(name string) string {
	if k.kernel != "" {
		return k.kernel
	}
	return name
}

// complete says what an extension lacks.
func (k *kind) complete(p *ruleParser, e *extension) error {
	for _, n := range k.need {
		if o := k.options[n]; e.given[o.key(n)] {
			return nil
		}
	}
	if k.need != nil {
		return p.fail(e.name, "needs %s", strings.Join(k.need, " or "))
	}
	return nil
}

func put16(b []byte, at int, n uint64) { binary.NativeEndian.PutUint16(b[at:], uint16(n)) }
func put32(b []byte, at int, n uint64) { binary.NativeEndian.PutUint32(b[at:], uint32(n)) }

func or8(b []byte, at int, bits uint8, when bool) {
	if when {
		b[at] |= bits
	}
}

func or16(b []byte, at int, bits uint16, when bool) {
	if when {
		binary.NativeEndian.PutUint16(b[at:], binary.NativeEndian.Uint16(b[at:])|bits)
	}
}

func or32(b []byte, at int, bits uint32, when bool) {
	if when {
		binary.NativeEndian.PutUint32(b[at:], binary.NativeEndian.Uint32(b[at:])|bits)
	}
}

// with gives options under several names.
func with(o option, names ...string) map[string]option {
	o.name = names[0]
	out := map[string]option{}
	for _, n := range names {
		out[n] = o
	}
	return out
}

func merge(all ...map[string]option) map[string]option {
	out := map[string]option{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
