// SPDX-License-Identifier: Apache-2.0

// Package suitetest keeps the suites of benchmarks from rotting: it runs them in miniature, as tests.
//
// Problem: a benchmark is run rarely, and breaks unseen between two runs.
//
// Mechanism: every section of a suite at the size "smoke", then the page of what it found. No figure is looked at: on a busy machine
// they mean nothing.
//
// Callers: the tests of the programs under bench. A crash leaves what package suite leaves.
package suitetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

// Smoke runs every section in miniature and makes the page, which must hold what is wanted. The working directory is that of a
// package two levels below the module's root.
func Smoke(t *testing.T, u suite.Suite, wanted ...string) {
	lab.RequireRoot(t)
	if testing.Short() {
		t.Skip("takes a minute or two on a slow machine")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("needs 2 CPUs, one for the generator and one for the router")
	}
	dir := t.TempDir()
	o := suite.Options{Size: suite.Sizes["smoke"], Shunt: filepath.Join(dir, "shunt"), DutCPU: 1, GenCPU: 0}
	if out, err := exec.Command("go", "build", "-o", o.Shunt, "../../cmd/shunt").CombinedOutput(); err != nil {
		t.Fatalf("building the daemon: %v\n%s", err, out)
	}
	results := filepath.Join(dir, "results.json")
	if err := u.MeasureAll(o, results, "", false); err != nil {
		t.Fatal(err)
	}
	r, err := report.Load(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range u.Sections {
		if got := r.Section(s.Name); got == nil || len(got.Rows)+len(got.Skipped) == 0 || got.Provenance.Size == suite.Incomplete {
			t.Errorf("section %s: nothing, or not all, was measured", s.Name)
		}
	}
	page(t, u, results, wanted)
}

// page makes the page twice.
func page(t *testing.T, u suite.Suite, results string, wanted []string) {
	path := filepath.Join(t.TempDir(), "page.md")
	write := func() string {
		if err := u.WritePage(results, path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := write()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "NaN") {
		t.Error("the page has a figure that is none")
	}
	if write() != text {
		t.Error("the same results give two pages")
	}
}

// Complete checks that every section has what a section needs, and a place on the page; rendered are the names of those that have one.
func Complete(t *testing.T, u suite.Suite, rendered []string) {
	places := map[string]bool{}
	for _, name := range rendered {
		places[name] = true
	}
	for _, s := range u.Sections {
		if !places[s.Name] {
			t.Errorf("section %s has no place on the page", s.Name)
		}
		if s.Title == "" || s.About == "" || s.Run == nil {
			t.Errorf("section %s is not complete", s.Name)
		}
	}
	if len(rendered) != len(u.Sections) {
		t.Errorf("%d sections, %d places on the page", len(u.Sections), len(rendered))
	}
}
