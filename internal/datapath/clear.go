// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Clear removes what a daemon that is gone left with its pins in a folder: what Open would adopt, in the thread's network namespace. It loads
// nothing, and so works where Open does not. It tells what it removed, in words, also where it failed on the way.
func Clear(dir string) (removed []string, err error) {
	did := func(format string, args ...any) { removed = append(removed, fmt.Sprintf(format, args...)) }
	if err := clearPins(dir, did); err != nil {
		return removed, err
	}
	err = eachClsact(func(c clsact, name string, _ ebpf.ProgramID) error {
		if err := c.remove(); err != nil {
			return fmt.Errorf("clearing %s: %w", name, err)
		}
		did("the TC stub of %s", name)
		return nil
	})
	return removed, err
}

func clearPins(dir string, did func(format string, args ...any)) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	p := pins{dir}
	if fs.Type == unix.BPF_FS_MAGIC {
		pinned, err := p.stubs()
		if err != nil {
			return err
		}
		for _, index := range slices.Sorted(maps.Keys(pinned)) {
			device, err := clearStub(index, pinned[index])
			if err != nil {
				return err
			}
			did("the XDP stub of %s", device)
		}
	}
	if err := p.remove(); err != nil {
		return fmt.Errorf("removing the folder of pins: %w", err)
	}
	did("%s", dir)
	return nil
}

// clearStub detaches a stub and removes its pin. It names the device, as far as that can be told.
func clearStub(index int, path string) (device string, err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil { // not a link: only the pin is left to remove
		return fmt.Sprintf("device %d", index), os.Remove(path)
	}
	device = deviceOf(l, index)
	if err := (linkHold{l}).remove(); err != nil {
		return device, fmt.Errorf("removing the XDP stub of %s: %w", device, err)
	}
	return device, nil
}

// deviceOf names the device that a pinned stub is attached to. The pins may come from another namespace, where its number means another
// device, so the name counts only where the device runs that very program.
func deviceOf(l link.Link, index int) string {
	info, err := l.Info()
	if err != nil {
		return fmt.Sprintf("device %d", index)
	}
	if x := info.XDP(); x == nil || x.Ifindex == 0 {
		return fmt.Sprintf("device %d, which is gone", index)
	}
	if dev, err := netlink.LinkByIndex(index); err == nil && dev.Attrs().Xdp != nil && dev.Attrs().Xdp.ProgId == uint32(info.Program) {
		return dev.Attrs().Name
	}
	return fmt.Sprintf("device %d of another namespace", index)
}
