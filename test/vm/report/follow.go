// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The port carries two kinds of lines. Those of guest/init start with "@vm ". All others are the
// output of a test binary run with -test.v=test2json, which marks the framework's own lines with a
// control character, so that no test can imitate them by printing.
const (
	control = "@vm "
	mark    = "\x16"
)

var (
	outcome  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(`)
	position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
)

// follow reads the port until it closes, shows what a person wants to see of it on show, keeps all
// of it in log, and returns the record. A port that closes before init said goodbye is no error:
// the record then says that the machine did not finish.
func follow(port io.Reader, show, log io.Writer) (*Record, error) {
	r := &Record{Status: statusUnfinished, Packages: []Package{}}
	var current *tests
	in := bufio.NewReader(port)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			line = strings.TrimRight(line, "\r\n")
			if _, err := fmt.Fprintln(log, strings.ReplaceAll(line, mark, "")); err != nil {
				return nil, err
			}
			if words, ok := strings.CutPrefix(line, control); ok {
				current, err = r.control(strings.Fields(words), current, show)
				if err != nil {
					return nil, fmt.Errorf("line %q: %w", line, err)
				}
			} else {
				current.line(line, show)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if current != nil {
		p := current.finish()
		p.Faults = append(p.Faults, "the machine stopped while this package ran")
		r.Packages = append(r.Packages, p)
	}
	r.judge()
	return r, nil
}

// control handles a line of init's. It returns the tests that are running from there on.
func (r *Record) control(words []string, current *tests, show io.Writer) (*tests, error) {
	if len(words) == 0 {
		return current, errors.New("no word")
	}
	verb, args := words[0], words[1:]
	if want := map[string]int{"up": 2, "module-missing": 1, "begin": 1, "end": 4, "exit": 2}[verb]; want == 0 || len(args) != want {
		return current, errors.New("not a line of guest/init")
	}
	switch verb {
	case "up":
		r.Release, r.Up = args[0], seconds(args[1])
	case "module-missing":
		r.MissingModules = append(r.MissingModules, args[0])
	case "begin":
		fmt.Fprintf(show, "--- %s\n", args[0])
		return newTests(args[0]), nil
	case "end":
		if current == nil {
			return nil, errors.New("ends a package that did not begin")
		}
		p := current.finish()
		p.Status, _ = strconv.Atoi(args[1])
		p.Seconds = round(seconds(args[3]) - seconds(args[2]))
		if p.Status != 0 && p.Fail == 0 {
			p.Faults = append(p.Faults, fmt.Sprintf("the test binary ended with status %d", p.Status))
		}
		r.Packages = append(r.Packages, p)
		return nil, nil
	case "exit":
		r.Status, _ = strconv.Atoi(args[0])
	}
	return current, nil
}

func seconds(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// tests collects the outcome of one test binary.
type tests struct {
	name    string
	order   []string            // in the order of their start
	result  map[string]string   // PASS, FAIL, SKIP; "" while it runs
	said    map[string][]string // what each test printed
	talking string              // the test that unmarked lines belong to
}

func newTests(name string) *tests {
	return &tests{name: name, result: map[string]string{}, said: map[string][]string{}}
}

// line takes one line of output. Output without a newline may stand before a mark.
func (t *tests) line(line string, show io.Writer) {
	text, framework, marked := strings.Cut(line, mark)
	if text != "" || !marked {
		fmt.Fprintln(show, text)
		if t != nil {
			t.said[t.talking] = append(t.said[t.talking], text)
		}
	}
	if !marked || t == nil {
		return
	}
	if m := outcome.FindStringSubmatch(framework); m != nil {
		fmt.Fprintln(show, framework)
		t.start(m[2])
		t.result[m[2]] = m[1]
		t.talking = "" // the framework names the next one that talks
		return
	}
	verb, name, _ := strings.Cut(framework, " ")
	if verb != "===" {
		fmt.Fprintln(show, framework) // PASS, FAIL at the end
		return
	}
	words := strings.Fields(name)
	if len(words) < 2 { // "=== NAME" alone: output that belongs to no test
		t.talking = ""
		return
	}
	if words[0] == "RUN" {
		t.start(words[1])
	}
	if words[0] != "PAUSE" {
		t.talking = words[1]
	}
}

func (t *tests) start(name string) {
	if _, known := t.result[name]; !known {
		t.order = append(t.order, name)
		t.result[name] = ""
	}
}

// finish counts. A test with subtests counts only if it failed by itself.
func (t *tests) finish() Package {
	p := Package{Name: t.name}
	for _, name := range t.order {
		result := t.result[name]
		below := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if slices.ContainsFunc(t.order, below) {
			failedBelow := slices.ContainsFunc(t.order, func(other string) bool {
				return below(other) && t.result[other] != "PASS" && t.result[other] != "SKIP"
			})
			if result == "PASS" || result == "SKIP" || failedBelow {
				continue
			}
		}
		switch result {
		case "PASS":
			p.Pass++
		case "SKIP":
			p.Skip++
			reason := t.reason(name)
			if reason == "" {
				p.Faults = append(p.Faults, name+" was skipped without a reason")
			}
			p.Skipped = append(p.Skipped, Skip{Test: name, Reason: reason})
		case "FAIL":
			p.Fail++
			p.Failed = append(p.Failed, name)
		default:
			p.Fail++
			p.Failed = append(p.Failed, name+" (did not end)")
		}
	}
	if p.Pass+p.Fail == 0 {
		p.Faults = append(p.Faults, "no test ran")
	}
	return p
}

// reason is what a skipped test said, without the position in the source.
func (t *tests) reason(name string) string {
	var words []string
	for _, line := range t.said[name] {
		words = append(words, strings.Fields(position.ReplaceAllString(line, ""))...)
	}
	return strings.Join(words, " ")
}
