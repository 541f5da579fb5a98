// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// What can become of a mutant.
const (
	killed    = "killed"
	survived  = "survived"
	stillborn = "stillborn" // does not compile, or compiles to the same code
	undecided = "undecided" // outlived the limit
)

// verdict is what became of a mutant, a line of the journal.
type verdict struct {
	mutant
	Fate    string    `json:"fate"`
	By      string    `json:"by,omitempty"`      // the case that killed it
	Reached string    `json:"reached,omitempty"` // the last stage: plain, likely, generated, whole
	Seed    uint64    `json:"seed"`              // of the sample
	Seconds int       `json:"seconds"`
	Commit  string    `json:"commit"`
	Run     time.Time `json:"run"` // when the run began
	err     error
}

func (v verdict) String() string {
	how := v.Fate
	switch v.Fate {
	case killed:
		how += " by " + v.By
	case survived:
		how = "SURVIVED " + v.Reached
	case undecided:
		how += map[bool]string{true: " in time", false: ", not noticed by " + v.Reached}[v.Reached == ""]
	}
	return fmt.Sprintf("%s: %s (%d s)", how, v.mutant, v.Seconds)
}

// journal is the file of verdicts. A mutant's last line counts.
type journal struct {
	file   *os.File
	last   map[string]verdict
	order  []string
	commit string
	run    time.Time
}

func openJournal(path string) (*journal, error) {
	if path == "" {
		path = ".cache/mutants-" + output("uname", "-r") + ".jsonl"
	}
	j := &journal{last: map[string]verdict{}, commit: output("git", "rev-parse", "--short", "HEAD"), run: time.Now().UTC().Round(time.Second)}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	text, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		defer text.Close()
		lines := bufio.NewScanner(text)
		for n := 1; lines.Scan(); n++ {
			var v verdict
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				return nil, fmt.Errorf("reading %s, line %d: %w", path, n, err)
			}
			j.note(v)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	j.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return j, err
}

func (j *journal) note(v verdict) {
	if _, known := j.last[v.key()]; !known {
		j.order = append(j.order, v.key())
	}
	j.last[v.key()] = v
}

// add writes a verdict down.
func (j *journal) add(v verdict) error {
	v.Commit, v.Run = j.commit, j.run
	j.note(v)
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }
