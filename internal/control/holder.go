// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// another is ErrAnother with the process that holds one of the names (or "" for any) in the thread's network namespace and its runtime directory, as far as they can be
// found: a container sees neither that of the host. It is nil where nobody holds any but processes that can be no shunt.
func another(name string) error {
	for inode, held := range unixSockets("/proc/thread-self/net/unix") {
		if !slices.Contains(claimed, held) || name != "" && held != name {
			continue
		}
		all := holdersOf(inode)
		pids := slices.DeleteFunc(slices.Clone(all), stranger)
		switch {
		case len(pids) > 0:
			if dir := runtimeDirOf(pids[0]); dir != "" {
				return fmt.Errorf("%w: PID %s, --runtime-dir %s", ErrAnother, pids[0], dir)
			}
			return fmt.Errorf("%w: PID %s", ErrAnother, pids[0])
		case len(all) == 0:
			return ErrAnother
		}
	}
	return nil
}

// holdersOf are the processes that have a socket open.
func holdersOf(inode string) (pids []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range found {
		if target, err := os.Readlink(fd); err != nil || target != inode {
			continue
		}
		if pid := strings.Split(fd, "/")[2]; !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stranger says of a process that it can be no shunt, since it has not the privileges that one needs, or has them in a user namespace alone.
func stranger(pid string) bool {
	here, err := os.Readlink("/proc/self/ns/user")
	there, failed := os.Readlink("/proc/" + pid + "/ns/user")
	if err == nil && failed == nil && here != there {
		return true
	}
	raw, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && effective&(1<<unix.CAP_NET_ADMIN) == 0
		}
	}
	return false
}

// runtimeDirOf is the folder of the socket that a daemon answers on.
func runtimeDirOf(pid string) string {
	sockets := unixSockets("/proc/" + pid + "/net/unix")
	fds, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	for _, fd := range fds {
		inode, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		if dir, ok := strings.CutSuffix(sockets[inode], "/shunt.sock"); ok {
			return dir
		}
	}
	return ""
}

// unixSockets are the names of sockets in a network namespace, by what links to them in /proc/PID/fd say.
func unixSockets(file string) map[string]string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) { // Num RefCount Protocol Flags Type St Inode Path
		if fields := strings.Fields(line); len(fields) > 7 {
			out["socket:["+fields[6]+"]"] = strings.Join(fields[7:], " ")
		}
	}
	return out
}
