// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"
)

// stream writes events in short: ACTION PACKAGE TEST OUTPUT, separated by bars.
func stream(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		f := strings.Split(l+"|||", "|")
		b.WriteString(`{"Action":"` + f[0] + `","Package":"` + f[1] + `","Test":"` + f[2] + `","Output":"` + f[3] + `"}` + "\n")
	}
	return b.String()
}

func TestFollow(t *testing.T) {
	pass := []string{"run|a|T", `output|a|T|=== RUN T\n`, "pass|a|T", "pass|a"}
	for name, c := range map[string]struct {
		in      string
		ok      bool
		want    []string
		without []string
	}{
		"all pass": {in: stream(pass...), ok: true, want: []string{"ok  \ta\t", "1 passed, 0 skipped", "PASS: 1 passed"}, without: []string{"=== RUN"}},
		"a failure shows its output": {
			in:   stream(append(pass, `output|b|F|    f_test.go:3: wanted 1\n`, "fail|b|F", `output|b||FAIL\n`, "fail|b")...),
			want: []string{"wanted 1", "FAIL\tb", "1 failed", "FAIL: 1 passed"}, without: []string{"FAIL\nFAIL"},
		},
		"skips are listed with the reason": {
			in: stream(append(pass, `output|b|S|    f_test.go:3: no VLAN devices: modprobe\n`, `output|b|S|--- SKIP: S (0.00s)\n`, "skip|b|S", "pass|b")...),
			ok: true, want: []string{"skipped: no VLAN devices: modprobe (S)"},
		},
		"of a reason the first line": {
			in: stream(append(pass, `output|b|S|    f_test.go:3: no flow tables: nft\n`, `output|b|S|        ^^^^^^\n`, `output|b|S|--- SKIP: S (0.00s)\n`, "skip|b|S", "pass|b")...),
			ok: true, want: []string{"skipped: no flow tables: nft (S)"},
		},
		"a script's record is no reason": {
			in:   stream(`output|a|T|    cmd.go:380: this kernel has no wings\n`, `output|a|T|    testscript.go:609: WORK=$WORK\n`, `output|a|T|        PATH=/bin\n`, "skip|a|T", "pass|a|U", "pass|a"),
			ok:   true,
			want: []string{"skipped: this kernel has no wings (T)"},
		},
		"a script's last line": {
			in: stream(append(pass, `output|b|S|        > skip no GRE\n`, "skip|b|S", "pass|b")...),
			ok: true, want: []string{"skipped: > skip no GRE (S)"},
		},
		"what may not be skipped": {
			in:   stream(append(pass, `output|b|S|    f_test.go:3: needs root to do this\n`, "skip|b|S", "pass|b")...),
			want: []string{"FAIL: S was skipped", "FAIL: 1 passed"},
		},
		"a panic leaves a test without an end": {
			in:   stream(append(pass, `output|b|P|panic: boom\n`, "fail|b")...),
			want: []string{"panic: boom", "FAIL\tb"},
		},
		"a stream that breaks off":                   {in: stream(append(pass, "run|b|T")...), want: []string{"FAIL\tb\tdid not finish", "FAIL: 1 passed"}},
		"a package that fails without a failed test": {in: stream(append(pass, "fail|b")...), want: []string{"FAIL: 1 passed"}},
		"nothing ran":                   {in: "", want: []string{"FAIL: 0 passed"}},
		"packages without tests do not": {in: stream(append(pass, "skip|c")...), ok: true, without: []string{"\tc\t"}},
	} {
		var out strings.Builder
		sum := newSummary()
		sum.never = regexp.MustCompile("needs root")
		ok, err := sum.follow(strings.NewReader(c.in), &out)
		if err != nil || ok != c.ok {
			t.Errorf("%s: ok %v, error %v, want ok %v", name, ok, err, c.ok)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: %q is missing from:\n%s", name, w, out.String())
			}
		}
		for _, w := range c.without {
			if strings.Contains(out.String(), w) {
				t.Errorf("%s: %q should not be in:\n%s", name, w, out.String())
			}
		}
	}
	if _, err := newSummary().follow(strings.NewReader("not json"), &strings.Builder{}); err == nil {
		t.Error("a line that is not an event is no error")
	}
}

// What is run again, and what no second run can excuse: without the first a test behind a panic would never have run, without the second a
// build that fails would pass beside a test that passes when run again.
func TestWhatFailedIsNamed(t *testing.T) {
	test := []string{"fail|a|T/x[1]", "fail|a|T", "pass|a|U", `output|a||FAIL\n`, "fail|a"}
	for name, c := range map[string]struct{ in, want string }{
		"a part of a test":   {stream(test...), "a\t^T$/^x\\[1\\]$\n"},
		"two tests":          {stream("fail|a|T", "fail|a|U", `output|a||FAIL\n`, "fail|a"), "a\t^T$\na\t^U$\n"},
		"a panic":            {stream("pass|a|S", "fail|a|T", `output|a|T|panic: boom\n`, "fail|a"), "a\t\n"},
		"no test's end":      {stream("run|a|T", "fail|a"), "a\t\n"},
		"the package itself": {stream("pass|a|T", `output|a||PASS\n`, "fail|a"), "a\t\n"},
		"also a build":       {stream(test...) + `{"Action":"fail","Package":"d","FailedBuild":"d"}` + "\n", ""},
		"also no end":        {stream(append(test, "run|b|T")...), ""},
	} {
		sum := newSummary()
		if ok, err := sum.follow(strings.NewReader(c.in), &strings.Builder{}); ok || err != nil {
			t.Fatalf("%s: ok %v, error %v", name, ok, err)
		}
		if got := sum.runAgain(); got != c.want {
			t.Errorf("%s: named %q, want %q", name, got, c.want)
		}
	}
}

func TestShow(t *testing.T) {
	sum := newSummary()
	sum.show = regexp.MustCompile("^T$")
	var out strings.Builder
	if _, err := sum.follow(strings.NewReader(stream(`output|a|T|seen\n`, "pass|a|T", `output|a|U|hidden\n`, "pass|a|U", "pass|a")), &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "seen") || strings.Contains(text, "hidden") {
		t.Errorf("shown:\n%s", text)
	}
}
