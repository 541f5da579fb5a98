// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

const manDir = "../../docs/man"

// TestManPagesAreCurrent compares docs/man with the commands; with UPDATE_MAN=1 it writes the pages. shunt.8 is written by hand.
func TestManPagesAreCurrent(t *testing.T) {
	fresh := t.TempDir()
	date := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	root := newRoot()
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "shunt", Manual: "shunt", Date: &date}, fresh); err != nil {
		t.Fatal(err)
	}
	want := pages(t, fresh)
	delete(want, "shunt.8")
	if os.Getenv("UPDATE_MAN") != "" {
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(manDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := pages(t, manDir)
	delete(got, "shunt.8")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/man is out of date; run go generate ./cmd/shunt\n%s", diff)
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.8"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(raw)
	}
	return out
}

// TestEveryCommandIsDocumented wants a line of help for each command and option.
func TestEveryCommandIsDocumented(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

// TestManPageNamesEveryOption holds the page that is written by hand to the commands: each is in it, with all its options.
func TestManPageNamesEveryOption(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(manDir, "shunt.8"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, c := range newRoot().Commands() {
		if !strings.Contains(page, c.Name()) {
			t.Errorf("shunt.8 lacks %s", c.Name())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, "Fl -"+f.Name+"\n") && !strings.Contains(page, "Fl -"+f.Name+" ") && !strings.Contains(page, "Fl "+f.Shorthand+" ") {
				t.Errorf("shunt.8 lacks --%s of %s", f.Name, c.Name())
			}
		})
	}
}
