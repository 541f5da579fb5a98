// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// another is ErrAnother with the process that holds the name in the thread's network namespace and its runtime directory, as far as they can be
// found: a container sees neither that of the host.
func another() error {
	for inode, name := range unixSockets("/proc/thread-self/net/unix") {
		if name != "@shunt" {
			continue
		}
		found, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, fd := range found {
			if target, err := os.Readlink(fd); err != nil || target != inode {
				continue
			}
			pid := strings.Split(fd, "/")[2]
			if dir := runtimeDirOf(pid); dir != "" {
				return fmt.Errorf("%w: PID %s, --runtime-dir %s", ErrAnother, pid, dir)
			}
			return fmt.Errorf("%w: PID %s", ErrAnother, pid)
		}
	}
	return ErrAnother
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
