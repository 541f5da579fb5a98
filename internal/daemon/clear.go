// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/check"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/tally"
)

// Clear removes what a daemon that is gone left in the kernel and below its runtime directory, and tells in words what that was: attachments
// of the process's network namespace and of those that the daemon served by name. It fails where a daemon lives.
func Clear(runtimeDir string) (removed []string, err error) {
	if err := check.Privileges(); err != nil {
		return nil, err
	}
	var elsewhere error // what this runtime directory has no pins of; it keeps nothing of its own from being removed
	did, err := control.Clear("", pinsOf(runtimeDir, ""))
	removed = append(removed, did...)
	if err != nil {
		err = fmt.Errorf("clearing this network namespace: %w", err)
		if !errors.Is(err, datapath.ErrElsewhere) {
			return removed, err
		}
		elsewhere = err
	}
	if removed, err = clearCounts(runtimeDir, "", removed); err != nil {
		return removed, err
	}
	for _, name := range namedIn(runtimeDir) {
		did, err := clearNamed(runtimeDir, name)
		removed = append(removed, did...)
		if err != nil && !errors.Is(err, datapath.ErrElsewhere) {
			return removed, err
		}
		elsewhere = errors.Join(elsewhere, err)
	}
	switch gone, err := api.RemoveSocket(api.Socket(runtimeDir)); {
	case err != nil:
		return removed, err
	case gone:
		removed = append(removed, api.Socket(runtimeDir))
	}
	for _, path := range append(folders(runtimeDir), runtimeDir) {
		switch err := os.Remove(path); {
		case err == nil:
			removed = append(removed, path)
		case path == runtimeDir && inUse(err):
		case !errors.Is(err, os.ErrNotExist):
			return removed, fmt.Errorf("removing what shunt made: %w", err)
		}
	}
	return removed, elsewhere
}

// clearNamed removes what was left of a namespace that was served by name, but for its folder.
func clearNamed(runtimeDir, name string) (removed []string, err error) {
	pins, path := pinsOf(runtimeDir, name), fileOf(runtimeDir, name)
	if _, there := identify(path); there {
		removed, err = control.Clear(path, pins)
	} else { // gone with all that was in it
		removed, err = datapath.ClearPins(pins)
	}
	if err != nil {
		err = fmt.Errorf("clearing the network namespace %s: %w", name, err)
		if !errors.Is(err, datapath.ErrElsewhere) {
			return removed, err
		}
	}
	removed, failed := clearCounts(runtimeDir, name, removed)
	return removed, errors.Join(err, failed)
}

// forget clears namespaces that an earlier daemon served by name and this one does not, as far as it may.
func (d *Daemon) forget(which func(name string) bool) {
	for _, name := range namedIn(d.RuntimeDir) {
		if m, _ := d.member(name); m != nil || !which(name) {
			continue
		}
		removed, err := clearNamed(d.RuntimeDir, name)
		if len(removed) > 0 {
			d.Log.Info("removed what an earlier shunt left", "netns", name, "removed", removed)
		}
		if err != nil {
			d.Log.Warn("removing what an earlier shunt left", "err", err)
			continue
		}
		d.removeFolder(name)
	}
}

// removeFolder deletes what is kept of a namespace that was served by name, as far as it is empty.
func (d *Daemon) removeFolder(name string) {
	for _, file := range []string{atOf(d.RuntimeDir, name), filepath.Join(d.RuntimeDir, "netns", name)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.Log.Warn("removing what shunt made", "err", err)
		}
	}
}

// inUse says of a runtime directory that could not be removed that somebody else uses it as well, or that something is mounted there, as in a pod.
func inUse(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) }

// clearCounts removes what was counted for a namespace's rules, and adds the file to what was removed.
func clearCounts(runtimeDir, netns string, removed []string) ([]string, error) {
	path := countsOf(runtimeDir, netns)
	there := exists(path)
	if err := tally.Remove(path); err != nil {
		return removed, err
	}
	if there {
		removed = append(removed, path)
	}
	return removed, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// pinsOf is where the links of a namespace are pinned.
func pinsOf(runtimeDir, netns string) string {
	if netns == "" {
		return filepath.Join(runtimeDir, "bpf")
	}
	return filepath.Join(runtimeDir, "netns", netns, "bpf")
}

// countsOf is where the fast path's part of the counters of a namespace's rules is kept.
func countsOf(runtimeDir, netns string) string {
	return filepath.Join(filepath.Dir(pinsOf(runtimeDir, netns)), "counts")
}

// atOf is a link to the file of a namespace that has its name elsewhere than in netnsDir.
func atOf(runtimeDir, netns string) string { return filepath.Join(runtimeDir, "netns", netns, "at") }

// fileOf is the file of a namespace that was served by name.
func fileOf(runtimeDir, netns string) string {
	if file, err := os.Readlink(atOf(runtimeDir, netns)); err == nil {
		return file
	}
	return filepath.Join(netnsDir, netns)
}

// folders are what a daemon makes for the namespaces that it serves by name, in the order of removal.
func folders(runtimeDir string) (dirs []string) {
	for _, name := range namedIn(runtimeDir) {
		if at := atOf(runtimeDir, name); exists(at) {
			dirs = append(dirs, at)
		}
		dirs = append(dirs, filepath.Join(runtimeDir, "netns", name))
	}
	return append(dirs, filepath.Join(runtimeDir, "netns"))
}

// namedIn lists the namespaces for which there is a folder. Names of namespaces themselves are files: below /run they lie in a "netns", too.
func namedIn(runtimeDir string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(runtimeDir, "netns"))
	if err != nil {
		return nil // most likely not there
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
