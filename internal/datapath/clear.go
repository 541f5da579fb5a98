// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

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
	if err != nil {
		return removed, err
	}
	return removed, elsewhere()
}

// ClearPins removes the pins in a folder, and what they hold; of nothing else. It is for namespaces that are gone.
func ClearPins(dir string) (removed []string, err error) {
	err = clearPins(dir, func(format string, args ...any) { removed = append(removed, fmt.Sprintf(format, args...)) })
	return removed, err
}

// ErrElsewhere is returned where stubs are left that another folder holds the pins of: only with those can they be told from what others attached.
var ErrElsewhere = errors.New("was left by a shunt of another runtime directory; name that one by --runtime-dir")

// elsewhere looks for XDP stubs that are still attached to devices of this namespace.
func elsewhere() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	var names []string
	for _, l := range links {
		if x := l.Attrs().Xdp; x != nil && x.Attached && isStub(ebpf.ProgramID(x.ProgId)) {
			names = append(names, l.Attrs().Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("the XDP stub of %s %w", strings.Join(names, ", "), ErrElsewhere)
}

// isStub knows stubs by their name, of which the kernel keeps no more than begins the linear one's.
func isStub(id ebpf.ProgramID) bool {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false // it has just gone
	}
	defer prog.Close()
	info, err := prog.Info()
	return err == nil && strings.HasPrefix(info.Name, stubXDP)
}

// mostCovers is how many file systems that lie over each other are taken away in one go.
const mostCovers = 16

// clearPins removes the pins in a folder, with those in file systems that others were mounted over.
func clearPins(dir string, did func(format string, args ...any)) error {
	for n := 1; ; n++ {
		if err := clearOnce(dir, did); !errors.Is(err, errCovered) || n == mostCovers {
			return err
		}
	}
}

func clearOnce(dir string, did func(format string, args ...any)) error {
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
	if dev, err := netlink.LinkByIndex(index); err == nil && runsHere(index, info.Program) {
		return dev.Attrs().Name
	}
	return fmt.Sprintf("device %d of another namespace", index)
}
