// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
)

// Results is a file of results.
type Results struct {
	Sections []*Section `json:"sections"`
}

// Section is what one section of a suite measured.
type Section struct {
	Name       string     `json:"name"`
	Provenance Provenance `json:"provenance"`
	measure.Set
	Facts   map[string]string `json:"facts,omitempty"` // what is not a number: "hook that auto chose" …
	Notes   []string          `json:"notes,omitempty"`
	Skipped []Skipped         `json:"skipped,omitempty"`
}

// Skipped is what was not measured, and why.
type Skipped struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Provenance says where figures come from.
type Provenance struct {
	Commit   string            `json:"commit"`
	Size     string            `json:"size"` // full, quick or smoke
	Taken    time.Time         `json:"taken"`
	Seconds  float64           `json:"seconds"`
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	MHz      float64           `json:"mhz"` // of the time stamp counter
	CPUs     int               `json:"cpus"`
	Load     string            `json:"load"` // /proc/loadavg at the start
	Versions map[string]string `json:"versions"`
}

// Note adds a remark once.
func (s *Section) Note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(s.Notes, n) {
		s.Notes = append(s.Notes, n)
	}
}

// Skip says once what is not measured, and why.
func (s *Section) Skip(what, why string) {
	if x := (Skipped{what, why}); !slices.Contains(s.Skipped, x) {
		s.Skipped = append(s.Skipped, x)
	}
}

// Fact keeps something that is not a number.
func (s *Section) Fact(name, value string) {
	if s.Facts == nil {
		s.Facts = map[string]string{}
	}
	s.Facts[name] = value
}

// Load reads a file of results; one that does not exist holds none.
func Load(path string) (*Results, error) {
	r := &Results{}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("understanding the results in %s: %w", path, err)
	}
	return r, nil
}

// Save writes the file, or leaves the old one.
func (r *Results) Save(path string) error {
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// Section finds a section by name, or nil.
func (r *Results) Section(name string) *Section {
	for _, s := range r.Sections {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Put adds a section or replaces the one of its name.
func (r *Results) Put(s *Section) {
	for i := range r.Sections {
		if r.Sections[i].Name == s.Name {
			r.Sections[i] = s
			return
		}
	}
	r.Sections = append(r.Sections, s)
}
