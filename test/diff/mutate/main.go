// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

var (
	countFlag    = flag.Int("n", 60, "mutants to test, stillborn ones not counted")
	seedFlag     = flag.Uint64("seed", 1, "seed of the sample")
	logFlag      = flag.String("log", "", "verdicts, one a line, only ever added to: a run goes on where it ended; default .cache/mutants-KERNEL.jsonl")
	againFlag    = flag.Bool("again", false, "test those anew that have survived or were not decided")
	reportFlag   = flag.Bool("report", false, "only write the results from the verdicts")
	parallelFlag = flag.Int("parallel", 6, "cases at a time for each mutant")
	jobsFlag     = flag.Int("j", 1, "mutants at a time")
	wholeFlag    = flag.Bool("whole", false, "run every case for mutants that neither the likely ones nor four generated configurations notice, and that argued.go does not argue")
	limitFlag    = flag.Duration("limit", 20*time.Minute, "for each stage: likely cases, generated ones, all; a mutant that outlives it is not decided")
	outFlag      = flag.String("o", "", "file for the results; default bench/results/mutants-KERNEL.txt")
	skipFlag     = flag.String("skip", "", "cases to leave out, a regular expression: those that fail without a mutant")
	namedFlag    = flag.Bool("named", false, "only the named bugs of named.go")
	sampleFlag   = flag.Bool("sample", false, "only the sample")
	aboutFlag    = flag.Bool("about", false, "only the cases that are about each named bug (about.go); a bug that they do not notice counts as not decided")
	matchFlag    = flag.String("match", "", "only mutants whose line in the report matches this regular expression")
	allFlag      = flag.Bool("all", false, "also lines that this kernel cannot reach: VLAN, VRF, bonds, other kernels' ways")
	listFlag     = flag.Bool("list", false, "print the sample and stop")
)

// sources are the files that mutants are made from. What only prints is left out.
var sources = []string{"bpf/node/*.h", "bpf/include/ctx_*.h", "bpf/include/exit.h", "bpf/include/port.h", "bpf/hook/xdp.bpf.c", "bpf/hook/tc.bpf.c", "internal/synth/plan.go", "internal/synth/words.go",
	"internal/graph/family.go", "internal/graph/special.go", "internal/graph/egress.go", "internal/graph/hooks.go", "internal/graph/netfilter.go", "internal/graph/nodes.go", "internal/graph/rules.go", "internal/graph/choose.go",
	"internal/rules/image/condition.go", "internal/rules/image/lower.go", "internal/rules/image/entry.go", "internal/rules/image/set.go", "internal/rules/image/table.go", "internal/rules/image/live.go", "internal/rules/over.go"}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := everyMutant()
	if err != nil {
		return err
	}
	first, err := namedMutants()
	if err != nil {
		return err
	}
	order := append(first, sample(all)...)
	switch {
	case *namedFlag:
		order = first
	case *sampleFlag:
		order = order[len(first):]
	}
	if *matchFlag != "" {
		re, err := regexp.Compile(*matchFlag)
		if err != nil {
			return err
		}
		order = slices.DeleteFunc(order, func(m mutant) bool { return !re.MatchString(m.String()) })
	}
	if *listFlag {
		for _, m := range order[:min(*countFlag, len(order))] {
			fmt.Println(m)
		}
		return nil
	}
	j, err := openJournal(*logFlag)
	if err != nil {
		return err
	}
	defer j.close()
	if !*reportFlag {
		if err := test(order, j); err != nil {
			return err
		}
	}
	return save(j, len(all))
}

// task is a mutant and what is left to be done about it.
type task struct {
	mutant
	after string // the last stage that it has survived
	whole bool
}

// next is what is left to be done about a mutant, if anything.
func next(m mutant, j *journal) (task, bool) {
	t := task{mutant: m, whole: *wholeFlag && argument(m) == ""}
	v, known := j.last[m.key()]
	switch {
	case !known:
		return t, true
	case *againFlag:
		return t, v.Fate != killed && v.Fate != stillborn && v.Run != j.run
	case v.Fate == survived && v.Reached != "whole" && t.whole:
		t.after = v.Reached
		return t, true
	}
	return t, false
}

// test feeds the workers until as many mutants have been decided as asked for, those that an earlier run decided included.
func test(order []mutant, j *journal) error {
	work, results := make(chan task), make(chan verdict)
	defer close(work)
	for range *jobsFlag {
		t, err := copyTree()
		if err != nil {
			return err
		}
		defer os.RemoveAll(t.dir)
		go t.worker(work, results)
	}
	decided, running := 0, 0
	take := func(v verdict) error {
		running--
		if v.err != nil {
			return fmt.Errorf("%s: %w", v.mutant, v.err)
		}
		if v.Fate != stillborn {
			decided++
		}
		fmt.Printf("%3d %s\n", decided, v)
		return j.add(v)
	}
	for _, m := range order {
		t, left := next(m, j)
		if !left {
			if j.last[m.key()].Fate != stillborn {
				decided++
			}
			continue
		}
		for sent := false; !sent; {
			for running > 0 && decided+running >= *countFlag {
				if err := take(<-results); err != nil {
					return err
				}
			}
			if decided >= *countFlag {
				return nil
			}
			select {
			case work <- t:
				sent = true
				running++
			case v := <-results:
				if err := take(v); err != nil {
					return err
				}
			}
		}
	}
	for running > 0 {
		if err := take(<-results); err != nil {
			return err
		}
	}
	return nil
}

// worker builds mutants in a tree of its own and attacks them.
func (t *tree) worker(work <-chan task, results chan<- verdict) {
	bin := filepath.Join(t.dir, "shunt")
	a := &attacker{rig: filepath.Join(t.dir, "rig"), base: filepath.Join(t.dir, "base"), sound: map[string]bool{}}
	for w := range work {
		v := verdict{mutant: w.mutant, Seed: *seedFlag}
		start := time.Now()
		err := t.build(w.mutant, bin)
		if err == nil {
			v.By, v.Reached, err = a.attack(bin, w.mutant, w.after, w.whole)
		}
		v.Seconds = int(time.Since(start).Seconds())
		switch {
		case errors.Is(err, errStillborn):
			v.Fate = stillborn
		case errors.Is(err, errLimit):
			v.Fate = undecided
		case err != nil:
			v.err = err
		case v.By != "":
			v.Fate = killed
		case *aboutFlag:
			v.Fate = undecided
		default:
			v.Fate = survived
		}
		results <- v
	}
}

func everyMutant() ([]mutant, error) {
	var all []mutant
	for _, pattern := range sources {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file matches %s: run this in the root of the repository (%v)", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			all = append(all, mutate(path, string(text))...)
		}
	}
	return all, nil
}

// sample orders the mutants so that any beginning of the list is spread over files, and within each file over operators; no line
// comes twice before every line has come once.
func sample(all []mutant) []mutant {
	rng := rand.New(rand.NewPCG(*seedFlag, 7))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var rounds [][]mutant
	seen := map[string]int{}
	for _, m := range all {
		keys := []string{m.File, m.File + m.Operator, fmt.Sprint(m.File, m.Line)}
		round := seen[keys[1]]*3 + seen[keys[2]]*8 + seen[keys[0]]
		for _, k := range keys {
			seen[k]++
		}
		for len(rounds) <= round {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], m)
	}
	return slices.Concat(rounds...)
}
