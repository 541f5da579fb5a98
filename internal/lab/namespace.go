// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where iproute2 keeps named network namespaces.
const netnsDir = "/run/netns"

// NS is a named network namespace.
type NS struct {
	Name string

	file *os.File
	nl   *netlink.Handle
}

// NewNS creates the network namespace /run/netns/NAME with its loopback
// interface up. It fails with fs.ErrExist if the name is taken.
func NewNS(name string) (*NS, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("creating namespace %q: not a plain file name", name)
	}
	if err := bindNew(name); err != nil {
		return nil, fmt.Errorf("creating namespace %q: %w", name, err)
	}
	ns, err := OpenNS(name)
	if err != nil {
		return nil, errors.Join(err, deleteNS(name))
	}
	if err := ns.upLoopback(); err != nil {
		return nil, errors.Join(fmt.Errorf("creating namespace %q: %w", name, err), ns.Delete())
	}
	return ns, nil
}

// OpenNS returns the existing namespace /run/netns/NAME.
func OpenNS(name string) (*NS, error) {
	file, err := os.Open(filepath.Join(netnsDir, name))
	if err != nil {
		return nil, fmt.Errorf("opening namespace: %w", err)
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening netlink in namespace %q: %w", name, err), file.Close())
	}
	return &NS{Name: name, file: file, nl: nl}, nil
}

// Netlink returns a route netlink handle that works inside the namespace from
// any thread. It is closed with the namespace.
func (ns *NS) Netlink() *netlink.Handle { return ns.nl }

// Path is the namespace's file, for `nsenter --net=` and netlink.NsFd.
func (ns *NS) Path() string { return filepath.Join(netnsDir, ns.Name) }

// Close releases the descriptors and leaves the namespace in place.
func (ns *NS) Close() error {
	ns.nl.Close()
	return ns.file.Close()
}

// Delete closes the namespace and removes its name. The kernel frees it, and all
// interfaces in it, once no process, socket or mapping holds it any more.
func (ns *NS) Delete() error {
	return errors.Join(ns.Close(), deleteNS(ns.Name))
}

// Do runs fn on an operating system thread inside the namespace and returns its
// error. Sockets, netlink handles, processes and /proc/sys/net opened by fn
// belong to the namespace, and go on belonging to it afterwards; goroutines that
// fn starts do not. fn runs on a goroutine of its own, so it must not call
// testing.T's FailNow.
func (ns *NS) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("namespace %q: function ended its goroutine", ns.Name)
		defer func() { done <- err }()
		err = onOwnThread(func() error {
			if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering namespace %q: %w", ns.Name, err)
			}
			return fn()
		})
	}()
	return <-done
}

// onOwnThread runs fn, which may change the thread's network namespace, and puts
// the thread back. A thread that cannot be put back stays locked to its
// goroutine, and the runtime destroys it when that goroutine ends: call this only
// at the end of a goroutine.
func onOwnThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the current network namespace: %w", err)
	}
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	}()
	return fn()
}

// bindNew makes a new namespace and mounts it on its name.
func bindNew(name string) error {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	path := filepath.Join(netnsDir, name)
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	file.Close()

	done := make(chan error)
	go func() {
		done <- onOwnThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unsharing the network namespace (is CAP_SYS_ADMIN there?): %w", err)
			}
			if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mounting it on %s: %w", path, err)
			}
			return nil
		})
	}()
	if err := <-done; err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// shareNetnsDir makes /run/netns a shared mount, as `ip netns add` does and under
// the same lock, so that namespaces show up in every mount namespace.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer dir.Close() // drops the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", netnsDir, err)
	}
	const shared = unix.MS_SHARED | unix.MS_REC
	err = unix.Mount("", netnsDir, "none", shared, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("making %s a mount point: %w", netnsDir, err)
		}
		err = unix.Mount("", netnsDir, "none", shared, "")
	}
	if err != nil {
		return fmt.Errorf("sharing %s: %w", netnsDir, err)
	}
	return nil
}

func deleteNS(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmounting namespace %q: %w", name, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing namespace: %w", err)
	}
	return nil
}

func (ns *NS) upLoopback() error {
	lo, err := ns.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := ns.nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}
