// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/internal/lab"
)

// Suite is a program that measures: its sections, in the order of the page, and the page.
type Suite struct {
	Name     string // "router": of the files of results and of the page
	Sections []Section
	Write    func(*Page)         // fills the page
	Flags    func(*flag.FlagSet) // adds options of the suite's own; may be nil
}

// Main is the body of a suite's main function.
func (u Suite) Main() {
	if err := u.run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench-%s: %v\n", u.Name, err)
		os.Exit(1)
	}
}

func (u Suite) run(args []string) error {
	var o Options
	flags := flag.NewFlagSet("bench-"+u.Name, flag.ContinueOnError)
	name := flags.String("size", "full", "full, quick or smoke")
	only := flags.String("section", "", "comma-separated sections to measure; empty: all that the results lack at this commit and size")
	results := flags.String("results", "bench/results/"+u.Name+".json", "file of results, amended section by section")
	page := flags.String("page", "docs/bench-"+u.Name+".md", "page to write; its plots go to img/ beside it")
	render := flags.Bool("render", false, "write the page and measure nothing")
	again := flags.Bool("again", false, "measure sections anew even if the results have them")
	flags.StringVar(&o.Shunt, "shunt", "bin/shunt", "the daemon, for what needs a process of its own")
	flags.StringVar(&o.Peers, "peers", ".cache/peers", "root with the peers' programs (make bench-peers)")
	flags.IntVar(&o.DutCPU, "dut-cpu", 1, "CPU of the device under test")
	flags.IntVar(&o.GenCPU, "generator-cpu", 0, "CPU of the generator")
	if u.Flags != nil {
		u.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	var ok bool
	if o.Size, ok = Sizes[*name]; !ok {
		return fmt.Errorf("size %q: must be full, quick or smoke", *name)
	}
	if max(o.DutCPU, o.GenCPU) >= runtime.NumCPU() {
		return fmt.Errorf("this machine has CPUs 0 to %d only; the generator and the device under test need one each", runtime.NumCPU()-1)
	}
	if _, err := os.Stat(o.Peers); err != nil {
		o.Peers = ""
	}
	if *render {
		return u.WritePage(*results, *page)
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root to make network namespaces; run it with sudo")
	}
	err := u.MeasureAll(o, *results, *only, *again)
	return errors.Join(err, u.WritePage(*results, *page)) // what was measured is worth a page, whatever failed
}

// MeasureAll measures what is asked for and keeps each section as soon as it is done.
func (u Suite) MeasureAll(o Options, path, only string, again bool) error {
	chosen := u.Sections
	if only != "" {
		chosen = nil
		for _, name := range strings.Split(only, ",") {
			i := slices.IndexFunc(u.Sections, func(s Section) bool { return s.Name == name })
			if i < 0 {
				return fmt.Errorf("no section %q", name)
			}
			chosen = append(chosen, u.Sections[i])
		}
	}
	results, err := report.Load(path)
	if err != nil {
		return err
	}
	if err := lab.Sweep(); err != nil {
		return fmt.Errorf("removing what a killed run left: %w", err)
	}
	o.Interrupted = new(atomic.Bool)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		o.Interrupted.Store(true)
		signal.Stop(signals) // the second one ends the process at once
	}()
	var failed []error
	for i, s := range chosen {
		from := report.Here(o.Size.Name, versions(o))
		if had := results.Section(s.Name); had != nil && !again && only == "" && had.Provenance.Commit == from.Commit && had.Provenance.Size == o.Size.Name {
			fmt.Printf("%-11s measured already\n", s.Name)
			continue
		}
		fmt.Printf("%-11s section %d of %d: %s\n", s.Name, i+1, len(chosen), s.Title)
		idle := quiet(o.Size)
		from.Load = fmt.Sprintf("%s, %.0f %% idle", from.Load, 100*idle)
		got, err := measureSection(o, s, from)
		if err != nil {
			// The rest is still worth measuring, unless someone waits for the end.
			fmt.Printf("%-11s FAILED: %v\n", s.Name, err)
			failed = append(failed, fmt.Errorf("section %s: %w", s.Name, err))
			got.Provenance.Size = Incomplete
			got.Note("incomplete: %v", err)
		} else {
			fmt.Printf("%-11s done after %.0f s\n", s.Name, got.Provenance.Seconds)
		}
		if had := results.Section(s.Name); err == nil || had == nil || had.Provenance.Size == Incomplete {
			results.Put(got)
			if err := results.Save(path); err != nil {
				return err
			}
		}
		if o.Interrupted.Load() {
			return errors.Join(append(failed, errors.New("interrupted; the next run goes on from here"))...)
		}
	}
	order := func(s *report.Section) int {
		return slices.IndexFunc(u.Sections, func(x Section) bool { return x.Name == s.Name })
	}
	slices.SortStableFunc(results.Sections, func(a, b *report.Section) int { return order(a) - order(b) })
	return errors.Join(append(failed, results.Save(path))...)
}

// Incomplete is the size of a section that failed on its way.
const Incomplete = "incomplete"

// measureSection returns what was measured even where it ends with an error.
func measureSection(o Options, s Section, from report.Provenance) (got *report.Section, err error) {
	start := time.Now()
	b := &Bench{Options: o, Section: &report.Section{Name: s.Name, Provenance: from}, start: start, budget: s.Budget}
	defer func() { err = errors.Join(err, b.Undo()) }()
	err = guard(func() error { return s.Run(b) })
	err = errors.Join(append(b.failed, err)...)
	b.Fact("measurements repeated since other work spoiled them", strconv.Itoa(b.repeated))
	b.Provenance.Seconds = time.Since(start).Seconds()
	return b.Section, err
}

// versions are the programs that figures depend on, and how to ask them.
func versions(o Options) map[string][]string {
	return map[string][]string{
		"nft": {"nft", "--version"}, "ip": {"ip", "-V"}, "shunt": {o.Shunt, "version"},
	}
}
