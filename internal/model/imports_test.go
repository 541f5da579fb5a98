// SPDX-License-Identifier: Apache-2.0

package model

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Decisions are pure: model, graph, reason and synth do no input or output, and imports go one way,
// kstate → model ← graph ← synth ← control → datapath.
func TestDecidingPackagesDoNoIO(t *testing.T) {
	const own = "github.com/shuntnet/shunt/internal/"
	allowed := map[string][]string{ // beside the standard library
		"model":         {own + "model/ruleset"},
		"model/ruleset": {},
		"rules":         {own + "model/ruleset"},
		"reason":        {},
		"graph":         {own + "model", own + "model/ruleset", own + "reason", own + "rules", own + "rules/image"},
		"rules/image":   {own + "model/ruleset", own + "rules"},
		"synth":         {own + "model", own + "model/ruleset", own + "rules/image", own + "reason", own + "graph", own + "bpfobj"},
	}
	forbidden := []string{"os", "io", "net", "syscall", "unsafe", "time", "log", "bufio", "plugin", "testing"}
	for pkg, more := range allowed {
		files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", pkg, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				if bad(path, forbidden, more) {
					t.Errorf("%s imports %s", file, path)
				}
			}
		}
	}
}

func bad(path string, forbidden, allowed []string) bool {
	for _, a := range allowed {
		if path == a {
			return false
		}
	}
	root, _, _ := strings.Cut(path, "/")
	if strings.Contains(root, ".") {
		return true // not the standard library
	}
	for _, f := range forbidden {
		if path == f || root == f && path != "net/netip" {
			return true
		}
	}
	return false
}
