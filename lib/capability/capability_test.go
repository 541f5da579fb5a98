// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// TestDetect: what is not there is not offered, and the reason is told.
func TestDetect(t *testing.T) {
	w, reasons := Detect()
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		t.Skipf("the module is loaded here (%v, %q); lib/test looks at that", w, reasons)
	}
	if w != 0 || len(reasons) != 1 || !strings.Contains(reasons[0], "not loaded") {
		t.Errorf("without the module: %v, %q", w, reasons)
	}
}

// TestJudge: a function is offered if the module claims it and programs can call it.
func TestJudge(t *testing.T) {
	all := func(string) error { return nil }
	for _, c := range []struct {
		text    string
		have    func(string) error
		want    Word
		reasons string // of the first function that is not offered
	}{
		{"7\n", all, CRC32c | Match16x16 | Hash8, ""},
		{"1\n", all, CRC32c, "match16x16: this processor"},
		{"0", all, 0, "crc32c: this processor"},
		{"15", all, CRC32c | Match16x16 | Hash8, ""}, // a newer module knows more
		{"", all, 0, "no number"},
		{"-1", all, 0, "no number"},
		{"7", func(f string) error {
			if f == "shunt_kmod_match16x16" {
				return errors.New("gone")
			}
			return nil
		}, CRC32c | Hash8, "match16x16: function shunt_kmod_match16x16: gone"},
	} {
		w, reasons := judge(c.text, c.have)
		if w != c.want {
			t.Errorf("%q: %v, want %v", c.text, w, c.want)
		}
		if c.reasons == "" && len(reasons) != 0 || c.reasons != "" && (len(reasons) == 0 || !strings.Contains(reasons[0], c.reasons)) {
			t.Errorf("%q: reasons %q, want %q", c.text, reasons, c.reasons)
		}
	}
}

// TestSet: the object of lib/test gets the word; one that would ignore it is refused.
func TestSet(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("../test/testdata/accel.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	if err := Set(spec, Match16x16); err != nil {
		t.Fatal(err)
	}
	var got Word
	if err := spec.Variables["shunt_capabilities"].Get(&got); err != nil || got != Match16x16 {
		t.Errorf("the variable is %v, %v", got, err)
	}
	if err := Set(&ebpf.CollectionSpec{}, 0); err == nil {
		t.Error("an object without the variable was accepted")
	}
}

func TestString(t *testing.T) {
	for w, want := range map[Word]string{0: "none", CRC32c | Hash8: "crc32c+hash8", Match16x16 | 64: "match16x16+0x40"} {
		if w.String() != want {
			t.Errorf("%d is %q, want %q", uint64(w), w, want)
		}
	}
}
