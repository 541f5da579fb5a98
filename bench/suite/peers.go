// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

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
		if _, err := os.Lstat(filepath.Join(b.Peers, dir, program)); err != nil { // a link there may lead nowhere from here
			continue
		}
		// In a mount namespace of its own, so that nothing stays mounted below the root. What is attached by netlink stays without its pins.
		enter := `mount --bind /proc "$0/proc" && mount --bind /sys "$0/sys" && mount --bind /dev "$0/dev" && mount -t bpf bpf "$0/sys/fs/bpf" && exec chroot "$0" "$@"`
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

// Message is what NetPIPE found for one size of messages, which go to and fro by TCP.
type Message struct {
	Bytes             int
	Latency, Megabits float64 // µs one way, Mbit/s
}

// NetPIPE measures messages of all its sizes from least to most between a lane's hosts, both ends on one CPU; each size so many times in each of its trials.
func (b *Bench) NetPIPE(l *SocketLane, cpu, least, most, times int) (found []Message, err error) {
	const port = "5002"
	args := []string{strconv.Itoa(cpu), "-P", port, "-l", strconv.Itoa(least), "-u", strconv.Itoa(most), "-p", "0", "-n", strconv.Itoa(times)}
	from, _ := l.client()
	to, addr := l.server()
	server, err := b.peer("NPtcp", `cpu=$1; shift; exec timeout 60 taskset -c "$cpu" NPtcp "$@"`, args...)
	if err != nil {
		return nil, err
	}
	var said, out bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := to.Start(server); err != nil {
		return nil, err
	}
	defer func() { server.Process.Signal(syscall.SIGTERM); server.Wait() }() // timeout hands the signal on
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		listening, err := to.Output("ss -Hltn sport = :%s", port)
		if err != nil {
			return nil, err
		}
		if listening != "" {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("NetPIPE does not listen: %s", said.String())
		}
	}
	client, err := b.peer("NPtcp", `cpu=$1; shift; f=$(mktemp); timeout 60 taskset -c "$cpu" NPtcp "$@" -o "$f" >&2; cat "$f"; rm "$f"`,
		append(args, "-h", netip.AddrFrom4(addr).String())...)
	if err != nil {
		return nil, err
	}
	said.Reset()
	client.Stdout, client.Stderr = &out, &said
	if err := from.Start(client); err != nil {
		return nil, err
	}
	if err := client.Wait(); err != nil {
		return nil, fmt.Errorf("NetPIPE: %w: %s", err, strings.TrimSpace(said.String()))
	}
	for line := range strings.Lines(out.String()) {
		var m Message
		var seconds float64
		if _, err := fmt.Sscan(line, &m.Bytes, &m.Megabits, &seconds); err != nil {
			return nil, fmt.Errorf("understanding what NetPIPE wrote: %q: %w", line, err)
		}
		m.Latency = seconds * 1e6
		found = append(found, m)
	}
	return found, nil
}

// OpenVSwitch makes a bridge of the ports in a namespace with Open vSwitch's datapath in user space, which works on one CPU, until the end of the section. Its
// daemons, their database and their sockets are this bridge's alone.
func (b *Bench) OpenVSwitch(ns *lab.NS, cpu int, ports ...string) error {
	const script = `cpu=$1; shift
d=$(mktemp -d); export OVS_RUNDIR=$d OVS_LOGDIR=$d OVS_DBDIR=$d
pids=
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$d"' EXIT
ovsdb-tool create "$d/db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$d/db" --remote="punix:$d/sock" --unixctl="$d/db.ctl" -vconsole:err </dev/null & pids="$pids $!"
until [ -S "$d/sock" ]; do sleep 0.02; done
vsctl() { ovs-vsctl --db="unix:$d/sock" --timeout=20 "$@"; }
vsctl --no-wait init
vsctl --no-wait set Open_vSwitch . other_config:userspace-tso-enable=true # else checksums that senders left to the device stay empty
taskset -c "$cpu" ovs-vswitchd "unix:$d/sock" --unixctl="$d/sw.ctl" -vconsole:err </dev/null & pids="$pids $!"
vsctl add-br ovs -- set bridge ovs datapath_type=netdev
for p; do vsctl add-port ovs "$p"; done
ovs-vswitchd --version | head -1
echo ready
cat >/dev/null # until whoever started this closes its end, or is gone`
	cmd, err := b.peer("ovs-vswitchd", script, append([]string{strconv.Itoa(cpu)}, ports...)...)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := ns.Start(cmd); err != nil {
		return err
	}
	b.Later(func() error {
		in.Close()
		cmd.Wait() // how the daemons ended when they were told to says nothing
		return nil
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return nil
		}
		b.Fact("Open vSwitch", lines.Text())
	}
	return skipf("Open vSwitch could not be started: %s", strings.TrimSpace(said.String()))
}
