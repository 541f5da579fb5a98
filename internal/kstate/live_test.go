// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a change may take to be seen: milliseconds, but machines can be busy, and emulated ones slow.
var patience = 2 * time.Second

func init() {
	if os.Getenv("SHUNT_VM") != "" {
		patience = 20 * time.Second
	}
}

// netns is a network namespace of a test.
type netns string

// namespace makes a network namespace of its own for the test and moves the test's thread into it for good: the thread is
// thrown away with the goroutine. A subtest runs on another goroutine, so tests that use a Reader have none; and commands
// name the namespace that they are meant for, so that none can ever hit the one that the tests were started in.
func namespace(t *testing.T) netns {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	name := fmt.Sprintf("kstate-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("making a namespace: %v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	runtime.LockOSThread()
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	return netns(name)
}

// run runs shell lines in the namespace.
func (ns netns) run(t *testing.T, lines string) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net=/run/netns/"+string(ns), "bash", "-euc", lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// try says whether shell lines succeed in the namespace.
func (ns netns) try(lines string) bool {
	return exec.Command("nsenter", "--net=/run/netns/"+string(ns), "bash", "-uc", lines).Run() == nil
}

func open(t *testing.T, opts Options) *Reader {
	t.Helper()
	r, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

const router = `
sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
ip link set lo up
ip link add e0 type veth peer name p0
ip link add e1 type veth peer name p1
for i in e0 p0 e1 p1; do ip link set $i up; done
ip addr add 10.1.0.1/24 dev e0
ip addr add 10.2.0.1/24 dev e1
ip addr add fd01::1/64 dev e0 nodad
ip addr add fd02::1/64 dev e1 nodad
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
`
