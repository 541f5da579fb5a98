// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rescanEvery = time.Second            // also finds a /run/netns that did not exist yet
	lookAgain   = 20 * time.Millisecond  // a name appears before the namespace is mounted on it
	lookFor     = 500 * time.Millisecond // how long a change in the folder makes us look again
	retryFirst  = time.Second            // after an engine failed, doubled each time
	retryMost   = time.Minute
)

// netnsDir is where network namespaces have names.
const netnsDir = "/run/netns"

// identity tells namespaces apart, whatever their names.
type identity struct{ dev, ino uint64 }

// identify looks at a namespace file; false when nothing is mounted there (yet).
func identify(file string) (identity, bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(file, &fs) != nil || fs.Type != unix.NSFS_MAGIC || unix.Stat(file, &st) != nil {
		return identity{}, false
	}
	return identity{uint64(st.Dev), st.Ino}, true
}

// netnsWatcher keeps one member for each namespace that matches.
type netnsWatcher struct {
	*Daemon
	own     identity
	retry   map[string]backoff
	changed chan struct{}
}

type backoff struct {
	next  time.Time
	delay time.Duration
}

// watchNetns starts and ends members as namespaces come and go. inotify says that something changed; what is there is always read anew.
func (d *Daemon) watchNetns(ctx context.Context) {
	w := &netnsWatcher{Daemon: d, retry: map[string]backoff{}, changed: make(chan struct{}, 1)}
	w.own, _ = identify("/proc/self/ns/net")
	var inotify *os.File
	defer func() {
		if inotify != nil {
			inotify.Close()
		}
	}()
	until := time.Now()
	for ctx.Err() == nil {
		if inotify == nil {
			inotify = w.subscribe()
		}
		w.scan()
		wait := rescanEvery
		if time.Now().Before(until) {
			wait = lookAgain
		}
		select {
		case <-ctx.Done():
		case <-w.changed:
			until = time.Now().Add(lookFor)
		case <-time.After(wait):
		}
	}
}

// subscribe watches the folder; nil when it is not there.
func (w *netnsWatcher) subscribe() *os.File {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		w.Log.Warn("watching for network namespaces; looking once a second instead", "err", err)
		return nil
	}
	if _, err := unix.InotifyAddWatch(fd, w.netnsDir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_ONLYDIR); err != nil {
		unix.Close(fd)
		if !errors.Is(err, unix.ENOENT) {
			w.Log.Warn("watching for network namespaces; looking once a second instead", "dir", w.netnsDir, "err", err)
		}
		return nil
	}
	f := os.NewFile(uintptr(fd), "inotify")
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := f.Read(buf); err != nil {
				return // closed
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}()
	return f
}

// scan makes members and namespaces agree.
func (w *netnsWatcher) scan() {
	there := map[string]identity{}
	entries, err := os.ReadDir(w.netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Log.Warn("listing network namespaces", "err", err)
		return
	}
	for _, e := range entries {
		if id, ok := identify(filepath.Join(w.netnsDir, e.Name())); ok && id != w.own && w.matches(e.Name()) {
			there[e.Name()] = id
		}
	}
	for _, m := range w.served() {
		if id, ok := there[m.name]; m.name != "" && (!ok || id != m.identity) {
			w.Log.Info("a network namespace is gone", "netns", m.name)
			w.drop(m)
			delete(w.retry, m.name)
		}
	}
	for name, id := range there {
		w.serveOne(name, id)
	}
}

// serveOne starts a member where there is none, and again, later each time, where it failed.
func (w *netnsWatcher) serveOne(name string, id identity) {
	m, _ := w.member(name)
	if m != nil {
		select {
		case <-m.done:
		default:
			return
		}
		b, waiting := w.retry[name]
		if !waiting {
			b = backoff{time.Now().Add(retryFirst), retryFirst}
			w.retry[name] = b
			w.Log.Error("a network namespace stays with Linux; trying again", "netns", name, "in", b.delay, "err", m.err)
		}
		if time.Now().Before(b.next) {
			return
		}
		b.delay = min(2*b.delay, retryMost)
		b.next = time.Now().Add(b.delay)
		w.retry[name] = b
		w.drop(m)
	}
	if _, err := w.start(name, filepath.Join(w.netnsDir, name), &id); err == nil {
		w.Log.Info("serving a network namespace", "netns", name)
	}
}

// drop ends a member and takes what it left in the kernel and in the file system.
func (w *netnsWatcher) drop(m *member) {
	m.end(true)
	w.mu.Lock()
	delete(w.members, m.name)
	w.mu.Unlock()
	dir := filepath.Join(w.RuntimeDir, "netns", m.name)
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Log.Warn("removing what shunt made", "err", err)
	}
}

func (w *netnsWatcher) matches(name string) bool {
	for _, glob := range w.Netns {
		if ok, err := path.Match(glob, name); glob == "all" || err == nil && ok {
			return true
		}
	}
	return false
}
