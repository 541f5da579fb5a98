// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// port is what a machine sends: "^" stands for the control character that marks the framework's lines.
func port(lines ...string) string {
	return strings.ReplaceAll(strings.Join(lines, "\r\n"), "^", mark) + "\r\n"
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		port     string
		status   int
		packages []Package
		missing  []string
	}{
		"passes, and only the leaves count": {
			port: port("@vm up 6.12.1 3.5", "@vm begin a/b",
				"^=== RUN   TestA", "^=== RUN   TestA/x", "^=== RUN   TestA/y", "^    --- PASS: TestA/x (0.01s)",
				"^    --- PASS: TestA/y (0.01s)", "^--- PASS: TestA (0.02s)", "^=== RUN   TestB", "^--- PASS: TestB (0.00s)",
				"PASS", "", "@vm end a/b 0 4.00 6.25", "@vm exit 0 6.30"),
			packages: []Package{{Name: "a/b", Seconds: 2.3, Pass: 3}},
		},
		"a skip says why": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)",
				"^=== RUN   TestB", "    b_test.go:12: this kernel has no netkit:", "        it came with 6.7", "^--- SKIP: TestB (0.00s)",
				"PASS", "@vm end p 0 4 5", "@vm exit 0 5"),
			packages: []Package{{Name: "p", Seconds: 1, Pass: 1, Skip: 1,
				Skipped: []Skip{{"TestB", "this kernel has no netkit: it came with 6.7"}}}},
		},
		"a skip that does not say why is a fault": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)",
				"^=== RUN   TestB", "^--- SKIP: TestB (0.00s)", "PASS", "@vm end p 0 4 5", "@vm exit 0 5"),
			status: 1,
			packages: []Package{{Name: "p", Seconds: 1, Pass: 1, Skip: 1, Skipped: []Skip{{"TestB", ""}},
				Faults: []string{"TestB was skipped without a reason"}}},
		},
		"parallel tests keep their words apart": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^=== PAUSE TestA", "^=== RUN   TestB", "^=== PAUSE TestB",
				"^=== CONT  TestA", "^=== CONT  TestB", "    b_test.go:1: of B", "^=== NAME  TestA", "    a_test.go:1: of A",
				"^--- SKIP: TestA (0.00s)", "^=== NAME  TestB", "    b_test.go:2: and more of B", "^--- SKIP: TestB (0.00s)",
				"^=== RUN   TestC", "^--- PASS: TestC (0.00s)", "PASS", "@vm end p 0 4 5", "@vm exit 0 5"),
			packages: []Package{{Name: "p", Seconds: 1, Pass: 1, Skip: 2,
				Skipped: []Skip{{"TestA", "of A"}, {"TestB", "of B and more of B"}}}},
		},
		"a subtest fails": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^=== RUN   TestA/x", "    a_test.go:1: no",
				"^    --- FAIL: TestA/x (0.00s)", "^--- FAIL: TestA (0.00s)", "FAIL", "@vm end p 1 4 5", "@vm exit 1 5"),
			status:   1,
			packages: []Package{{Name: "p", Status: 1, Seconds: 1, Fail: 1, Failed: []string{"TestA/x"}}},
		},
		"a test fails beside subtests that pass": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^=== RUN   TestA/x",
				"^    --- PASS: TestA/x (0.00s)", "^--- FAIL: TestA (0.00s)", "FAIL", "@vm end p 1 4 5", "@vm exit 1 5"),
			status:   1,
			packages: []Package{{Name: "p", Status: 1, Seconds: 1, Pass: 1, Fail: 1, Failed: []string{"TestA"}}},
		},
		"a test imitates the framework": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "--- PASS: TestX (0.00s)",
				"no newline^--- PASS: TestA (0.00s)", "PASS", "@vm end p 0 4 5", "@vm exit 0 5"),
			packages: []Package{{Name: "p", Seconds: 1, Pass: 1}},
		},
		"the binary is stopped in the middle of a test": {
			port:     port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "", "@vm end p 124 4 5", "@vm exit 1 5"),
			status:   1,
			packages: []Package{{Name: "p", Status: 124, Seconds: 1, Fail: 1, Failed: []string{"TestA (did not end)"}}},
		},
		"the binary fails after its tests have passed": {
			port: port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)", "leaked a link",
				"@vm end p 3 4 5", "@vm exit 1 5"),
			status: 1,
			packages: []Package{{Name: "p", Status: 3, Seconds: 1, Pass: 1,
				Faults: []string{"the test binary ended with status 3"}}},
		},
		"a package without a test that ran": {
			port:     port("@vm up 6.1.0 3.5", "@vm begin p", "testing: warning: no tests to run", "PASS", "@vm end p 0 4 5", "@vm exit 0 5"),
			status:   1,
			packages: []Package{{Name: "p", Seconds: 1, Faults: []string{"no test ran"}}},
		},
		"the kernel dies": {
			port:   port("@vm up 6.1.0 3.5", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)", "^=== RUN   TestB"),
			status: statusUnfinished,
			packages: []Package{{Name: "p", Pass: 1, Fail: 1, Failed: []string{"TestB (did not end)"},
				Faults: []string{"the machine stopped while this package ran"}}},
		},
		"the kernel never comes up": {status: statusUnfinished, packages: []Package{}},
		"nothing was run":           {port: port("@vm up 6.1.0 3.5", "@vm exit 0 5"), status: 1, packages: []Package{}},
		"a module is missing": {
			port: port("@vm up 6.1.0 3.5", "@vm module-missing vrf", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)",
				"@vm end p 0 4 5", "@vm exit 0 5"),
			status:   1,
			missing:  []string{"vrf"},
			packages: []Package{{Name: "p", Seconds: 1, Pass: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var show, log bytes.Buffer
			r, err := follow(strings.NewReader(c.port), &show, &log)
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != c.status {
				t.Errorf("status %d, want %d", r.Status, c.status)
			}
			if diff := cmp.Diff(c.packages, r.Packages); diff != "" {
				t.Errorf("packages (-want +have):\n%s", diff)
			}
			if diff := cmp.Diff(c.missing, r.MissingModules); diff != "" {
				t.Errorf("missing modules (-want +have):\n%s", diff)
			}
			if strings.Contains(show.String()+log.String(), mark) {
				t.Error("a control character is shown or logged")
			}
		})
	}
}

