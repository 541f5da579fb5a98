// SPDX-License-Identifier: Apache-2.0

// Command testlog turns the event stream of `go test -json` into what a person wants to read: the output
// of what failed, one line for each package with its counts, and at the end every skip with its reason.
//
// Problem: plain `go test` hides skips, and a suite that skips everything looks like one that passes;
// `go test -v` shows them among ten thousand lines.
//
// Invariant: nothing that failed is left out, and the exit status is 0 only if something passed and
// nothing failed. A stream that ends in the middle of a package is a failure.
//
// With -failed FILE it also writes what failed, a line each: the package, a tab, and a pattern for -run that
// names the test. The pattern is empty, for the whole package, where the package itself failed or did not come to
// its end (a panic, a time limit): the tests behind that have not run. Nothing is written where running again would
// prove nothing: a build failed, or the stream broke off.
//
// With -never PATTERN a skip whose reason matches is a failure: where everything is installed, nothing is left out for want of it.
//
//	go test -json ./... | testlog
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	failed := flag.String("failed", "", "`file` for what failed, a package and a pattern for -run in each line")
	never := flag.String("never", "", "`pattern` of reasons for which nothing may be skipped here")
	show := flag.String("show", "", "`pattern` of tests whose output is shown also when they pass")
	flag.Parse()
	shown, err := regexp.Compile(*show)
	unheard, wrong := regexp.Compile(*never)
	err = errors.Join(err, wrong)
	ok := false
	var sum *summary
	if err == nil {
		sum = newSummary()
		if *show != "" {
			sum.show = shown
		}
		if *never != "" {
			sum.never = unheard
		}
		ok, err = sum.follow(os.Stdin, os.Stdout)
	}
	if err == nil && *failed != "" {
		err = os.WriteFile(*failed, []byte(sum.runAgain()), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is one line of the stream (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// pkg is what is known of a package until it ends.
type pkg struct {
	output                  map[string][]string // by test; "" is the package's own
	bad                     []string            // the tests that failed
	ended                   bool                // the test program said its result, so all tests ran
	passed, failed, skipped int
}

// summary is the whole stream.
type summary struct {
	passed, failed, skipped int
	reasons                 map[string][]string // reason → tests
	show                    *regexp.Regexp      // tests whose output is always shown, or nil
	never                   *regexp.Regexp      // reasons for which nothing may be skipped, or nil
	again                   []string            // what failed: package, tab, pattern, newline
	final                   bool                // something failed that need not be run again
}

func newSummary() *summary { return &summary{reasons: map[string][]string{}} }

// follow reads the stream to its end and tells whether all is well.
func (s *summary) follow(in io.Reader, out io.Writer) (bool, error) {
	open := map[string]*pkg{}
	bad := false
	dec := json.NewDecoder(in)
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return false, fmt.Errorf("reading the events of go test -json: %w", err)
		}
		if e.Action == "build-output" || e.Action == "build-fail" {
			fmt.Fprint(out, e.Output)
			continue
		}
		p := open[e.Package]
		if p == nil {
			p = &pkg{output: map[string][]string{}}
			open[e.Package] = p
		}
		switch {
		case e.Action == "output":
			p.output[e.Test] = append(p.output[e.Test], e.Output)
			p.ended = p.ended || e.Test == "" && (e.Output == "FAIL\n" || e.Output == "PASS\n")
		case e.Test != "":
			p.end(e, s, out)
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			bad = p.close(e, s, out) || bad
			delete(open, e.Package)
		}
	}
	for name := range open {
		fmt.Fprintf(out, "FAIL\t%s\tdid not finish\n", name)
		bad, s.final = true, true
	}
	ok := !bad && s.failed == 0 && s.passed > 0
	s.print(out, ok)
	return ok, nil
}

// end takes the end of a test; a failed one's output is shown at once.
func (p *pkg) end(e event, sum *summary, out io.Writer) {
	switch e.Action {
	case "pass":
		p.passed++
		sum.passed++
		if sum.show != nil && sum.show.MatchString(e.Test) {
			p.tell(e.Test, out)
		}
	case "skip":
		p.skipped++
		sum.skipped++
		why := reason(p.output[e.Test])
		if sum.never != nil && sum.never.MatchString(why) {
			sum.failed++
			sum.final = true
			fmt.Fprintf(out, "FAIL: %s was skipped, which must not be here: %s\n", e.Test, why)
		}
		sum.reasons[why] = append(sum.reasons[why], e.Test)
	case "fail":
		p.failed++
		sum.failed++
		p.bad = append(p.bad, e.Test)
		p.tell(e.Test, out)
	default:
		return
	}
	delete(p.output, e.Test)
}

// tell shows a test's output.
func (p *pkg) tell(test string, out io.Writer) {
	for _, line := range p.output[test] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(out, line)
		}
	}
}

