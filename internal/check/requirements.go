// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/datapath"
)

// ErrUnsupported marks what this kernel cannot do, whoever asks.
var ErrUnsupported = errors.New("not supported here")

// ErrPrivilege marks what the caller may not do.
var ErrPrivilege = errors.New("no privilege")

// capability is one that shunt needs, with what for.
type capability struct {
	bit  uint
	name string
	why  string
}

var capabilities = []capability{
	{unix.CAP_BPF, "CAP_BPF", "load programs and maps"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "attach programs to interfaces and read the configuration"},
	{unix.CAP_PERFMON, "CAP_PERFMON", "let programs read kernel memory (the generation guard)"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mount a BPF file system and enter network namespaces"},
}

// missing are the capabilities that the calling thread lacks.
func missing() ([]capability, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("reading the process's capabilities: %w", err)
	}
	var out []capability
	for _, c := range capabilities {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

// initialUserNamespace is what /proc/self/ns/user leads to where capabilities are those of the machine (USER_NS_INIT_INO).
const initialUserNamespace = "user:[4026531837]"

// Privileges fails with ErrPrivilege, naming each capability that is missing.
func Privileges() error {
	if ns, err := os.Readlink("/proc/self/ns/user"); err == nil && ns != initialUserNamespace {
		return fmt.Errorf("%w: the process's capabilities are those of a user namespace, where the kernel loads no such programs; start it in the initial one (a container: without user namespaces, not rootless)", ErrPrivilege)
	}
	lacking, err := missing()
	if err != nil || len(lacking) == 0 {
		return err
	}
	var what []string
	for _, c := range lacking {
		what = append(what, fmt.Sprintf("%s (to %s)", c.name, c.why))
	}
	return fmt.Errorf("%w: missing %s; start it with sudo, or from a unit with these in AmbientCapabilities", ErrPrivilege, strings.Join(what, ", "))
}

// Requirements fails with ErrPrivilege or ErrUnsupported where shunt cannot run at all.
func Requirements() error {
	if err := Privileges(); err != nil {
		return err
	}
	for _, need := range []func() error{typeInformation, bpfFS, oneAtATime, datapath.Required} {
		if err := need(); err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return nil
}

func typeInformation() error {
	if _, err := bpfobj.KernelTypes(); err != nil {
		return fmt.Errorf("the kernel's type information is missing (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF); every distribution kernel since 2021 has it: %w", err)
	}
	return nil
}

// bpfFS asks whether the kernel has the file system in which attachments are kept.
func bpfFS() error {
	raw, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("listing the kernel's file systems (is /proc mounted?): %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == "bpf" {
			return nil
		}
	}
	return errors.New("the kernel has no BPF file system (CONFIG_BPF_SYSCALL), in which attached programs are kept")
}

// oneAtATime fails where a program that handles a packet may be interrupted on its CPU by one that handles another: with PREEMPT_RT since Linux 6.18, where that may be built without
// CONFIG_PREEMPT_RT_NEEDS_BH_LOCK. Programs keep what they work with in memory of the CPU. Which of the two a kernel is it does not tell.
func oneAtATime() error {
	if rt, err := os.ReadFile("/sys/kernel/realtime"); err != nil || strings.TrimSpace(string(rt)) != "1" {
		return nil
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("asking for the kernel's version: %w", err)
	}
	return preemptible(unix.ByteSliceToString(u.Release[:]))
}

func preemptible(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 18) {
		return nil
	}
	return fmt.Errorf("the real-time kernel %s may run programs for two packets on one CPU at once; boot one without PREEMPT_RT", release)
}
