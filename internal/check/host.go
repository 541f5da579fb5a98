// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "OK"
	Warn Level = "WARN" // works, but less or slower than it could
	Fail Level = "FAIL" // does not work
)

// Result is one line.
type Result struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Advice  string `json:"advice,omitempty"` // what would help
}

// All checks the host, and where that has no failure, the network namespace of the process.
func All() []Result {
	out := []Result{kernel(), required("type information", typeInformation), required("BPF file system", bpfFS), required("one packet at a time on a CPU", oneAtATime), privileges(), lockdown()}
	for _, r := range out {
		if r.Level == Fail {
			return out // the rest could not be read
		}
	}
	return append(out, namespace()...)
}

func required(subject string, test func() error) Result {
	if err := test(); err != nil {
		return Result{Fail, subject, err.Error(), ""}
	}
	return Result{OK, subject, "there", ""}
}

func kernel() Result {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Result{Warn, "kernel", err.Error(), ""}
	}
	release := unix.ByteSliceToString(u.Release[:])
	if err := datapath.Required(); err != nil {
		return Result{Fail, "kernel", fmt.Sprintf("%s: %v", release, err), "boot a kernel from 6.1 on"}
	}
	return Result{OK, "kernel", release, ""}
}

func privileges() Result {
	if err := Privileges(); err != nil {
		return Result{Fail, "privileges", strings.TrimPrefix(err.Error(), ErrPrivilege.Error()+": "), ""}
	}
	return Result{OK, "privileges", "all that shunt needs", ""}
}

// lockdown in confidentiality mode keeps programs from reading kernel memory.
func lockdown() Result {
	const file = "/sys/kernel/security/lockdown"
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Result{OK, "lockdown", "off (not in this kernel, or securityfs is not mounted)", ""}
	case err != nil:
		return Result{Warn, "lockdown", err.Error(), ""}
	}
	_, after, _ := strings.Cut(string(raw), "[")
	mode, _, _ := strings.Cut(after, "]")
	if mode == "confidentiality" {
		return Result{Warn, "lockdown", "confidentiality: programs may not read kernel memory",
			"the generation guard is off, so a change takes effect when its event arrives, not with the next packet"}
	}
	return Result{OK, "lockdown", mode, ""}
}
