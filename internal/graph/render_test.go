// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

func TestNamedConfigurationsLookAsTheyShould(t *testing.T) {
	for name, changes := range named {
		got := Build(router(changes...)).Text()
		path := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from %s (go test -update writes it anew):\n%s", name, path, got)
		}
	}
}

// Each configuration's fast paths, hooks and ways out differ from every other's: no two need the same programs.
func TestNamedConfigurationsDiffer(t *testing.T) {
	seen := map[string]string{}
	for name, changes := range named {
		text := Build(router(changes...)).Text()
		if other, same := seen[text]; same {
			t.Errorf("%s and %s have the same graph", name, other)
		}
		seen[text] = name
	}
}

func TestRenderingsAreWellFormed(t *testing.T) {
	for name, changes := range named {
		g := Build(router(changes...))
		d := xml.NewDecoder(strings.NewReader(g.SVG()))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: SVG: %v", name, err)
			}
		}
		dot := g.DOT()
		if strings.Count(dot, "{") != strings.Count(dot, "}") || strings.Count(dot, `"`)%2 != 0 {
			t.Errorf("%s: DOT is not balanced", name)
		}
		for _, p := range g.Ports {
			if !strings.Contains(dot, p.Name) || !strings.Contains(g.SVG(), p.Name) {
				t.Errorf("%s: %s is not in the picture", name, p.Name)
			}
		}
		raw, err := json.Marshal(g)
		if err != nil || bytes.Contains(raw, []byte(`"mac":[`)) {
			t.Errorf("%s: JSON %v", name, err)
		}
	}
}
