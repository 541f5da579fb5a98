// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// skip is an error that means: this cannot be had here, go on without it.
type skip struct{ why string }

func (s skip) Error() string { return s.why }

func skipf(format string, args ...any) error { return skip{fmt.Sprintf(format, args...)} }

func asSkip(err error) (why string, ok bool) {
	var s skip
	ok = errors.As(err, &s)
	return s.why, ok
}

// Without says whether an error means that a variant cannot be had here, and notes that on the page.
func (b *Bench) Without(variant string, err error) bool {
	why, ok := asSkip(err)
	if ok {
		b.Skip(variant, why)
	}
	return ok
}

// peer finds a program, on the PATH or in the root that `make bench-peers` makes, and returns the command that runs a script with it,
// which has the arguments as $1, $2 …
func (b *Bench) peer(program, script string, args ...string) (*exec.Cmd, error) {
	if _, err := exec.LookPath(program); err == nil {
		return exec.Command("sh", append([]string{"-ec", script, program}, args...)...), nil
	}
	if b.Peers == "" {
		return nil, skipf("%s is not on the PATH, and there is no root with the peers (make bench-peers)", program)
	}
	for _, dir := range []string{"usr/sbin", "usr/bin"} {
		if _, err := os.Stat(filepath.Join(b.Peers, dir, program)); err != nil {
			continue
		}
		// In a mount namespace of its own, so that nothing stays mounted below the root. What is attached by netlink stays without its pins.
		enter := `mount --bind /proc "$0/proc" && mount --bind /sys "$0/sys" && mount -t bpf bpf "$0/sys/fs/bpf" && exec chroot "$0" "$@"`
		return exec.Command("unshare", append([]string{"--mount", "sh", "-ec", enter, b.Peers, "sh", "-ec", script, program}, args...)...), nil
	}
	return nil, skipf("%s is neither on the PATH nor in %s", program, b.Peers)
}

// load runs a peer's script in the router; a peer that does not load is skipped by name.
func (l *Lane) load(program, script string, args ...string) error {
	cmd, err := l.Bench.peer(program, script, args...)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := l.Node(lab.Dut).Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return skipf("%s could not be loaded: %v: %s", program, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// xdpForward loads xdp-tools' router at both ports, looking up in the kernel's FIB as shunt does.
func (l *Lane) xdpForward() error {
	return l.load("xdp-forward", `xdp-forward load -f fib "$@"`, l.In().Name, l.Out().Name)
}

// The peers that filter.
const (
	XDPFilter = "xdp-filter"
	Bpfilter  = "bpfilter"
)

// XDPFilter loads xdp-tools' filter at the ingress, which drops packets from the addresses and leaves the others to Linux.
func (l *Lane) XDPFilter(sources []string) error {
	return l.load(XDPFilter, `xdp-filter load -f ipv4 "$1"; shift; for a; do xdp-filter ip -m src "$a"; done`, append([]string{l.In().Name}, sources...)...)
}

// Bpfilter loads a chain of bpfilter that does the same, rule by rule.
func (l *Lane) Bpfilter(sources []string) error {
	chain := fmt.Sprintf("chain bench BF_HOOK_XDP{ifindex=%d} ACCEPT", l.In().Index)
	for _, a := range sources {
		chain += fmt.Sprintf(" rule ip4.saddr eq %s counter DROP", a)
	}
	if _, err := exec.LookPath("bfcli"); err != nil { // its links live by pins, which need the machine's own BPF file system
		return skipf("bfcli (bpfilter) is not on the PATH")
	}
	l.Bench.Later(func() error { return os.RemoveAll("/sys/fs/bpf/bpfilter") })
	return l.load("bfcli", `bfcli chain set --from-str "$1"`, chain)
}
