// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
)

// enter moves the calling, locked thread into a network namespace.
func enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the network namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	return enterFile(fd, path)
}

// enterFile moves it into one that is open already: what its name was may be another's by now, or nobody's.
func enterFile(fd int, path string) error {
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace %s (needs CAP_SYS_ADMIN): %w", path, err)
	}
	return nil
}

// ErrAnother is what claiming a namespace fails with when a shunt already runs in the namespace.
var ErrAnother = errors.New("another shunt runs in this network namespace; `shunt status` with its --runtime-dir shows it, `shunt stop` ends it")

// claimed are the names that a shunt may claim a namespace by: the first, unless it is held by a process that cannot be a shunt. Anybody may take it.
var claimed = []string{"@shunt", "@shunt2", "@shunt3", "@shunt4"}

// claim makes sure that one shunt runs in the thread's network namespace. Abstract socket names belong to a network namespace and
// vanish with their process, so neither a crash nor another runtime directory can fool this.
func claim() (release func(), err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("claiming the network namespace: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := another(""); err != nil { // by whatever name
		return nil, err
	}
	for _, name := range claimed {
		switch err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); {
		case err == nil:
			return func() { unix.Close(fd) }, nil
		case !errors.Is(err, unix.EADDRINUSE):
			return nil, fmt.Errorf("claiming the network namespace: %w", err)
		}
		if err := another(name); err != nil { // it has come this moment
			return nil, err
		}
	}
	return nil, fmt.Errorf("claiming the network namespace: %s are taken by processes that are no shunt", strings.Join(claimed, ", "))
}

// Clear removes what a dead daemon left in a network namespace ("" for the process's), with its pins in a folder, and tells in words what that
// was. It fails with ErrAnother where a daemon lives.
func Clear(netnsPath, pinDir string) (removed []string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, whatever namespace it is in
		if netnsPath != "" {
			if err = enter(netnsPath); err != nil {
				return
			}
		}
		var release func()
		if release, err = claim(); err != nil {
			return
		}
		defer release()
		removed, err = datapath.Clear(pinDir)
	}()
	<-done
	return removed, err
}
