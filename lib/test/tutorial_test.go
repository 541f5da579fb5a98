// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTutorial does what docs/lib/tutorial.md says, word by word, in a clone of the working tree, and wants to see what it promises.
func TestTutorial(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if os.Getenv("SHUNT_VM") != "" {
		t.Skip("there is no working tree in here to follow the tutorial in")
	}
	if _, err := exec.LookPath("clang-19"); err != nil {
		t.Skip("no clang-19 here: sudo scripts/setup.sh generate installs it")
	}
	text, err := os.ReadFile("../../docs/lib/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	// What is cloned is what git would have of the working tree, committed or not.
	dir, source := t.TempDir(), filepath.Join(t.TempDir(), "source")
	tree := filepath.Join(dir, "shunt")
	for _, command := range []string{
		"mkdir " + source,
		"tar -C ../.. --exclude=./.git --exclude=./.cache --exclude=./bin --exclude=./docs/img -c . | tar -x -C " + source,
		"git -C " + source + " init -q",
		"git -C " + source + " add -A",
		"git -C " + source + " -c user.name=test -c user.email=test@localhost commit -q -m copy",
	} {
		if out, err := exec.Command("bash", "-o", "pipefail", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("copying the tree: %s: %v: %s", command, err, out)
		}
	}
	script := "set -e\n"
	for _, block := range regexp.MustCompile("(?s)```(\\w+)([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if language, path, body := block[1], strings.TrimSpace(block[2]), block[3]; language == "sh" {
			script += strings.Replace(body, "git clone …", "git clone -q "+source, 1)
		} else if path == "" {
			t.Errorf("a block of %s without a file to write it to", language)
		} else {
			script += "cat >" + path + " <<'END-OF-FILE'\n" + body + "END-OF-FILE\n"
		}
	}
	if strings.Count(script, "END-OF-FILE") != 4 {
		t.Fatalf("the tutorial has other files than its two:\n%s", script)
	}
	if !strings.Contains(script, "git clone -q "+source+" shunt\n") {
		t.Fatalf("the tutorial does not begin with a clone:\n%s", script)
	}
	// What the reader would see is kept before it is removed. The namespaces' names are this test's own: nobody else sees what is mounted over theirs.
	script = "mkdir -p /run/netns && mount -t tmpfs netns /run/netns\n" + strings.Replace(script, "tail -n1 mine.log", "tail -n1 mine.log | tee "+filepath.Join(tree, "seen"), 1)
	cmd := exec.Command("bash", "-m", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS} // when the shell ends, whatever it left ends
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("the commands of the tutorial took %.1f seconds here, of the ten minutes that it promises", time.Since(began).Seconds())
	if err != nil {
		t.Fatalf("following the tutorial: %v\n%s", err, out)
	}
	for _, want := range []string{"50 packets transmitted, 50 received", "150 packets transmitted"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nowhere %q in\n%s", want, out)
		}
	}
	seen, err := os.ReadFile(filepath.Join(tree, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	if string(seen) != "100 dropped\n" {
		t.Errorf("the last line was %q, the tutorial promises 100 dropped", seen)
	}
	if _, err := os.Stat(filepath.Join(tree, "lib/examples/mine")); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}
