// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

func TestIdentify(t *testing.T) {
	lab.RequireRoot(t)
	prefix := lab.UniquePrefix(t.Name())
	var ids []identity
	for _, name := range []string{"a", "b"} {
		ns, err := lab.NewNS(prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Delete() })
		first, ok := identify(ns.Path())
		again, _ := identify(ns.Path())
		if !ok || first != again {
			t.Errorf("%s is identified as %v (%t) and then as %v", ns.Name, first, ok, again)
		}
		ids = append(ids, first)
	}
	if ids[0] == ids[1] {
		t.Errorf("two namespaces are both %v", ids[0])
	}
	empty := filepath.Join(t.TempDir(), "empty") // as a name is before its namespace is mounted
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + "-not-there"} {
		if id, ok := identify(file); ok {
			t.Errorf("%s is identified as %v", file, id)
		}
	}
}

// Namespaces are served while they are there and their names match, each for itself.
func TestWatchNetns(t *testing.T) {
	prefix := lab.UniquePrefix(t.Name())
	d := served(t, prefix+"r*")
	if (&netnsWatcher{Daemon: d}).matches(prefix + "x") {
		t.Errorf("%s matches %s", prefix+"x", d.Netns)
	}
	if !(&netnsWatcher{Daemon: &Daemon{Options: Options{Netns: []string{"all"}}}}).matches(prefix + "x") { // by this alone: every namespace of this machine is not the test's to serve
		t.Error("all does not match every name")
	}
	makeNS := func(name string) *lab.NS {
		t.Helper()
		ns, err := lab.NewNS(prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	ready := func(name string) *member {
		m, err := d.member(prefix + name)
		if err != nil || m.engine.State() == nil {
			return nil
		}
		return m
	}
	r1, x := makeNS("r1"), makeNS("x")
	defer x.Delete()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); d.watchNetns(ctx) }()
	defer func() { cancel(); <-ended }()
	until(t, "r1 is served", func() bool { return ready("r1") != nil })
	r2 := makeNS("r2")
	defer r2.Delete()
	until(t, "r2 is served", func() bool { return ready("r2") != nil })
	second := ready("r2")

	first := ready("r1")
	if err := r1.Delete(); err != nil {
		t.Fatal(err)
	}
	r1 = makeNS("r1") // another one of the same name
	defer r1.Delete()
	until(t, "the new r1 is served", func() bool { m := ready("r1"); return m != nil && m != first })
	select {
	case <-first.done:
	default:
		t.Error("the engine of the old r1 goes on")
	}
	if ready("r2") != second {
		t.Error("r2 did not stay as it was")
	}
	if ready("x") != nil {
		t.Error("x is served, whose name does not match")
	}
	if _, err := os.Stat(pinsOf(d.RuntimeDir, prefix+"r1")); err != nil {
		t.Error(err)
	}
}
