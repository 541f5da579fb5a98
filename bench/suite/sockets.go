// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// hosts is a router between pairs of hosts with real sockets, as between containers: of the first pair, 10.0.0.2 in "src" and 10.0.1.2 in
// "dst". All offloads are on; every end polls with NAPI, so that redirected frames arrive.
func hosts(pairs int) lab.Topology {
	t := lab.Topology{Nodes: []lab.Node{{Name: lab.Dut, Sysctls: []string{"net.ipv4.ip_forward=1"}}}}
	for i := range 2 * pairs {
		at := func(last int) []netip.Prefix {
			return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/24", i, last))}
		}
		host := hostName([]string{"src", "dst"}[i%2], i/2)
		t.Nodes = append(t.Nodes, lab.Node{Name: host, Commands: []string{fmt.Sprintf("ip route add default via 10.0.%d.1", i)}})
		t.Links = append(t.Links, lab.Link{
			A: lab.End{Node: host, Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(2)},
			B: lab.End{Node: lab.Dut, Name: fmt.Sprintf("p%d", i), Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(1)},
		})
	}
	return t
}

// SocketLane is one variant of it, as two of its hosts see it.
type SocketLane struct {
	*lab.Net
	Variant string
	engine  *Engine
	pair    int // which two of Ends
	// Limit holds what runs at both ends to a share of a CPU; nil: none.
	Limit *Limit
	// Ends are the hosts of a pair, the client's and the server's.
	Ends func(pair int) (client, server Endpoint)
}

// Endpoint is a host with its address.
type Endpoint struct {
	NS   *lab.NS
	Addr [4]byte
}

// Pair is the lane as another two of its hosts see it; 0 are the first two.
func (l *SocketLane) Pair(i int) *SocketLane {
	other := *l
	other.pair = i
	return &other
}

// Limited is the lane with its ends under a limit.
func (l *SocketLane) Limited(limit *Limit) *SocketLane {
	other := *l
	other.Limit = limit
	return &other
}

// client and server are the pair's hosts with their addresses.
func (l *SocketLane) client() (*lab.NS, [4]byte) {
	at, _ := l.Ends(l.pair)
	return at.NS, at.Addr
}

func (l *SocketLane) server() (*lab.NS, [4]byte) {
	_, at := l.Ends(l.pair)
	return at.NS, at.Addr
}

// inLine are the hosts 2*pair and 2*pair+1 of those around one router.
func inLine(n *lab.Net) func(pair int) (client, server Endpoint) {
	return func(pair int) (client, server Endpoint) {
		at := func(name string, i int) Endpoint {
			return Endpoint{n.Node(hostName(name, pair)), [4]byte{10, 0, byte(i), 2}}
		}
		return at("src", 2*pair), at("dst", 2*pair+1)
	}
}

func hostName(name string, pair int) string {
	if pair == 0 {
		return name
	}
	return fmt.Sprint(name, pair)
}

