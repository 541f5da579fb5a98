// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSuites: the runner behind `make test` and CI fails when something in it fails, goes on to the rest,
// ends what takes too long, and is not content with nothing.
func TestSuites(t *testing.T) {
	table := filepath.Join(t.TempDir(), "suites")
	if err := os.WriteFile(table, []byte("# comment\nfirst 5s true\n\nsecond 5s true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script string
		ok     bool
		want   []string
	}{
		"all pass":                 {"suite a 5s true; suite b 5s true", true, []string{"a ", "b ", "PASS"}},
		"one fails, the rest runs": {"suite a 5s false; suite b 5s echo ran", false, []string{"FAIL (status 1)", "\nran\n", "FAIL"}},
		"one takes too long":       {"suite a 0.2s sleep 60", false, []string{"over its limit"}},
		"nothing ran":              {"true", false, nil},
		"a table":                  {"suites_of " + table, true, []string{"first ", "second ", "PASS"}},
		"one of a table":           {"suites_of " + table + " second", true, []string{"second ", "PASS"}},
		"a name that is not there": {"suites_of " + table + " third", false, nil},
		"no input is read":         {"suite a 5s cat", true, []string{"PASS"}},
	} {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", "source scripts/suites.sh; "+c.script+"; suites_end")
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want success %v:\n%s", name, err, c.ok, out)
		}
		for _, w := range c.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: %q is missing from:\n%s", name, w, out)
			}
		}
	}
}
