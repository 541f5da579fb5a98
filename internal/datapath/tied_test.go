// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
)

// Namespaces share the programs as they are tied to the kernel, five megabytes; once a module has come they are tied anew, and those before keep theirs.
func TestNamespacesShareInstructions(t *testing.T) {
	kernel, found, err := typesOf(moduleTypes)
	if err != nil {
		t.Skip("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF, Linux 5.4): ", err)
	}
	tied := func(modules string) *objects {
		t.Helper()
		o := &objects{log: slog.New(slog.DiscardHandler)}
		if _, err := o.tie(kernel, modules); err != nil {
			t.Fatal(err)
		}
		return o
	}
	same := func(a, b *objects, hooks ...graph.Hook) bool {
		return &a.programs[hooks[0]].Instructions[0] == &b.programs[hooks[len(hooks)-1]].Instructions[0]
	}
	first, second := tied(found), tied(found)
	for hook := range first.programs {
		if !same(first, second, hook) {
			t.Errorf("two namespaces have their own programs for %s", hook)
		}
	}
	if !same(first, first, graph.XDP, linearXDP) || first.programs[graph.XDP].Flags == first.programs[linearXDP].Flags {
		t.Error("the programs with frames in several buffers and without differ by more, or less, than a flag")
	}
	if later := tied(found + " another"); same(first, later, graph.XDP) {
		t.Error("with another module the programs are those of before")
	}
}
