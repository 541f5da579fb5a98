// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// recorded are the blobs of a recorded reading: struct ipt_getinfo and the entries, by question.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open("../testdata/rules/legacy.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]byte{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Ask   string
			Bytes []byte
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Ask, "legacy 2 ") {
			out[e.Ask] = e.Bytes
		}
	}
	if len(out) < 4 {
		t.Fatalf("%d recorded tables", len(out))
	}
	return out
}

func decode(blob []byte) (*rs.Table, error) {
	return DecodeTable(blob, rs.IP4, &Context{}, &rs.Ruleset{})
}

// TestTruncatedTablesAreErrors cuts every table at every multiple of four bytes: none may be taken for a whole one.
func TestTruncatedTablesAreErrors(t *testing.T) {
	for name, blob := range recorded(t) {
		if _, err := decode(blob); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := 0; n < len(blob); n += 4 {
			cut := bytes.Clone(blob[:n])
			if _, err := decode(cut); err == nil {
				t.Fatalf("%s cut at %d of %d is no error", name, n, len(blob))
			}
			if n < infoSize {
				continue
			}
			binary.NativeEndian.PutUint32(cut[infoBytes:], uint32(n-infoSize)) // as if the kernel had said so
			if table, err := decode(cut); err == nil {
				t.Fatalf("%s cut at %d of %d is taken for %d chains", name, n, len(blob), len(table.Chains))
			}
		}
	}
}

// TestChangedBytesAreNoPanic changes every byte of a table.
func TestChangedBytesAreNoPanic(t *testing.T) {
	blob := recorded(t)["legacy 2 mangle"]
	for n := range blob {
		for _, b := range []byte{0, 0xff, blob[n] + 1} {
			bad := bytes.Clone(blob)
			bad[n] = b
			decode(bad)
		}
	}
}

// TestRevisionsAreNotGuessed gives every extension a revision that no kernel has yet, and a struct that is too short.
func TestRevisionsAreNotGuessed(t *testing.T) {
	unknown := func(steps []rs.Step) bool {
		for _, s := range steps {
			if u, ok := s.(rs.Unknown); ok && u.Name != "" && u.Text != "" {
				return true
			}
		}
		return false
	}
	for name := range matches {
		if name == "comment" {
			continue // means nothing, whatever is in it
		}
		if steps, text := Match(&Context{}, Extension{Name: name, Revision: 99, Info: make([]byte, 512)}); !unknown(steps) {
			t.Errorf("revision 99 of match %s is taken for %s: %v", name, text, steps)
		}
		for rev := range uint8(5) {
			if steps, text := Match(&Context{}, Extension{Name: name, Revision: rev, Info: nil}); !unknown(steps) {
				t.Errorf("an empty match %s is taken for %s: %v", name, text, steps)
			}
		}
	}
	for name := range targets {
		if steps, text := Target(&Context{}, Extension{Name: name, Revision: 99, Info: make([]byte, 512)}); !unknown(steps) {
			t.Errorf("revision 99 of target %s is taken for %s: %v", name, text, steps)
		}
	}
	for _, name := range []string{"telepathy", ""} {
		m, _ := Match(&Context{}, Extension{Name: name, Revision: 0, Info: nil})
		j, _ := Target(&Context{}, Extension{Name: name, Revision: 0, Info: nil})
		if !unknown(m) || !unknown(j) {
			t.Errorf("extension %q is taken for something", name)
		}
	}
}

// FuzzTable: no blob and no extension, however broken, may make anything panic.
func FuzzTable(f *testing.F) {
	for _, blob := range recorded(f) {
		f.Add(blob)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, six := range []bool{false, true} {
			DecodeTable(b, rs.IP4, &Context{Six: six}, &rs.Ruleset{})
			for name := range matches {
				Match(&Context{Six: six}, Extension{Name: name, Revision: uint8(len(b) % 5), Info: b})
			}
			for name := range described {
				Match(&Context{Six: six}, Extension{Name: name, Revision: 0, Info: b})
			}
			for name := range kernelTargets {
				Target(&Context{Six: six}, Extension{Name: name, Revision: uint8(len(b) % 4), Info: b})
			}
		}
	})
}

// A table that was read before gives the same values, with the counters of the same numbers, as if it were read for the first time.
func TestFollowedTableIsTheSame(t *testing.T) {
	for name, blob := range recorded(t) {
		var fresh, out rs.Ruleset
		want, err := DecodeTable(blob, rs.IP4, &Context{}, &fresh)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMemory()
		first, err := FollowTable(blob, rs.IP4, &Context{}, &out, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FollowTable(blob, rs.IP4, &Context{}, &out, m, &first)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&first, want) || !reflect.DeepEqual(&again, want) || !reflect.DeepEqual(out.Counters, fresh.Counters) {
			t.Errorf("%s: followed it is another table", name)
		}
		for i := range again.Chains {
			if r, was := again.Chains[i].Rules, first.Chains[i].Rules; len(r) > 0 && &r[0] != &was[0] {
				t.Errorf("%s: chain %s is not taken over", name, again.Chains[i].Name)
			}
		}
	}
}

// Rules that are gone are forgotten at last, and those that are there are not.
func TestMemoryForgets(t *testing.T) {
	m := NewMemory()
	for i := range 10_000 {
		m.reading++
		for _, key := range []string{"stays", "stays", fmt.Sprint(i)} {
			if a := m.alike([]byte(key)); m.next(a) == nil {
				m.keep(a, remembered{text: key, counter: rs.CounterID(m.size)})
			}
		}
		m.forget(3)
	}
	if m.size > 1030 || len(m.rules) > 1030 || len(m.rules["stays"].rules) != 2 {
		t.Errorf("%d rules are kept, %d keys", m.size, len(m.rules))
	}
}
