// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// A device that is moved to another namespace keeps its program and its number. There it must not forward by the configuration that it
// left behind, even while the daemon hangs.
func TestMovedDeviceForwardsNothing(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
			other, err := lab.NewNS(lab.UniquePrefix(t.Name()) + "other")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Delete() })
			pins := t.TempDir() + "/bpf"
			t.Cleanup(func() { detachAll(t, n, pins) })
			c := startChild(t, n, pins, hook)
			sink, err := n.Port(lab.SinkNode, "rx").Capture()
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			tx := n.Port(lab.Src, "tx")
			arrives := func() int {
				if err := tx.Send(tx.Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String()).UDP("x")); err != nil {
					t.Fatal(err)
				}
				return count(t, sink)
			}
			if arrives() != 1 {
				t.Fatal("a packet before the move did not arrive")
			}
			c.signal(syscall.SIGSTOP)
			if err := n.Node(lab.Dut).Exec("ip link set in netns %s", other.Name); err != nil {
				t.Fatal(err)
			}
			if err := other.Exec("ip link set in up"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // carrier
			for range 3 {
				if got := arrives(); got != 0 {
					t.Errorf("%d packets were forwarded out of a namespace that the device has left", got)
				}
			}
			c.end(syscall.SIGKILL)
		})
	}
}

// A macvlan that takes all frames of its device (passthru) and was moved to a container is in no list of this namespace. The frames are the container's, also while nobody has
// told the daemon, and the device's again once it is gone.
func TestDeviceBelowAContainer(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, hook)
			other, err := lab.NewNS(lab.UniquePrefix(t.Name()) + "other")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Delete() })
			dst := lab.V4Prefixes(1).Host(3, 9).String()
			r.leaves("a router", dst, reason.Fast, true)
			if other.Shell("ip link add pa type veth peer name pb && ip link add link pa name probe type macvlan mode passthru && ip link del pa") != nil {
				t.Skip("this kernel has no macvlan (CONFIG_MACVLAN, passthru since Linux 2.6.38): tried")
			}
			r.exec("ip link add link in name mv netns " + other.Name + " type macvlan mode passthru")
			if err := other.Exec("ip link set mv up"); err != nil {
				t.Fatal(err)
			}
			for n := range 20 {
				if r.passes(dst) {
					t.Fatalf("packet %d for the container was forwarded", n)
				}
			}
			r.eventually("the port is the container's", func() bool { return r.reasonOf("in", reason.LinkUpper) })
			if err := other.Exec("ip link del mv"); err != nil {
				t.Fatal(err)
			}
			r.eventually("the port is ours again", func() bool { return !r.reasonOf("in", reason.LinkUpper) })
			r.leaves("a router again", dst, reason.Fast, true)
		})
	}
}

// passes sends a packet and says whether it arrived.
func (r *rig) passes(dst string) bool {
	r.Helper()
	r.sent++
	mark := fmt.Sprintf("packet %d.", r.sent)
	if err := r.wire.Send(r.net.Port(lab.Src, "tx").Flow("10.0.0.2", dst).UDP(mark)); err != nil {
		r.Fatal(err)
	}
	return r.arrives(mark, 20*time.Millisecond)
}

func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("%s: not in %s", what, patience)
		}
	}
}

// reasonOf says whether a port has a reason.
func (r *rig) reasonOf(name string, code reason.Code) bool {
	for _, p := range r.engine.State().Graph.Ports {
		if p.Name == name {
			return slices.ContainsFunc(slices.Concat(p.XDP, p.TC), func(w graph.Why) bool { return w.Reason == code })
		}
	}
	return false
}

// A device that is down has no stub, so that Linux can do with it what it refuses for devices with a program (taking it into a bond).
func TestDownDeviceHasNoStub(t *testing.T) {
	r := newRig(t, graph.XDP)
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("before", dst, reason.Fast, true)
	r.exec("ip link set dev out down")
	var out string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if out, err = r.net.Node(lab.Dut).Output("ip link show dev out"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "xdp") {
			break
		}
	}
	if strings.Contains(out, "xdp") {
		t.Errorf("still there:\n%s", out)
	}
	r.exec("ip link set dev out up")
	r.exec("ip neigh replace 10.0.1.2 lladdr " + r.net.Port(lab.SinkNode, "rx").MAC.String() + " nud permanent dev out")
	r.exec("ip route replace " + dst + " via 10.0.1.2")
	r.leaves("up again", dst, reason.Fast, true)
}

