// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inotify tells of what netlink does not: sysctls, and the lock that legacy iptables takes. A watch on /proc/sys/net
// belongs to the namespace of the thread that placed it. Writes through another mount of /proc (a container's own) are seen
// only by the reconciliation.

const (
	xtablesLock    = "/run/xtables.lock"
	xtablesLockEnv = "XTABLES_LOCKFILE"
	sysctlRoot     = "/proc/sys/net/"
)

// sysctlDirs are the directories that hold sysctlFiles, other than those of single devices.
var sysctlDirs = []string{"ipv4", "ipv4/conf/all", "ipv4/conf/default", "ipv6", "ipv6/conf/all", "ipv6/conf/default", "bridge", "netfilter"}

// watch is the inotify descriptor with what each watch means.
type watch struct {
	fd     int
	dirs   []*os.File       // of the fixed directories: an open directory keeps its inode, to which the watch belongs
	device map[int32]string // watch descriptor to device name
	lock   map[int32]bool   // watches that tell of the xtables lock
}

func (r *Reader) openWatch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify (fs.inotify.max_user_instances may be exhausted): %w", err)
	}
	w := &watch{fd: fd, device: map[int32]string{}, lock: map[int32]bool{}}
	r.watch = w
	r.sources = append(r.sources, source{name: "inotify", fd: fd, parts: Sysctl | Links | Netfilter, drain: (*Reader).drainWatch})
	for _, d := range sysctlDirs {
		dir, err := os.Open(sysctlRoot + d)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		w.dirs = append(w.dirs, dir)
		if _, err := w.add(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), unix.IN_MODIFY); err != nil {
			return fmt.Errorf("watching %s: %w", sysctlRoot+d, err)
		}
	}
	w.watchLock()
	return nil
}

// close lets go of the watches. The kernel waits for grace periods while it removes them, on a busy machine for long; nobody waits with it.
func (w *watch) close() {
	go unix.Close(w.fd)
	for _, d := range w.dirs {
		d.Close()
	}
}

func (w *watch) add(path string, mask uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(w.fd, path, mask)
	return int32(wd), err
}

// watchLock watches the lock file, or the directory until it appears. Without /run there is nothing to watch, and changes of
// legacy tables are left to the reconciliation.
func (w *watch) watchLock() {
	path := lockPath()
	if wd, err := w.add(path, unix.IN_CLOSE); err == nil {
		w.lock[wd] = true
	} else if wd, err := w.add(filepath.Dir(path), unix.IN_CREATE); err == nil {
		w.lock[wd] = true
	}
}

// lockPath is the file that iptables-legacy and its like hold a lock on while they change a table.
func lockPath() string {
	if p := os.Getenv(xtablesLockEnv); p != "" {
		return p
	}
	return xtablesLock
}

// watchDevice watches a device's switches. The kernel removes the watch with the directory.
func (r *Reader) watchDevice(name string) {
	w := r.watch
	if w == nil {
		return
	}
	for _, family := range []string{"ipv4/conf/", "ipv6/conf/"} {
		// A device name with a slash cannot exist, one with a dot is kept as it is in these directories.
		if wd, err := w.add(sysctlRoot+family+name, unix.IN_MODIFY); err == nil {
			w.device[wd] = name
		}
	}
}

func (r *Reader) drainWatch() error {
	w := r.watch
	buf := r.live.buf
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EAGAIN {
			return nil
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			end := min(unix.SizeofInotifyEvent+int(e.Len), len(b))
			name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
			r.fileEvent(e.Wd, e.Mask, name)
			b = b[end:]
		}
	}
}

// fileEvent marks what a changed file speaks of.
func (r *Reader) fileEvent(wd int32, mask uint32, name string) {
	w := r.watch
	r.events.Add(1)
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		r.lost(Sysctl | Links | Netfilter)
	case mask&unix.IN_IGNORED != 0:
		delete(w.device, wd)
		delete(w.lock, wd)
	case w.lock[wd]:
		if mask&unix.IN_CREATE != 0 {
			if name != filepath.Base(lockPath()) {
				return
			}
			w.watchLock()
		}
		r.mark(Netfilter)
	case w.device[wd] != "":
		if name == "mtu" {
			r.mtus6()
		}
		if l := r.last.LinkByName(w.device[wd]); l != nil {
			r.markLink(l.Index)
		} else {
			r.mark(Links)
		}
	default:
		r.mark(Sysctl)
		switch name { // these write through to every device
		case "ip_forward", "forwarding", "disable_ipv6", "disable_policy", "ignore_routes_with_linkdown", "force_forwarding":
			r.mark(Links)
		}
	}
}
