// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"bytes"
	"go/format"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is where a file has become several; the usual one has 80 to 250.
const maxLines = 900

func tree(t *testing.T) []File {
	t.Helper()
	files, err := Tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d files found: this is not the repository", len(files))
	}
	return files
}

// script says whether a file is run by a shell, with or without a suffix.
func script(f File) bool {
	first, _, _ := bytes.Cut(f.Text, []byte("\n"))
	return path.Ext(f.Path) == ".sh" || bytes.HasPrefix(first, []byte("#!")) && bytes.Contains(first, []byte("sh"))
}

// library says whether a file belongs to what authors of other programs may take: the function library, not its kernel module.
func library(f File) bool {
	return strings.HasPrefix(f.Path, "bench/lib/") || strings.HasPrefix(f.Path, "lib/") && !strings.HasPrefix(f.Path, "lib/kmod/")
}

// licence is the identifier that a file must carry, "" if its kind carries none.
func licence(f File) string {
	switch ext := path.Ext(f.Path); {
	case f.Generated() || f.Vendored():
		return ""
	case (ext == ".c" || ext == ".h") && library(f):
		return "BSD-2-Clause OR GPL-2.0"
	case ext == ".c" || ext == ".h":
		return "GPL-2.0"
	case ext == ".go" || script(f):
		return "Apache-2.0"
	}
	return ""
}

// TestLicenceHeaders: each source file names its licence in its first lines, C under bpf/ the kernel's, C of the library either of two.
func TestLicenceHeaders(t *testing.T) {
	line := regexp.MustCompile(`SPDX-License-Identifier: (\S+(?: OR \S+)?)`)
	for _, f := range tree(t) {
		want := licence(f)
		if want == "" {
			continue
		}
		head := bytes.Join(bytes.SplitN(f.Text, []byte("\n"), 4)[:min(3, f.Lines())], []byte("\n"))
		m := line.FindSubmatch(head)
		switch {
		case m == nil:
			t.Errorf("%s: no SPDX-License-Identifier in its first three lines, want %s", f.Path, want)
		case string(m[1]) != want:
			t.Errorf("%s: licensed %s, want %s (see LICENSE)", f.Path, m[1], want)
		}
	}
	for _, name := range []string{"GPL-2.0-only", "Apache-2.0", "BSD-2-Clause"} {
		if _, err := os.Stat(filepath.Join(root, "LICENSES", name+".txt")); err != nil {
			t.Errorf("the text of %s: %v", name, err)
		}
	}
}

// TestFileLength: a file is read as a whole, so it must be possible to.
func TestFileLength(t *testing.T) {
	for _, f := range tree(t) {
		if f.Generated() || f.Vendored() || !f.IsText() || strings.Contains(f.Path, "testdata/") || skipLength[path.Base(f.Path)] {
			continue
		}
		switch path.Ext(f.Path) {
		case ".go", ".c", ".h", ".sh", ".md", "":
			if n := f.Lines(); n > maxLines {
				t.Errorf("%s: %d lines, more than %d: it is several files", f.Path, n, maxLines)
			}
		}
	}
}

var skipLength = map[string]bool{"go.sum": true}

// TestGofmt: formatting is not a matter of opinion.
func TestGofmt(t *testing.T) {
	for _, f := range tree(t) {
		if path.Ext(f.Path) != ".go" {
			continue
		}
		want, err := format.Source(f.Text)
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
		} else if !bytes.Equal(want, f.Text) {
			t.Errorf("%s: not formatted; run `gofmt -w %s`", f.Path, f.Path)
		}
	}
}

// TestScripts: shell scripts end at the first failure, or say in the same line why they must not.
func TestScripts(t *testing.T) {
	for _, f := range tree(t) {
		if !script(f) || !bytes.HasPrefix(f.Text, []byte("#!")) { // parts that others source follow these
			continue
		}
		if !regexp.MustCompile(`(?m)^\s*set -[a-z]*(e|\+e .*#)`).Match(f.Text) && !bytes.Contains(f.Text, []byte("no set -e")) {
			t.Errorf("%s: without `set -e` a failed command goes unnoticed (say \"no set -e\" and why, if that is wanted)", f.Path)
		}
	}
}

// TestMakeTargets: `make help` lists what there is, so each target has its line of help, once.
func TestMakeTargets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?m)^([a-z0-9-]+):($|[^=\n].*)$`)
	_, phony, _ := strings.Cut(string(text), "\n.PHONY:")
	seen := map[string]bool{}
	variable := regexp.MustCompile(`^\s*\w+\s*[?:+]?=`) // for this target alone: no rule
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		if variable.MatchString(m[2]) {
			continue
		}
		if _, help, ok := strings.Cut(m[2], "## "); !ok || len(help) < 10 {
			t.Errorf("target %s has no help text: NAME: … ## what it does", m[1])
		}
		if !slices.Contains(strings.Fields(phony), m[1]) {
			t.Errorf("target %s is not in .PHONY: a file of that name would hide it", m[1])
		}
		if seen[m[1]] {
			t.Errorf("target %s is defined twice", m[1])
		}
		seen[m[1]] = true
	}
	for _, want := range []string{"help", "build", "generate", "test", "test-unit", "test-vm", "demo", "install", "clean"} {
		if !seen[want] {
			t.Errorf("no target %s", want)
		}
	}
}