// count gives how many frames arrive that no host sent by itself.
func count(t *testing.T, sink *lab.Capture) (n int) {
	t.Helper()
	got, err := sink.Take(0, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got {
		if !lab.Noise(f.Data) {
			n++
		}
	}
	return n
}

// A device that takes the place and the number of another within one batch of events is attached to anew.
func TestReplacedDevice(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
			dut, src := n.Node(lab.Dut), n.Node(lab.Src)
			index := n.Port(lab.Dut, "in").Index // not 2 where modules make devices of their own in each namespace
			// "in" again: same number, addresses and peer. XDP frames need a peer that polls on both sides.
			renew := func() error {
				err := dut.Feed(fmt.Sprintf("link del in\nlink add in index %d address 02:00:00:00:01:02 type veth peer name tx address 02:00:00:00:01:01\n", index)+
					"link set dev tx netns "+src.Name+"\naddr add 10.0.0.1/24 dev in\nlink set dev in up\n", "ip -batch -")
				return errors.Join(err, src.Exec("ip link set dev tx up"))
			}
			r := newRigOn(t, n, hook)
			dst := lab.V4Prefixes(1).Host(3, 9).String()
			r.leaves("before", dst, reason.Fast, true)
			r.wire.Close()
			// On the loop's thread, so that it sees both events at once.
			if err := r.engine.Do(context.Background(), func(*datapath.Datapath) error { return renew() }); err != nil {
				t.Fatal(err)
			}
			r.fastAgain(n, patience+5*time.Second)
		})
	}
}

// The same where the events were lost that would have told of it.
func TestReplacedDeviceUnheardOf(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
			dut, src := n.Node(lab.Dut), n.Node(lab.Src)
			index := n.Port(lab.Dut, "in").Index
			var flood strings.Builder
			flood.WriteString("link add noise type veth peer name noise2\n")
			for i := range 40_000 {
				fmt.Fprintf(&flood, "link set dev noise mtu %d\n", 1400+i%50)
			}
			r := newRigOn(t, n, hook)
			r.wire.Close()
			resyncs := r.engine.State().Reader.Resyncs
			err := r.engine.Do(context.Background(), func(*datapath.Datapath) error { // nobody listens meanwhile
				return errors.Join(dut.Feed(flood.String(), "ip -batch -"),
					dut.Feed(fmt.Sprintf("link del in\nlink add in index %d address 02:00:00:00:01:02 type veth peer name tx address 02:00:00:00:01:01\n", index)+
						"link set dev tx netns "+src.Name+"\naddr add 10.0.0.1/24 dev in\nlink set dev in up\n", "ip -batch -"),
					src.Exec("ip link set dev tx up"))
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.fastAgain(n, patience+10*time.Second) && r.engine.State().Reader.Resyncs == resyncs {
				t.Error("no events were lost")
			}
		})
	}
}

// fastAgain sends by a source's device that was made anew until the router forwards its packets fast; false if it does not.
func (r *rig) fastAgain(n *lab.Net, within time.Duration) bool {
	r.Helper()
	src, was, way := n.Node(lab.Src), n.Port(lab.Src, "tx"), ""
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		link, err := src.Netlink().LinkByName("tx")
		if err != nil {
			r.Fatal(err)
		}
		port := &lab.Port{Node: lab.Src, Name: "tx", Index: link.Attrs().Index, MAC: was.MAC, NS: src, Peer: n.Port(lab.Dut, "in")}
		before := r.counters()
		if err := port.Send(was.Flow("10.0.0.2", dst).UDP("x")); err != nil {
			r.Fatal(err)
		}
		arrived := count(r.T, r.sink)
		if way = took(before, r.counters()); way == "fast 1 " && arrived == 1 {
			return true
		}
	}
	r.Errorf("after it was replaced the device's packets left by %q", way)
	return false
}