// SocketLanes are Linux and the three ways to ask shunt for a hook, each in a router that was prepared, unless prepare is nil.
func (b *Bench) SocketLanes(prepare func(*lab.NS) error) (lanes []*SocketLane, err error) {
	for _, hook := range []string{"", "auto", "tc", "xdp"} {
		l, err := b.SocketLane(LinuxGRO, prepare)
		if err != nil {
			return nil, err
		}
		if hook != "" {
			if err := b.Accelerate(l, hook); err != nil {
				return nil, err
			}
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// Accelerate starts shunt between the hosts of a lane, which is called after the hook from then on.
func (b *Bench) Accelerate(l *SocketLane, hook string) (err error) {
	l.Variant = "shunt " + hook
	if l.engine, err = b.StartEngine(l.Node(lab.Dut), graph.Policy{Hook: hook}); err != nil {
		return err
	}
	b.Fact("hook with "+l.Variant, fmt.Sprint(l.engine.hooks(l.Port(lab.Dut, "p0").Index)))
	return nil
}

// SocketLane is one of Linux alone.
func (b *Bench) SocketLane(variant string, prepare func(*lab.NS) error) (*SocketLane, error) {
	return b.socketLane(hosts(1), variant, prepare)
}

// BridgeLane is the same with hosts of one network, 10.0.0.0/16, whose links are for a bridge.
func (b *Bench) BridgeLane(variant string, prepare func(*lab.NS) error) (*SocketLane, error) {
	return b.BridgeLanePairs(variant, 1, prepare)
}

// BridgeLanePairs is the same with more pairs of hosts.
func (b *Bench) BridgeLanePairs(variant string, pairs int, prepare func(*lab.NS) error) (*SocketLane, error) {
	t := hosts(pairs)
	for i := range t.Nodes {
		t.Nodes[i].Commands, t.Nodes[i].Sysctls = nil, nil
	}
	for i := range t.Links {
		t.Links[i].A.Addrs, t.Links[i].B.Addrs = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.2/16", i))}, nil
	}
	return b.socketLane(t, variant, prepare)
}

func (b *Bench) socketLane(t lab.Topology, variant string, prepare func(*lab.NS) error) (*SocketLane, error) {
	n, err := lab.Build(lab.UniquePrefix("bench"), t)
	if err != nil {
		return nil, fmt.Errorf("building hosts: %w", err)
	}
	b.Later(n.Close)
	l := &SocketLane{Net: n, Variant: variant, Ends: inLine(n)}
	if prepare != nil {
		err = prepare(n.Node(lab.Dut))
	}
	return l, err
}

// socket makes a socket in a namespace.
func socket(ns *lab.NS, kind int) (fd int, err error) {
	err = ns.Do(func() error {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	})
	return fd, err
}

// TCPPair connects the client's host to a port of the server's.
func (l *SocketLane) TCPPair(port int) (client, server int, err error) {
	from, _ := l.client()
	to, addr := l.server()
	listener, err := socket(to, unix.SOCK_STREAM)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(listener)
	if err := unix.Bind(listener, &unix.SockaddrInet4{Port: port}); err != nil {
		return -1, -1, fmt.Errorf("binding to port %d: %w", port, err)
	}
	if err := unix.Listen(listener, 1); err != nil {
		return -1, -1, fmt.Errorf("listening: %w", err)
	}
	if client, err = socket(from, unix.SOCK_STREAM); err != nil {
		return -1, -1, err
	}
	// Not SO_SNDTIMEO: with it, connect is not restarted after the runtime's signals.
	if err = unix.SetsockoptInt(client, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 5000); err == nil {
		err = unix.Connect(client, &unix.SockaddrInet4{Port: port, Addr: addr})
	}
	if err != nil {
		unix.Close(client)
		return -1, -1, fmt.Errorf("connecting through the router (%s): %w", l.Variant, err)
	}
	if server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
		unix.Close(client)
		return -1, -1, fmt.Errorf("accepting: %w", err)
	}
	for _, fd := range []int{client, server} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return client, server, os.NewSyscallError("setsockopt", err)
		}
	}
	return client, server, nil
}

// UDPPair is the same for UDP, both ends connected.
func (l *SocketLane) UDPPair(port int) (client, server int, err error) {
	from, fromAddr := l.client()
	to, toAddr := l.server()
	if client, err = socket(from, unix.SOCK_DGRAM); err != nil {
		return -1, -1, err
	}
	if server, err = socket(to, unix.SOCK_DGRAM); err != nil {
		unix.Close(client)
		return -1, -1, err
	}
	src := &unix.SockaddrInet4{Port: port, Addr: fromAddr}
	dst := &unix.SockaddrInet4{Port: port, Addr: toAddr}
	for _, step := range []func() error{
		func() error { return unix.Bind(client, src) }, func() error { return unix.Bind(server, dst) },
		func() error { return unix.Connect(client, dst) }, func() error { return unix.Connect(server, src) },
	} {
		if err := step(); err != nil {
			return client, server, fmt.Errorf("connecting UDP port %d: %w", port, err)
		}
	}
	return client, server, nil
}

// Pinned runs fn on a thread of its own, on one CPU; the thread ends with it.
func Pinned(cpu int, fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := Pin(cpu)
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return done
}

// Pin keeps the calling thread on one CPU.
func Pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to CPU %d: %w", cpu, err)
	}
	return nil
}