// patterns name the tests that failed and have no part that did.
func (p *pkg) patterns() (out []string) {
	for _, test := range p.bad {
		if slices.ContainsFunc(p.bad, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			continue
		}
		parts := strings.Split(test, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		out = append(out, strings.Join(parts, "/"))
	}
	return out
}

// close shows a package's line, and all that is left of its output if it failed; true says that it did.
func (p *pkg) close(e event, sum *summary, out io.Writer) bool {
	if e.Action == "skip" { // no test files
		return false
	}
	if e.Action == "pass" {
		fmt.Fprintf(out, "ok  \t%s\t%.1fs\t%d passed, %d skipped\n", e.Package, e.Elapsed, p.passed, p.skipped)
		return false
	}
	switch {
	case e.FailedBuild != "":
		sum.final = true
	case len(p.bad) == 0 || !p.ended:
		sum.again = append(sum.again, e.Package+"\t\n")
	default:
		for _, pattern := range p.patterns() {
			sum.again = append(sum.again, e.Package+"\t"+pattern+"\n")
		}
	}
	for _, test := range slices.Sorted(maps.Keys(p.output)) { // a panic leaves tests without an end
		for _, line := range p.output[test] {
			if !strings.HasPrefix(line, "=== ") && (test != "" || !strings.HasPrefix(line, "FAIL")) {
				fmt.Fprint(out, line)
			}
		}
	}
	fmt.Fprintf(out, "FAIL\t%s\t%.1fs\t%d failed, %d passed, %d skipped\n", e.Package, e.Elapsed, p.failed, p.passed, p.skipped)
	return true
}

// runAgain is what to run again to see whether it fails again, a line each.
func (s *summary) runAgain() string {
	if s.final {
		return ""
	}
	return strings.Join(s.again, "")
}

// said is how a line begins that a test says, not one that goes on with it: file.go:12: text.
var said = regexp.MustCompile(`^ *[^ ]+\.go:[0-9]+: `)

// transcript is how the record of a script begins, which is no reason: it comes behind what the script said.
var transcript = regexp.MustCompile(`\btestscript\.go:`)

// reason is what a skipped test said last, of that the first line; of a test that says nothing by itself (a script) the last line.
func reason(output []string) string {
	last := "no reason given"
	for _, line := range output {
		trimmed := strings.TrimSpace(line)
		if trimmed != "" && !strings.HasPrefix(trimmed, "---") && !strings.HasPrefix(trimmed, "===") {
			last = trimmed
		}
	}
	for _, line := range slices.Backward(output) {
		if begin := said.FindString(line); begin != "" && !transcript.MatchString(begin) {
			return strings.TrimSpace(line[len(begin):])
		}
	}
	return last
}

func (s *summary) print(out io.Writer, ok bool) {
	for _, why := range slices.Sorted(maps.Keys(s.reasons)) {
		tests := s.reasons[why]
		slices.Sort(tests)
		if n := len(tests); n > 3 {
			tests = append(tests[:3:3], fmt.Sprintf("and %d more", n-3))
		}
		fmt.Fprintf(out, "skipped: %s (%s)\n", why, strings.Join(tests, ", "))
	}
	verdict := "PASS"
	if !ok {
		verdict = "FAIL"
	}
	fmt.Fprintf(out, "%s: %d passed, %d failed, %d skipped\n", verdict, s.passed, s.failed, s.skipped)
}
