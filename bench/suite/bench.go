// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
)

// Options are what the command line decides.
type Options struct {
	Size   size
	Shunt  string // path of the daemon's binary
	Peers  string // root of another distribution with the peers' programs, "" for none
	DutCPU int    // where the device under test works
	GenCPU int    // where packets are made

	Interrupted *atomic.Bool
}

// size says how long everything takes.
type size struct {
	Name          string
	Rounds        int           // of throughput measurements
	Warm, Measure time.Duration // of one measurement
	Reactions     int           // of each command, at rest and under churn each
	Processes     int           // reactions to commands that are processes
	runs          int           // of a program, one by one
	attempts      int           // at a measurement that something else spoiled
}

// The sizes: full for the published page, quick for a look, smoke for the test that keeps the sections from rotting.
var Sizes = map[string]size{
	"full": {Name: "full", Rounds: 7, Warm: 150 * time.Millisecond, Measure: 600 * time.Millisecond,
		Reactions: 200, Processes: 40, runs: 20_000, attempts: 5},
	"quick": {Name: "quick", Rounds: 3, Warm: 50 * time.Millisecond, Measure: 200 * time.Millisecond,
		Reactions: 30, Processes: 5, runs: 2_000, attempts: 5},
	"smoke": {Name: "smoke", Rounds: 1, Warm: 20 * time.Millisecond, Measure: 30 * time.Millisecond,
		Reactions: 2, Processes: 1, runs: 50, attempts: 50},
}

// Bench is one section while it is measured.
type Bench struct {
	Options
	*report.Section

	start    time.Time
	budget   time.Duration
	cleanup  []func() error
	failed   []error // of parts
	repeated int     // measurements that something else spoiled
	distance distance
}

// Later registers what has to be undone at the end of the section, last first.
func (b *Bench) Later(undo func() error) { b.cleanup = append(b.cleanup, undo) }

// Undo does so now: between the parts of a section.
func (b *Bench) Undo() (err error) {
	for len(b.cleanup) > 0 {
		last := len(b.cleanup) - 1
		fn := b.cleanup[last]
		b.cleanup = b.cleanup[:last]
		err = errors.Join(err, fn())
	}
	return err
}

// ErrInterrupted ends a section between two turns.
var ErrInterrupted = errors.New("interrupted")

// Say tells how far the section is.
func (b *Bench) Say(format string, args ...any) {
	fmt.Printf("%-11s %4.0f s  %s\n", b.Name, time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// Late says whether the section has used up its time. What is begun is ended; what is not is skipped by name.
func (b *Bench) Late() bool { return b.budget > 0 && time.Since(b.start) > b.budget }

// Part runs one part of a section and undoes what it built. A part that fails is named among what was not measured, and the section
// goes on with the next one; at its end it counts as incomplete.
func (b *Bench) Part(name string, run func() error) error {
	if b.Late() {
		b.Skip(name, "the section's time was up")
		return nil
	}
	err := guard(run)
	if err = errors.Join(err, b.Undo()); err == nil || errors.Is(err, ErrInterrupted) {
		return err
	}
	b.Say("%s: FAILED: %v", name, err)
	b.Skip(name, fmt.Sprintf("failed: %v", err))
	b.failed = append(b.failed, fmt.Errorf("%s: %w", name, err))
	return nil
}

// guard makes an error of a panic: a mistake in one part is that part's failure.
func guard(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return run()
}

// Turns measures the variants in turns, telling how far it is. A section that is late gets two rounds of what it has begun.
func (b *Bench) Turns(name string, rounds int, turns []measure.Turn) error {
	for i := range turns {
		run := turns[i].Run
		turns[i].Run = func(set *measure.Set) error {
			if b.Interrupted.Load() {
				return ErrInterrupted
			}
			return run(set)
		}
	}
	last := -1
	return measure.Turns(&b.Set, rounds, turns, func(round int, _ string) bool {
		if round == last {
			return true
		}
		if last = round; round >= 2 && b.Late() {
			b.Note("%s: %d rounds instead of %d, since the section's time was up", name, round, rounds)
			return false
		}
		b.Say("%s: round %d of %d, %d variants", name, round+1, rounds, len(turns))
		return true
	})
}

// TempDir is a folder for the length of the section.
func (b *Bench) TempDir() (string, error) {
	dir, err := os.MkdirTemp("", "shunt-bench-")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	b.Later(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// Section is one question.
type Section struct {
	Name, Title string
	About       string // what is compared and how, for the page
	Run         func(*Bench) error
	Budget      time.Duration // after which no more is begun; 0: none
}
