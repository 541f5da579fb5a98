// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
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
	if (&netnsWatcher{Daemon: d}).matches(netnsDir, prefix+"x") {
		t.Errorf("%s matches %s", prefix+"x", d.Netns)
	}
	if !(&netnsWatcher{Daemon: &Daemon{netnsDir: netnsDir, Options: Options{Netns: []string{"all"}}}}).matches(netnsDir, prefix+"x") { // by this alone: every namespace of this machine is not the test's to serve
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

// Namespaces that have their names elsewhere, as Docker's, are served by a pattern of files, and cleared when the daemon is gone.
func TestWatchNetnsElsewhere(t *testing.T) {
	prefix := lab.UniquePrefix(t.Name())
	dir := t.TempDir()
	d := served(t, dir+"/1-*", prefix+"other")
	ns, err := lab.NewNS(prefix + "ns")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	place := func(name string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(ns.Path(), file, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(file, unix.MNT_DETACH) })
		return file
	}
	file := place("1-abc")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); d.watchNetns(ctx) }()
	defer func() { cancel(); <-ended }()
	until(t, "1-abc is served", func() bool { m, err := d.member("1-abc"); return err == nil && m.engine.State() != nil })
	if got := fileOf(d.RuntimeDir, "1-abc"); got != file {
		t.Errorf("without the daemon 1-abc is looked for at %s, not at %s", got, file)
	}
	if err := (&netnsWatcher{Daemon: d}).remember(prefix+"other", filepath.Join(netnsDir, prefix+"other")); err != nil {
		t.Errorf("there is nothing to remember of a namespace that has its name where all have: %v", err)
	}
	if got, want := fileOf(d.RuntimeDir, prefix+"other"), filepath.Join(netnsDir, prefix+"other"); got != want {
		t.Errorf("without the daemon %s is looked for at %s, not at %s", prefix+"other", got, want)
	}
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	until(t, "1-abc is gone", func() bool { _, err := d.member("1-abc"); return err != nil })
	until(t, "its folder is gone", func() bool {
		_, err := os.Lstat(filepath.Join(d.RuntimeDir, "netns", "1-abc"))
		return os.IsNotExist(err)
	})
}

func TestNetnsPatterns(t *testing.T) {
	for _, glob := range []string{"all", "qrouter-*", "a", "/run/docker/netns/1-*", "/run/docker/netns/[0-9]*"} {
		if err := netnsPatterns([]string{glob}); err != nil {
			t.Errorf("%q: %v", glob, err)
		}
	}
	for _, glob := range []string{"", "[", "docker/netns/1-*", "/run/docker/netns/", "/run/*/netns/1-*"} {
		var said *api.Error
		if err := netnsPatterns([]string{glob}); !errors.As(err, &said) || said.Kind != api.KindUsage {
			t.Errorf("%q: %v", glob, err)
		}
	}
}

// What an earlier daemon left of namespaces that are gone is removed by one that serves named ones, and by taking everything away.
func TestForgottenNamespaces(t *testing.T) {
	for _, watches := range []bool{true, false} {
		d := served(t, lab.UniquePrefix(t.Name())+"nobody")
		left := pinsOf(d.RuntimeDir, "gone")
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("bpf", left, "bpf", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(left, unix.MNT_DETACH) })
		if !watches {
			continue // served asks, at the end, whether everything has gone
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); d.watchNetns(ctx) }()
		until(t, "what was left is gone", func() bool { return !exists(filepath.Dir(left)) })
		cancel()
		<-ended
	}
}

// A member that runs for longer than it had to wait has no failure behind it any more: the next one is its first, which the log is told.
func TestBackoffEnds(t *testing.T) {
	m := &member{name: "a", done: make(chan struct{})}
	w := &netnsWatcher{Daemon: &Daemon{members: map[string]*member{"a": m}}, retry: map[string]backoff{"a": {next: time.Now().Add(time.Hour), delay: time.Hour}}}
	if w.serveOne("a", netnsFile{}); len(w.retry) != 1 {
		t.Error("what failed a moment ago is forgotten")
	}
	w.retry["a"] = backoff{next: time.Now().Add(-time.Second), delay: time.Second}
	if w.serveOne("a", netnsFile{}); len(w.retry) != 0 {
		t.Errorf("a member that runs still waits: %v", w.retry)
	}
}

// What keeps folders from being read or watched is told once, not with each look.
func TestFoldersThatCannotBeRead(t *testing.T) {
	var told strings.Builder
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &netnsWatcher{Daemon: &Daemon{netnsDir: file, Options: Options{Netns: []string{"all"}, Log: slog.New(slog.NewTextHandler(&told, nil))}}, told: map[string]bool{}}
	for range 3 {
		if _, ok := w.look(); ok || !unwatchable(w, file) {
			t.Fatal("a file is a folder")
		}
	}
	if lines := strings.Count(told.String(), "\n"); lines != 2 {
		t.Errorf("%d lines, want one of reading and one of watching:\n%s", lines, told.String())
	}
}

// Where other namespaces are served, the daemon's own engine is started again when it ends by itself, and they go on; alone it ends the daemon.
func TestOwnEngineAgain(t *testing.T) {
	d := served(t)
	d.serveLine(t) // as the daemon's own
	first, err := d.member("dut")
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan error, 1)
	first.cancel()
	if err := d.keepOwn(first); err != nil {
		t.Error(err)
	}
	d.Netns = []string{"others"}
	go func() { kept <- d.keepOwn(first) }()
	until(t, "it is served again", func() bool { m, err := d.member("dut"); return err == nil && m != first && m.engine.State() != nil })
	d.stop()
	if err := <-kept; err != nil {
		t.Error(err)
	}
}

func unwatchable(w *netnsWatcher, dir string) bool {
	f, _ := w.subscribe(dir)
	return f == nil
}

// A folder that is made anew is watched as the first one was.
func TestFolderMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "netns")
	w := &netnsWatcher{Daemon: &Daemon{netnsDir: dir, Options: Options{Netns: []string{"all"}, Log: slog.New(slog.DiscardHandler)}}, told: map[string]bool{}, changed: make(chan struct{}, 1)}
	watched := map[string]watchedFolder{}
	defer func() {
		for _, f := range watched {
			f.inotify.Close()
		}
	}()
	w.watch(watched) // it is not there yet
	for n := range 3 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		w.watch(watched)
		first := watched[dir].inotify
		if w.watch(watched); first == nil || watched[dir].inotify != first {
			t.Fatalf("folder %d is watched by %v and then by %v", n, first, watched[dir].inotify)
		}
		if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.changed:
		case <-time.After(patience):
			t.Fatalf("nothing is told of folder %d", n)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		<-watched[dir].gone
		for len(w.changed) > 0 {
			<-w.changed
		}
	}
}
