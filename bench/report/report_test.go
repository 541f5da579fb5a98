// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/bench/measure"
)

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

func TestPlots(t *testing.T) {
	some, none := measure.Of([]float64{1, 2, 4}), measure.Of(nil)
	bars := Bars("a < b", "ns", []Bar{{Label: "one & two", Stat: some}, {Label: "x", Stat: measure.Of([]float64{3})}})
	wellFormed(t, bars)
	if !strings.Contains(bars, "one &amp; two") || !strings.Contains(bars, "prefers-color-scheme") {
		t.Error("a label or the dark scheme is missing")
	}
	lines := Lines("t", "ns", []string{"1", "2"}, []Line{{"a", []measure.Stat{some, none}}, {"b", []measure.Stat{some, some}}})
	wellFormed(t, lines)
	if strings.Contains(lines, "NaN") || strings.Contains(bars, "NaN") {
		t.Error("a hole was drawn")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 17: "17", 1234567: "1.23M", 45678.5: "46k", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.0012: "0.0012"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestResultsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r, err := Load(path)
	if err != nil || len(r.Sections) != 0 {
		t.Fatalf("a file that is not there: %v, %v", r, err)
	}
	s := &Section{Name: "a", Provenance: Here("smoke", map[string][]string{"no": {"/does/not/exist"}})}
	s.Add("c", "v", "m", "u", 1, 2.5)
	s.Note("twice")
	s.Note("twice")
	s.Skip("x", "y")
	s.Fact("k", "v")
	r.Put(&Section{Name: "a"})
	r.Put(s)
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := Load(path)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v: %+v is not %+v", err, back, r)
	}
	if len(back.Sections) != 1 || len(back.Section("a").Notes) != 1 || back.Section("b") != nil {
		t.Errorf("%+v", back.Sections)
	}
	if p := s.Provenance; p.Kernel == "" || p.CPUs == 0 || p.MHz <= 0 || len(p.Versions) != 1 {
		t.Errorf("provenance %+v", p)
	}
}
