// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

const childEnv = "SHUNT_TEST_CHILD" // "netns path,pin folder,hook"

// TestMain makes the test binary serve as a daemon of its own, so that it can be killed and stopped.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		f := strings.Split(spec, ",")
		if f[2] == squatter {
			squat(f[0], f[1])
		}
		e := New(Options{Namespace: "dut", NetnsPath: f[0], PinDir: f[1], Policy: graph.Policy{Hook: f[2]}, Watchdog: watchdog, Log: slog.Default()})
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer cancel()
		go func() { <-e.Ready(); fmt.Println("ready") }()
		if err := e.Run(ctx); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is a daemon in a process of its own.
type child struct {
	*testing.T
	cmd *exec.Cmd
}

func startChild(t *testing.T, n *lab.Net, pins string, hook graph.Hook) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%s,%s", childEnv, n.Node(lab.Dut).Path(), pins, hook))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Fatalf("the daemon said %q, %v", line, err)
	}
	return &child{t, cmd}
}

func (c *child) signal(s os.Signal) {
	c.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.Fatal(err)
	}
}

func (c *child) end(s os.Signal) {
	c.signal(s)
	c.cmd.Wait()
}

// stream sends numbered packets until stop, and then says how many were sent and how many arrived.
type stream struct {
	t    *testing.T
	done chan int
	quit chan struct{}
	sink *lab.Capture
}

func startStream(t *testing.T, n *lab.Net) *stream {
	t.Helper()
	sink, err := n.Port(lab.SinkNode, "rx").Capture()
	if err != nil {
		t.Fatal(err)
	}
	wire, err := n.Port(lab.Src, "tx").Wire()
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, done: make(chan int), quit: make(chan struct{}), sink: sink}
	flow := n.Port(lab.Src, "tx").Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String())
	go func() {
		defer wire.Close()
		for i := 0; ; i++ {
			select {
			case <-s.quit:
				s.done <- i
				return
			default:
			}
			if err := wire.Send(flow.UDP(fmt.Sprintf("%08d", i))); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Millisecond) // the capture has to keep up on a busy machine
		}
	}()
	return s
}

// lost ends the stream and gives how many packets did not arrive.
func (s *stream) lost() int {
	s.t.Helper()
	close(s.quit)
	sent := <-s.done
	got, err := s.sink.Take(sent, 300*time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	s.sink.Close()
	seen := map[string]bool{}
	for _, f := range got {
		if !lab.Noise(f.Data) {
			seen[string(f.Data[len(f.Data)-8:])] = true
		}
	}
	if sent < 20 {
		s.t.Errorf("only %d packets were sent, too few to tell", sent)
	}
	return sent - len(seen)
}

// The daemon dies, hangs, stops, restarts and is replaced while packets flow; none is lost for it.
func TestLifecycleLosesNothing(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
			pins := t.TempDir() + "/bpf"
			t.Cleanup(func() { detachAll(t, n, pins) })
			c := startChild(t, n, pins, hook) // the first attach may lose packets: the device is set up anew

			s := startStream(t, n)
			c.end(syscall.SIGKILL)
			time.Sleep(100 * time.Millisecond)
			c = startChild(t, n, pins, hook)
			c.signal(syscall.SIGSTOP)
			time.Sleep(2 * watchdog)
			c.signal(syscall.SIGCONT)
			time.Sleep(100 * time.Millisecond)
			c.end(syscall.SIGTERM)
			startChild(t, n, pins, hook)
			time.Sleep(100 * time.Millisecond)
			if lost := s.lost(); lost != 0 {
				t.Errorf("%d packets were lost", lost)
			}
		})
	}
}

