// SPDX-License-Identifier: Apache-2.0

// Command report stands at the receiving end of a virtual machine's serial port. It shows what the
// tests in the machine print, keeps it, and turns it into a record: which kernel, how long, and for
// every package how many tests passed, failed and were skipped, and why. Its exit status is the
// run's: 0 passed, 1 failed, 99 the machine did not finish (the kernel died or time ran out).
//
//	report run -kernel NAME -machine TEXT -dir DIR   reads the port on standard input, writes DIR/record.json
//	report summary RECORD.json…                      one table of several runs
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	statusUsage      = 2
	statusUnfinished = 99
)

func main() {
	status, err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	os.Exit(status)
}

func run(args []string, in io.Reader, out io.Writer) (int, error) {
	if len(args) > 0 {
		switch args[0] {
		case "run":
			return record(args[1:], in, out)
		case "summary":
			return summarize(args[1:], out)
		}
	}
	return statusUsage, errors.New("usage: report run -kernel NAME -machine TEXT -dir DIR | report summary RECORD.json…")
}

// record follows one machine from its first line to its last.
func record(args []string, in io.Reader, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	kernel := flags.String("kernel", "", "series that was asked for")
	machine := flags.String("machine", "", "what the machine is emulated by")
	dir := flags.String("dir", ".", "directory that holds console.log and gets tests.log and record.json")
	if err := flags.Parse(args); err != nil {
		return statusUsage, err
	}
	log, err := os.Create(filepath.Join(*dir, "tests.log"))
	if err != nil {
		return 1, fmt.Errorf("keeping the tests' output: %w", err)
	}
	defer log.Close()

	started := time.Now()
	r, err := follow(in, out, log)
	if err != nil {
		return 1, fmt.Errorf("reading the serial port: %w", err)
	}
	r.Kernel, r.Machine = *kernel, *machine
	r.Started = started.UTC().Truncate(time.Second)
	r.Seconds = round(time.Since(started).Seconds())
	console, err := os.ReadFile(filepath.Join(*dir, "console.log"))
	if err != nil {
		return 1, fmt.Errorf("reading the kernel's messages: %w", err)
	}
	r.Complaints = complaints(string(console))

	if r.Status == statusUnfinished {
		fmt.Fprintf(out, "\nthe machine did not finish: the kernel died or time ran out. Its last messages:\n%s\n", tail(string(console), 60))
	}
	r.print(out)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return 1, fmt.Errorf("encoding the record: %w", err)
	}
	if err := os.WriteFile(filepath.Join(*dir, "record.json"), append(data, '\n'), 0o644); err != nil {
		return 1, fmt.Errorf("writing the record: %w", err)
	}
	return r.Status, nil
}

// summarize prints one line per record and package.
func summarize(files []string, out io.Writer) (int, error) {
	var records []Record
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return 1, fmt.Errorf("reading a record: %w", err)
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			return 1, fmt.Errorf("decoding the record %s: %w", file, err)
		}
		records = append(records, r)
	}
	printSummary(records, out)
	return 0, nil
}

// complaints are the kernel's own reports of something that must not happen. They do not fail a
// run (an old kernel may have reasons that are not ours), but no run hides them.
func complaints(console string) []string {
	var found []string
	for line := range strings.Lines(console) {
		for _, sign := range []string{"WARNING: ", "BUG: ", "Oops: ", "Kernel panic", "rcu: INFO: ", "general protection fault"} {
			if strings.Contains(line, sign) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
