// SPDX-License-Identifier: Apache-2.0

package reason

import (
	"os"
	"testing"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for path, want := range map[string]string{"../../bpf/include/reasons.h": Header(), "../../docs/reasons.md": Markdown()} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: run go generate ./internal/reason", path)
		}
	}
}

func TestEveryRowIsWhole(t *testing.T) {
	seen := map[string]Code{}
	for i := Code(0); i < Count; i++ {
		r := i.Describe()
		if r.Name == "" || r.Doc == "" {
			t.Errorf("code %d has no name or no sentence", i)
		}
		if other, dup := seen[r.Name]; dup {
			t.Errorf("%q is both %d and %d", r.Name, other, i)
		}
		seen[r.Name] = i
		if back, ok := Parse(r.Name); !ok || back != i {
			t.Errorf("Parse(%q) = %d, %v", r.Name, back, ok)
		}
	}
}