// detachAll removes what daemons left, and checks that nothing remains.
func detachAll(t *testing.T, n *lab.Net, pins string) {
	e := New(Options{NetnsPath: n.Node(lab.Dut).Path(), PinDir: pins, Policy: graph.Policy{Hook: "tc", Include: []string{"none"}}, Log: slog.Default()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	e.DetachOnStop()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	nothingLeft(t, n, pins)
}

// nothingLeft checks that no program is attached, and that the folder of pins is gone.
func nothingLeft(t *testing.T, n *lab.Net, pins string) {
	t.Helper()
	out, err := n.Node(lab.Dut).Output("ip -d link")
	if err != nil || strings.Contains(out, "prog/xdp") {
		t.Errorf("after detaching, ip link still shows a program (%v):\n%s", err, out)
	}
	if _, err := os.Stat(pins); !os.IsNotExist(err) {
		t.Errorf("after detaching, %s is still there (%v)", pins, err)
	}
}

// On a busy machine the first round takes long. A daemon that is told to take everything away before it is over does so all the same.
func TestDetachInFirstRound(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	reached, goOn := make(chan struct{}), make(chan struct{})
	e := New(Options{NetnsPath: n.Node(lab.Dut).Path(), PinDir: pins, Policy: graph.Policy{Hook: "xdp"}, Watchdog: watchdog, Log: slog.Default(),
		Round: func(s *State, err error) {
			if s == nil || s.Generation > 0 {
				return
			}
			close(reached)
			<-goOn
		}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	select {
	case <-reached:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	e.DetachOnStop()
	cancel()
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	nothingLeft(t, n, pins)
}

// A second daemon in the namespace is refused, whatever its folder of pins.
func TestOnePerNamespace(t *testing.T) {
	r := newRig(t, graph.TC)
	err := New(Options{NetnsPath: r.net.Node(lab.Dut).Path(), PinDir: t.TempDir() + "/other", Log: slog.Default()}).Run(context.Background())
	if !errors.Is(err, ErrAnother) || !strings.Contains(err.Error(), fmt.Sprintf("PID %d", os.Getpid())) {
		t.Errorf("a second engine got %v", err)
	}
}

// squatter is a child, in place of one with a hook, that holds a name and has no privileges.
const squatter = "squatter"

func squat(netns, name string) {
	runtime.LockOSThread()
	err := enter(netns)
	var fd int
	if err == nil {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	}
	if err == nil {
		err = syscall.Setuid(65534)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// Anybody in a namespace can take the name by which a shunt claims it. That keeps nobody from being served, or from being cleared, and nobody from being known by another name.
func TestNameTakenByStranger(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	first := startChild(t, n, claimed[0], squatter)
	startChild(t, n, claimed[1], squatter)
	c := startChild(t, n, pins, graph.XDP)
	second := func() {
		t.Helper()
		err := New(Options{NetnsPath: n.Node(lab.Dut).Path(), PinDir: t.TempDir() + "/other", Log: slog.Default()}).Run(context.Background())
		if !errors.Is(err, ErrAnother) || !strings.Contains(err.Error(), fmt.Sprintf("PID %d", c.cmd.Process.Pid)) {
			t.Errorf("a second engine got %v", err)
		}
	}
	second()
	first.end(syscall.SIGKILL) // its name is free now
	second()
	c.end(syscall.SIGKILL)
	startChild(t, n, claimed[0], squatter)
	if removed, err := Clear(n.Node(lab.Dut).Path(), pins); err != nil || len(removed) == 0 {
		t.Errorf("clearing: %v, %v", removed, err)
	}
	nothingLeft(t, n, pins)
}

// While the daemon hangs, what guard words cover is obeyed by the very next packet.
func TestHangObeysAtOnce(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		for _, c := range []struct{ name, before, command string }{
			{"rule", "", "echo 'table ip t { chain c { type filter hook forward priority 0; policy drop; }; }' | nft -f -"},
			{"address", "", "ip addr add 10.0.0.2/32 dev out"},
			{"rp_filter", "", "ip route add 10.0.0.2/32 dev out && sysctl -qw net.ipv4.conf.all.rp_filter=1"},
			{"legacy filter", "iptables-legacy -L -n", "iptables-legacy -A FORWARD -j DROP"},
			{"legacy mangle", "iptables-legacy -t mangle -L -n", "iptables-legacy -t mangle -A POSTROUTING -j DROP"},
			{"legacy raw", "iptables-legacy -t raw -L -n", "iptables-legacy -t raw -P PREROUTING DROP"},
		} {
			t.Run(fmt.Sprintf("%s/%s", hook, c.name), func(t *testing.T) {
				n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
				if err := n.Node(lab.Dut).Shell(c.before); err != nil { // the tables exist, and are empty
					t.Fatal(err)
				}
				command := c.command
				pins := t.TempDir() + "/bpf"
				t.Cleanup(func() { detachAll(t, n, pins) })
				c := startChild(t, n, pins, hook)
				wire, err := n.Port(lab.Src, "tx").Wire()
				if err != nil {
					t.Fatal(err)
				}
				defer wire.Close()
				sink, err := n.Port(lab.SinkNode, "rx").Capture()
				if err != nil {
					t.Fatal(err)
				}
				defer sink.Close()
				frame := n.Port(lab.Src, "tx").Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String()).UDP("x")
				arrives := func() int {
					if err := wire.Send(frame); err != nil {
						t.Fatal(err)
					}
					got, err := sink.Take(1, 150*time.Millisecond)
					if err != nil {
						t.Fatal(err)
					}
					return len(slices.DeleteFunc(got, func(f lab.Frame) bool { return lab.Noise(f.Data) }))
				}
				if arrives() != 1 {
					t.Fatal("a packet before the change did not arrive")
				}
				c.signal(syscall.SIGSTOP)
				if err := n.Node(lab.Dut).Shell(command); err != nil {
					t.Fatal(err)
				}
				if arrives() != 0 {
					t.Error("the first packet after the change was forwarded")
				}
				c.end(syscall.SIGKILL)
			})
		}
	}
}
