// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deafAfter is how long a daemon that starts or ends may hold its folder without a socket.
const deafAfter = 300 * time.Millisecond

// deaf is the error for a daemon that holds a runtime directory from which its socket was removed: it works, and nobody can ask it. nil if there is none.
func deaf(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer dir.Close()
	if !errors.Is(syscall.Flock(int(dir.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return nil
	}
	who, kill := "", "kill"
	if pid := lockedBy(dir); pid != "" {
		who, kill = " (PID "+pid+")", "kill "+pid
	}
	return Errorf(KindFailed, "the shunt daemon of %s%s cannot be asked, since its socket was removed; `%s` ends it in order, and `shunt stop --detach` then removes what it leaves", folder, who, kill)
}

// lockedBy is the process that holds the lock of a folder, "" where that cannot be told.
func lockedBy(dir *os.File) string {
	var st unix.Stat_t
	raw, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(dir.Fd()), &st) != nil {
		return ""
	}
	place := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)
	for line := range strings.Lines(string(raw)) { // 1: FLOCK  ADVISORY  WRITE 708 00:1a:14 0 EOF
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[3] == "WRITE" && f[5] == place {
			return f[4]
		}
	}
	return ""
}
