// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"encoding/binary"
	"slices"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// blacklist is a table filter that drops so many sources in FORWARD, as the kernel gives it.
func blacklist(sources int) []byte {
	put16, put32 := binary.NativeEndian.PutUint16, binary.NativeEndian.PutUint32
	blob := make([]byte, infoSize)
	copy(blob, "filter")
	number := 0
	add := func(source uint32, verdict int32, chain string) {
		size := entry4.size + extensionHeader + 8
		if chain != "" {
			size = entry4.size + extensionHeader + 32
		}
		e := make([]byte, size)
		if source != 0 {
			binary.BigEndian.PutUint32(e, source)
			put32(e[8:], ^uint32(0))
		}
		put16(e[entry4.target:], uint16(entry4.size))
		put16(e[entry4.next:], uint16(size))
		put16(e[entry4.size:], uint16(size-entry4.size))
		if chain != "" {
			copy(e[entry4.size+2:], "ERROR")
			copy(e[entry4.size+extensionHeader:], chain)
		} else {
			put32(e[entry4.size+extensionHeader:], uint32(verdict))
		}
		blob, number = append(blob, e...), number+1
	}
	for i := range sources {
		add(0x0b000000+uint32(i), verdictDrop, "")
	}
	put32(blob[infoUnderflow+4*2:], uint32(len(blob)-infoSize))
	add(0, verdictAccept, "")
	add(0, 0, "ERROR")
	put32(blob[infoValid:], 1<<2)
	put32(blob[infoEntries:], uint32(number))
	put32(blob[infoBytes:], uint32(len(blob)-infoSize))
	return blob
}

// One rule more is decoded, and no other.
func TestOneRuleMore(t *testing.T) {
	var out rs.Ruleset
	m := NewMemory()
	was, err := FollowTable(blacklist(50), rs.IP4, &Context{}, &out, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	out.Counters = slices.Clone(out.Counters)
	now, err := FollowTable(blacklist(51), rs.IP4, &Context{}, &out, m, &was)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(out.Counters); n != 52 || out.Counters[0].At.Index != 51 || out.Counters[51].At.Index != 50 {
		t.Errorf("%d counters, of the policy at %d, of the new rule at %d", n, out.Counters[0].At.Index, out.Counters[51].At.Index)
	}
	for i := range was.Chains[0].Rules {
		if &was.Chains[0].Rules[i].Steps[0] != &now.Chains[0].Rules[i].Steps[0] {
			t.Fatalf("rule %d is another value", i+1)
		}
	}
}

// A changed rule among very many has to be read within a few milliseconds.
func BenchmarkFollowTable(b *testing.B) {
	blobs := [][]byte{blacklist(10_000), blacklist(10_001)}
	var out rs.Ruleset
	m := NewMemory()
	var before *rs.Table
	for i := 0; b.Loop(); i++ {
		out.Counters = slices.Clone(out.Counters)
		t, err := FollowTable(blobs[i%2], rs.IP4, &Context{}, &out, m, before)
		if err != nil {
			b.Fatal(err)
		}
		before = &t
	}
}
