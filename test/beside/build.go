// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

// Build builds the program that is asked and asks, alone in a folder below that of the run, and shunt unless it is there.
func Build(t *testing.T, folder, program string) (shunt, agent string) {
	t.Helper()
	lab.RequireRoot(t)
	shunt, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	build := func(out, pkg string) {
		cmd := exec.Command("go", "build", "-o", out, "github.com/shuntnet/shunt/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v: %s", pkg, err, said)
		}
	}
	agent = filepath.Join(folder, "image", "agent")
	build(agent, "test/beside/agent")
	if _, err := os.Stat(shunt); err != nil {
		shunt = filepath.Join(folder, "shunt-program")
		build(shunt, "cmd/shunt")
	}
	return shunt, agent
}
