// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// pins is a folder in a BPF file system of our own: `ip netns exec` hides /sys/fs/bpf.
type pins struct{ dir string }

// openPins mounts a BPF file system at dir unless one is there.
func openPins(dir string) (pins, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pins{}, fmt.Errorf("making the folder for pinned links: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return pins{}, fmt.Errorf("looking at %s: %w", dir, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			return pins{}, fmt.Errorf("mounting a BPF file system at %s (needs CAP_SYS_ADMIN and CONFIG_BPF_SYSCALL): %w", dir, err)
		}
	}
	return pins{dir}, nil
}

// stub is where the XDP stub's link of a device is pinned.
func (p pins) stub(index int) string { return filepath.Join(p.dir, fmt.Sprintf("xdp-%d", index)) }

// stubs lists what is pinned: path by ifindex.
func (p pins) stubs() (map[int]string, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("listing pinned links: %w", err)
	}
	out := map[int]string{}
	for _, e := range entries {
		var index int
		if _, err := fmt.Sscanf(e.Name(), "xdp-%d", &index); err == nil && strings.HasPrefix(e.Name(), "xdp-") {
			out[index] = filepath.Join(p.dir, e.Name())
		}
	}
	return out, nil
}

// remove unmounts and deletes the folder; pins in it must be gone. errCovered says that it was another file system that was unmounted.
func (p pins) remove() error {
	unmounted := unix.Unmount(p.dir, unix.MNT_DETACH)
	if unmounted != nil && !errors.Is(unmounted, unix.EINVAL) {
		return fmt.Errorf("unmounting %s: %w", p.dir, unmounted)
	}
	err := os.Remove(p.dir)
	if errors.Is(err, unix.EBUSY) && unmounted == nil {
		return fmt.Errorf("%s: %w", p.dir, errCovered)
	}
	return err
}

// errCovered is returned where one more file system was mounted over the folder of pins, whose own pins are visible only now.
var errCovered = errors.New("another file system lay over the one with the pins")
