// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
)

const (
	rescanEvery = time.Second            // also finds a /run/netns that did not exist yet
	lookAgain   = 20 * time.Millisecond  // a name appears before the namespace is mounted on it
	lookFor     = 500 * time.Millisecond // how long a change in the folder makes us look again
	retryFirst  = time.Second            // after an engine failed, doubled each time
	retryMost   = time.Minute
)

// netnsDir is where network namespaces have names that iproute2 gave them.
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

// netnsPatterns refuses globs that cannot be meant.
func netnsPatterns(globs []string) error {
	for _, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil {
			return api.Errorf(api.KindUsage, "--netns %q: %v; a pattern has *, ? and [a-z]", glob, err)
		}
		if dir, names := filepath.Split(glob); names == "" || dir != "" && (!filepath.IsAbs(dir) || strings.ContainsAny(dir, `*?[\`)) {
			return api.Errorf(api.KindUsage, "--netns %q is neither a pattern of names under %s nor one in a folder that is written out, like '/run/docker/netns/1-*'", glob, netnsDir)
		}
	}
	return nil
}

// netnsWatcher keeps one member for each namespace that matches.
type netnsWatcher struct {
	*Daemon
	own     identity
	retry   map[string]backoff
	blind   bool            // a folder could not be read, which the log has been told
	told    map[string]bool // files that have another's name, and folders that cannot be watched, of which the log knows
	changed chan struct{}
}

// netnsFile is where a namespace has a name.
type netnsFile struct {
	path string
	identity
}

type backoff struct {
	next  time.Time
	delay time.Duration
}

// watchNetns starts and ends members as namespaces come and go. inotify says that something changed; what is there is always read anew.
func (d *Daemon) watchNetns(ctx context.Context) {
	w := &netnsWatcher{Daemon: d, retry: map[string]backoff{}, told: map[string]bool{}, changed: make(chan struct{}, 1)}
	w.own, _ = identify("/proc/self/ns/net")
	d.forget(func(name string) bool { // names that do not come back would add up
		_, there := identify(fileOf(d.RuntimeDir, name))
		return !there
	})
	watched := map[string]watchedFolder{}
	defer func() {
		for _, f := range watched {
			f.inotify.Close()
		}
	}()
	until := time.Now()
	for ctx.Err() == nil {
		w.watch(watched)
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

// watchedFolder is a folder whose changes are told.
type watchedFolder struct {
	inotify *os.File
	gone    chan struct{} // closed when it was removed: one that is made anew may have its number
	identity
}

func (f watchedFolder) is(id identity) bool {
	select {
	case <-f.gone:
		return false
	default:
		return f.identity == id
	}
}

// watch has the changes of every folder told; one that was made anew, or that something was mounted over, is another.
func (w *netnsWatcher) watch(watched map[string]watchedFolder) {
	for _, dir := range w.folders() {
		var st unix.Stat_t
		there := unix.Stat(dir, &st) == nil
		id := identity{uint64(st.Dev), st.Ino}
		old, known := watched[dir]
		if there && known && old.is(id) {
			continue
		}
		if known {
			old.inotify.Close()
			delete(watched, dir)
		}
		if inotify, gone := w.subscribe(dir); inotify != nil {
			watched[dir] = watchedFolder{inotify, gone, id}
		}
	}
}

// folders are where namespaces that could match have names.
func (w *netnsWatcher) folders() (dirs []string) {
	for _, glob := range w.Netns {
		if dir, _ := w.split(glob); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// split gives the folder and the pattern of names that a glob stands for; one without a folder is about iproute2's names.
func (w *netnsWatcher) split(glob string) (dir, names string) {
	switch dir, names = filepath.Split(glob); {
	case dir != "":
		return filepath.Clean(dir), names
	case names == "all":
		return w.netnsDir, "*"
	}
	return w.netnsDir, names
}

// subscribe watches a folder, and says when that ends because it is gone; nil when it is not there.
func (w *netnsWatcher) subscribe(dir string) (f *os.File, gone chan struct{}) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		w.unwatched(dir, err)
		return nil, nil
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_ONLYDIR); err != nil {
		unix.Close(fd)
		if !errors.Is(err, unix.ENOENT) {
			w.unwatched(dir, err)
		}
		return nil, nil
	}
	f, gone = os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return // closed
			}
			last := ended(buf[:n])
			if last {
				close(gone)
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
			if last {
				return
			}
		}
	}()
	return f, gone
}

// ended says whether one of these events (struct inotify_event) is the last of its watch.
func ended(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		if binary.NativeEndian.Uint32(events[4:])&unix.IN_IGNORED != 0 {
			return true
		}
		events = events[min(len(events), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:]))):]
	}
	return false
}

// unwatched tells the log, once for each folder, why its changes are noticed late.
func (w *netnsWatcher) unwatched(dir string, err error) {
	if !w.told[dir] {
		w.told[dir] = true
		w.Log.Warn("watching for network namespaces; looking once a second instead", "dir", dir, "err", err)
	}
}

// scan makes members and namespaces agree.
func (w *netnsWatcher) scan() {
	there, ok := w.look()
	if !ok {
		return
	}
	for _, m := range w.served() {
		if f, ok := there[m.name]; m.name != "" && (!ok || f.identity != m.identity) {
			w.Log.Info("a network namespace is gone", "netns", m.name)
			w.drop(m)
			delete(w.retry, m.name)
		}
	}
	for name, f := range there {
		w.serveOne(name, f)
	}
}

// look lists the namespaces that match, by their names; false if a folder cannot be read. Of two folders with the same name the first counts.
func (w *netnsWatcher) look() (there map[string]netnsFile, ok bool) {
	there = map[string]netnsFile{}
	for _, dir := range w.folders() {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			if !w.blind { // not with each scan
				w.Log.Warn("listing network namespaces", "err", err)
			}
			w.blind = true
			return nil, false
		}
		for _, e := range entries {
			if !w.matches(dir, e.Name()) {
				continue
			}
			file := filepath.Join(dir, e.Name())
			id, ok := identify(file)
			if !ok || id == w.own {
				continue
			}
			if first, taken := there[e.Name()]; !taken {
				there[e.Name()] = netnsFile{file, id}
			} else if first.identity != id && !w.told[file] {
				w.told[file] = true
				w.Log.Warn("a network namespace has the name of another and stays with Linux", "file", file, "other", first.path)
			}
		}
	}
	w.blind = false
	return there, true
}

// serveOne starts a member where there is none, and again, later each time, where it failed.
func (w *netnsWatcher) serveOne(name string, f netnsFile) {
	m, _ := w.member(name)
	if m != nil {
		select {
		case <-m.done:
		default:
			if b, waited := w.retry[name]; waited && time.Now().After(b.next) {
				delete(w.retry, name) // it has run for as long as it waited
			}
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
	if err := w.remember(name, f.path); err != nil {
		w.Log.Warn("`shunt stop --detach` will not find the namespace without this daemon", "netns", name, "err", err)
	}
	if _, err := w.start(name, f.path, &f.identity); err == nil {
		w.Log.Info("serving a network namespace", "netns", name)
	}
}

// remember writes down where a namespace is that has its name elsewhere than in netnsDir.
func (w *netnsWatcher) remember(name, path string) error {
	at := atOf(w.RuntimeDir, name)
	if old, err := os.Readlink(at); err == nil && old == path {
		return nil
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if filepath.Dir(path) == w.netnsDir {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.Symlink(path, at)
}

// drop ends a member and takes what it left in the kernel and in the file system.
func (w *netnsWatcher) drop(m *member) {
	m.end(true)
	w.mu.Lock()
	delete(w.members, m.name)
	w.mu.Unlock()
	w.removeFolder(m.name)
}

func (w *netnsWatcher) matches(dir, name string) bool {
	for _, glob := range w.Netns {
		if in, names := w.split(glob); in == dir {
			if ok, err := path.Match(names, name); err == nil && ok {
				return true
			}
		}
	}
	return false
}
