// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is one run on one kernel. Times are in seconds.
type Record struct {
	Kernel         string    `json:"kernel"`  // the series: 6.12
	Release        string    `json:"release"` // uname -r in the machine; empty if it never came up
	Machine        string    `json:"machine"`
	Started        time.Time `json:"started"`
	Status         int       `json:"status"`
	Seconds        float64   `json:"seconds"` // wall clock, from power on to power off
	Up             float64   `json:"up"`      // the machine's own clock when init ran
	MissingModules []string  `json:"missing_modules,omitempty"`
	Complaints     []string  `json:"complaints,omitempty"` // the kernel's warnings
	Packages       []Package `json:"packages"`
}

// Package is the outcome of one test binary. Of tests with subtests only the subtests count.
type Package struct {
	Name    string   `json:"name"`
	Status  int      `json:"status"` // the binary's exit status; 124 when it was stopped
	Seconds float64  `json:"seconds"`
	Pass    int      `json:"pass"`
	Fail    int      `json:"fail"`
	Skip    int      `json:"skip"`
	Failed  []string `json:"failed,omitempty"`
	Skipped []Skip   `json:"skipped,omitempty"`
	Faults  []string `json:"faults,omitempty"` // why the package fails although no test does
}

// Skip is a test that was not run, and what it said why.
type Skip struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

// judge completes a record that has been read to its end.
func (r *Record) judge() {
	if r.Status == statusUnfinished {
		return
	}
	for _, p := range r.Packages {
		if p.Status != 0 || p.Fail > 0 || len(p.Faults) > 0 {
			r.Status = 1
		}
	}
	if len(r.MissingModules) > 0 || len(r.Packages) == 0 {
		r.Status = 1
	}
}

func verdict(status int) string {
	switch status {
	case 0:
		return "passed"
	case statusUnfinished:
		return "did not finish"
	}
	return "FAILED"
}

func (r *Record) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s in %.1f s (up after %.1f s; %s)\n",
		cmp.Or(r.Release, r.Kernel), verdict(r.Status), r.Seconds, r.Up, r.Machine)
	fmt.Fprintf(out, "  %-32s %5s %5s %5s %8s\n", "package", "pass", "fail", "skip", "seconds")
	for _, p := range r.Packages {
		fmt.Fprintf(out, "  %-32s %5d %5d %5d %8.1f\n", p.Name, p.Pass, p.Fail, p.Skip, p.Seconds)
		for _, name := range p.Failed {
			fmt.Fprintf(out, "    failed   %s\n", name)
		}
		for _, fault := range p.Faults {
			fmt.Fprintf(out, "    fault    %s\n", fault)
		}
		for _, s := range p.Skipped {
			fmt.Fprintf(out, "    skipped  %s: %s\n", s.Test, s.Reason)
		}
	}
	for _, module := range r.MissingModules {
		fmt.Fprintf(out, "  module that this kernel does not have: %s\n", module)
	}
	for _, line := range r.Complaints {
		fmt.Fprintf(out, "  kernel: %s\n", line)
	}
}

func printSummary(records []Record, out io.Writer) {
	slices.SortFunc(records, func(a, b Record) int { return compareSeries(a.Kernel, b.Kernel) })
	fmt.Fprintf(out, "\n%-28s %-15s %5s %5s %5s %8s\n", "kernel", "", "pass", "fail", "skip", "seconds")
	for _, r := range records {
		var pass, fail, skip int
		for _, p := range r.Packages {
			pass, fail, skip = pass+p.Pass, fail+p.Fail, skip+p.Skip
		}
		fmt.Fprintf(out, "%-28s %-15s %5d %5d %5d %8.1f\n", cmp.Or(r.Release, r.Kernel), verdict(r.Status), pass, fail, skip, r.Seconds)
	}
}

// compareSeries orders 6.9 before 6.12.
func compareSeries(a, b string) int {
	number := func(s string) (n []int) {
		for part := range strings.SplitSeq(s, ".") {
			i, _ := strconv.Atoi(part)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(number(a), number(b))
}

func round(seconds float64) float64 { return math.Round(seconds*10) / 10 }
