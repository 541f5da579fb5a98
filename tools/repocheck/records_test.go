// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecords: a log that CI does not make anew is called stale as soon as what it is about has changed, and not before.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func(file, text string) string {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
		git("commit", "-q", "-m", file)
		return git("rev-parse", "--short", "HEAD")
	}
	const log = "bench/results/k8s.txt"
	says := func(want string) {
		t.Helper()
		out, err := exec.Command(filepath.Join(root, "scripts/records.sh"), dir).CombinedOutput()
		var about []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, log) {
				about = append(about, line)
			} else if !strings.Contains(line, " is MISSING: make ") { // nobody made the others here
				t.Errorf("%q, want what is missing", line)
			}
		}
		if err != nil || len(about) != 1 || !strings.Contains(about[0], want) {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
	git("init", "-q")
	says("is MISSING: make test-k8s RECORD=" + log)
	made := commit("internal/a.go", "package a\n")
	commit(log, "make test-k8s: commit "+made+", kernel 6.18\nPASS\n")
	says("is as new as")
	commit("docs/a.md", "words\n")
	says("is as new as")
	made = commit("internal/a.go", "package a // changed\n")
	says("is STALE: 1 commits")
	commit(log, "make test-k8s: commit "+made+"-dirty, kernel 6.18\nPASS\n")
	says("is STALE: it names no commit")
	commit(log, "make test-k8s: commit 0123456, kernel 6.18\nPASS\n")
	says("is STALE: its commit 0123456 is not in this history")
	commit(log, "make test-k8s: commit "+made+", kernel 6.18\nPASS\n")
	says("is as new as")
}
