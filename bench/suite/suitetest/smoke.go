// SPDX-License-Identifier: Apache-2.0

// Package suitetest keeps the suites of benchmarks from rotting: it runs them in miniature, as tests.
//
// Problem: a benchmark is run rarely, and breaks unseen between two runs.
//
// Mechanism: every section of a suite at the size "smoke", then the page of what it found. No figure is looked at: on a busy machine
// they mean nothing. Where SHUNT_TURN is a number (scripts/turn.sh), as in CI, every third section from there on, beside what is published of the others.
//
// Callers: the tests of the programs under bench. A crash leaves what package suite leaves.
package suitetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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
	measured := u.Sections
	if turn, only := sectionsOf(t, u); only != nil {
		t.Logf("turn %d: of %d sections %s", turn, len(u.Sections), namesOf(only))
		published(t, results)
		measured = only
	}
	if err := u.MeasureAll(o, results, namesOf(measured), true); err != nil {
		t.Fatal(err)
	}
	r, err := report.Load(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range measured {
		if got := r.Section(s.Name); got == nil || len(got.Rows)+len(got.Skipped) == 0 || got.Provenance.Size != o.Size.Name {
			t.Errorf("section %s: nothing, or not all, was measured", s.Name)
		}
	}
	page(t, u, results, wanted)
}

// oneIn is of how many sections one is measured where they take turns.
const oneIn = 3

// sectionsOf chooses the sections whose turn it is, none where they take no turns.
func sectionsOf(t *testing.T, u suite.Suite) (turn int, only []suite.Section) {
	text, set := os.LookupEnv("SHUNT_TURN")
	if !set {
		return 0, nil
	}
	turn, err := strconv.Atoi(text)
	if err != nil || turn < 0 {
		t.Fatalf("SHUNT_TURN=%s: wanted is a number from 0 on", text)
	}
	for i := turn % oneIn; i < len(u.Sections); i += oneIn {
		only = append(only, u.Sections[i])
	}
	return turn, only
}

func namesOf(sections []suite.Section) string {
	var names []string
	for _, s := range sections {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}

// published begins with the results that are committed, for a page of which a part was measured.
func published(t *testing.T, results string) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../results/" + filepath.Base(dir) + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(results, text, 0o644); err != nil {
		t.Fatal(err)
	}
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