func TestFollowRefusesWhatInitDoesNotSend(t *testing.T) {
	for _, line := range []string{"@vm ", "@vm up", "@vm begin", "@vm end p 0 4 5", "@vm hello"} {
		if _, err := follow(strings.NewReader(line+"\n"), &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

// From the port to the record and the table of several records.
func TestRecord(t *testing.T) {
	var files []string
	for _, kernel := range []string{"6.12", "6.9"} {
		dir := t.TempDir()
		console := "hello\n[    3.1] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1\nbye\n"
		if err := os.WriteFile(filepath.Join(dir, "console.log"), []byte(console), 0o644); err != nil {
			t.Fatal(err)
		}
		in := strings.NewReader(port("@vm up "+kernel+".7 3.5", "@vm begin p", "^=== RUN   TestA", "^--- PASS: TestA (0.00s)",
			"@vm end p 0 4 5", "@vm exit 0 5"))
		var out bytes.Buffer
		status, err := run([]string{"run", "-kernel", kernel, "-machine", "m", "-dir", dir}, in, &out)
		if err != nil || status != 0 {
			t.Fatalf("status %d, %v\n%s", status, err, out.String())
		}
		file := filepath.Join(dir, "record.json")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Kernel != kernel || r.Release != kernel+".7" || r.Machine != "m" || r.Up != 3.5 || len(r.Complaints) != 1 || r.Packages[0].Pass != 1 {
			t.Errorf("record: %+v", r)
		}
		files = append(files, file)
	}
	var out bytes.Buffer
	if status, err := run(append([]string{"summary"}, files...), nil, &out); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	if older, newer := strings.Index(out.String(), "6.9.7"), strings.Index(out.String(), "6.12.7"); older < 0 || newer < older {
		t.Errorf("the summary does not go from old to new:\n%s", out.String())
	}
}
