// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var compilers = flag.Bool("compilers", false, "compile the test programs with every clang from 16 to 19 that is there, and load them")

// TestCompilers: what other compilers make of the headers loads as well. `make lib-compilers` fetches those that the machine lacks.
func TestCompilers(t *testing.T) {
	if !*compilers {
		t.Skip("only with -compilers: `make lib-compilers`")
	}
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	sources, err := filepath.Glob("bpf/*.bpf.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no test programs: %v", err)
	}
	for number := 16; number <= 19; number++ {
		clang := fmt.Sprintf("clang-%d", number)
		t.Run(clang, func(t *testing.T) {
			if _, err := exec.LookPath(clang); err != nil {
				t.Skipf("%s is not here: %v", clang, err)
			}
			version, _ := exec.Command(clang, "--version").Output()
			first, _, _ := strings.Cut(string(version), "\n")
			t.Log(first)
			headersCompile(t, clang)
			out := t.TempDir()
			said, failed := exec.Command("../build.sh", clang, out).CombinedOutput() // it goes on after one that fails
			loaded := 0
			for _, source := range sources {
				name := strings.TrimSuffix(filepath.Base(source), ".bpf.c")
				object := filepath.Join(out, name+".bpf.o")
				if number < 19 && strings.HasSuffix(name, "_arena") {
					if _, err := os.Stat(object); err == nil {
						t.Errorf("%s compiles, and should say that arenas need clang 19", source)
					}
					continue
				}
				if _, err := os.Stat(object); err != nil {
					t.Errorf("%s does not compile: %v\n%s", source, failed, said)
					said = []byte("(see above)")
					continue
				}
				t.Run(name, func(t *testing.T) { loads(t, object) })
				loaded++
			}
			t.Logf("%d programs compile and load", loaded)
		})
	}
}
