// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// file is what a Tally leaves to the next one: what Linux cannot be told. An ID has the handles of a table and of what is in it, which a namespace
// never gives again, so what is found under one is its counter's or nobody's.
type file struct {
	Namespace uint64  `json:"namespace"` // its cookie, which no other has until the machine starts anew
	Counts    []saved `json:"counts"`
}

type saved struct {
	ID      []byte `json:"id"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Cookie is that of the calling thread's network namespace.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("asking for the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// Load takes over what the last Tally of a namespace saved. Without a file, or with one of another namespace, there is nothing.
func (t *Tally) Load(path string, namespace uint64) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return fmt.Errorf("reading what was counted for rules: %w", err)
	}
	if f.Namespace != namespace {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range f.Counts {
		t.kept[string(c.ID)] = ruleset.Amount{Packets: c.Packets, Bytes: c.Bytes}
	}
	t.saved = maps.Clone(t.kept)
	return nil
}

// Save writes what Load is to find, if that has changed: as a whole or not at all.
func (t *Tally) Save(path string, namespace uint64) error {
	t.mu.Lock()
	if maps.Equal(t.kept, t.saved) {
		t.mu.Unlock()
		return nil
	}
	now := maps.Clone(t.kept)
	t.mu.Unlock()
	f := file{Namespace: namespace, Counts: make([]saved, 0, len(now))}
	for id, c := range now {
		f.Counts = append(f.Counts, saved{[]byte(id), c.Packets, c.Bytes})
	}
	raw, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("saving what was counted for rules: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saved = now
	return nil
}

// Remove deletes what Save wrote; "" is no file.
func Remove(path string) error {
	if path == "" {
		return nil
	}
	for _, p := range []string{path, path + ".new"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what was counted for rules: %w", err)
		}
	}
	return nil
}
