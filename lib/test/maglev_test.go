// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shuntnet/shunt/lib/maglev"
)

// TestMaglev: a program finds in a table what lib/maglev, which filled it, finds there, and spreads flows as the weights say.
func TestMaglev(t *testing.T) {
	m := load(t, "maglev", nil)
	var all []maglev.Backend
	for i := range uint32(20) {
		all = append(all, maglev.Backend{ID: maglev.ID(fmt.Sprint("b", i)), Weight: 1 + i%2})
	}
	small, large := make([]uint16, 251), make([]uint16, 65537)
	var raw []byte
	for _, table := range [][]uint16{small, large} {
		if err := maglev.Fill(table, all); err != nil {
			t.Fatal(err)
		}
		for _, b := range table {
			raw = binary.NativeEndian.AppendUint16(raw, b)
		}
	}
	m.put("tables", raw)
	var flows [20]float64
	total := 0.0
	m.compare("maglev", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(2)), A: word(r)}
		random := r.IntN(2) == 0
		if random {
			s.A = r.Uint64()
		}
		table := small
		if s.Op == 1 {
			table = large
		}
		want := maglev.Lookup(table, s.A)
		if random && s.Op == 1 {
			flows[want]++
			total++
		}
		return s, uint64(want), true
	})
	for i, n := range flows {
		if share := n / total * 30 / float64(all[i].Weight); share < 0.95 || share > 1.05 {
			t.Errorf("backend %d of weight %d gets %.3f of its share", i, all[i].Weight, share)
		}
	}
}

// TestMaglevEmpty: a table without backends sends flows nowhere.
func TestMaglevEmpty(t *testing.T) {
	m := load(t, "maglev", nil)
	table := make([]uint16, 251)
	if err := maglev.Fill(table, nil); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 2*(251+65537))
	for i, b := range table {
		binary.NativeEndian.PutUint16(raw[2*i:], b)
	}
	m.put("tables", raw)
	for _, s := range m.run("maglev", []step{{A: 0}, {A: ^uint64(0)}, {A: 1 << 63}}) {
		if s.Out != maglev.None {
			t.Errorf("%+v", s)
		}
	}
}
