// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block of code is indented by four spaces, blank lines in between included.
var indented = regexp.MustCompile(`(?m)^    .*\n(?:(?:\s*\n)?    .*\n)*`)

// notOfStructures are the pages that are about something else.
var notOfStructures = []string{"README.md", "enetstl.md", "kmod.md", "tutorial.md"}

// TestPages: each structure's page says when to use it, what it costs and where it ends, and has an example: a whole program, which compiles as it is
// written and loads, or a piece of one of lib/examples, which have tests of their own.
func TestPages(t *testing.T) {
	if os.Getenv("SHUNT_VM") != "" {
		t.Skip("there is no documentation in here")
	}
	needCompiler(t, newestClang)
	pages, err := filepath.Glob("../../docs/lib/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		structure, whole := !slices.Contains(notOfStructures, filepath.Base(page)), 0
		for _, word := range []string{"**When", "Cost", "Limits"} {
			if structure && !strings.Contains(string(text), word) {
				t.Errorf("%s: nothing about %q", page, word)
			}
		}
		for _, block := range indented.FindAllString(string(text), -1) {
			source := regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
			if !strings.Contains(source, "_license[]") {
				continue
			}
			whole++
			t.Run(filepath.Base(page), func(t *testing.T) {
				object := filepath.Join(t.TempDir(), "page.bpf.o")
				if said, err := compileText(newestClang, source, "-g", "-o", object); err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
				if os.Geteuid() != 0 {
					t.Skip("loading programs needs root")
				}
				loads(t, object)
			})
		}
		if structure && whole == 0 && !strings.Contains(string(text), "../../lib/examples/") {
			t.Errorf("%s: no example that is tested", page)
		}
	}
}
