// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl writes one setting inside the namespace, given as "net.ipv4.ip_forward=1".
// Write a name that contains dots with slashes: "net/ipv4/conf/e0.5/rp_filter=1".
func (ns *NS) Sysctl(setting string) error {
	name, value, ok := strings.Cut(setting, "=")
	if !ok {
		return fmt.Errorf("sysctl %q: not of the form name=value", setting)
	}
	return ns.Do(func() error {
		if err := os.WriteFile(sysctlPath(name), []byte(value), 0); err != nil {
			return fmt.Errorf("setting %s in namespace %q: %w", setting, ns.Name, err)
		}
		return nil
	})
}

// ReadSysctl returns one setting of the namespace, without the trailing newline.
func (ns *NS) ReadSysctl(name string) (string, error) {
	var value []byte
	err := ns.Do(func() (err error) {
		value, err = os.ReadFile(sysctlPath(name))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading sysctl %s in namespace %q: %w", name, ns.Name, err)
	}
	return strings.TrimSpace(string(value)), nil
}

func sysctlPath(name string) string {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	return "/proc/sys/" + strings.TrimSpace(name)
}

// Sysfs returns the namespace's own view of /sys. The mounted /sys shows the
// interfaces of the namespace that mounted it; this one is a mount that no mount
// table lists and that ends when the root is closed.
func (ns *NS) Sysfs() (*os.Root, error) {
	var root *os.Root
	err := ns.Do(func() error {
		fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("opening sysfs: %w", err)
		}
		defer unix.Close(fs)
		if err := unix.FsconfigCreate(fs); err != nil {
			return fmt.Errorf("creating a sysfs superblock: %w", err)
		}
		mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("mounting sysfs: %w", err)
		}
		defer unix.Close(mount)
		root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", mount))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", ns.Name, err)
	}
	return root, nil
}

// writeSysfs writes one file of the namespace's /sys, path relative to it.
func (ns *NS) writeSysfs(path, value string) error {
	root, err := ns.Sysfs()
	if err != nil {
		return err
	}
	defer root.Close()
	file, err := root.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("namespace %q: %w", ns.Name, err)
	}
	defer file.Close()
	if _, err := file.WriteString(value); err != nil {
		return fmt.Errorf("writing %q to %s in namespace %q: %w", value, path, ns.Name, err)
	}
	return nil
}
