// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// bridgeCommands make p0, p1 and p2 ports of br0. p2 takes shorter frames.
const bridgeCommands = `
ip link add br0 type bridge forward_delay 0 mcast_snooping 0
ip link set p0 master br0
ip link set p1 master br0
ip link set p2 master br0
ip link set p2 mtu 1400
ip link set br0 up
ip address add 10.70.0.1/24 dev br0
ip neighbour replace 10.70.0.2 lladdr 02:aa:00:00:00:01 nud permanent dev br0
`

// withoutCalls switches br_netfilter off, where this kernel has it.
func withoutCalls() (out string) {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-" + name); err == nil {
			out += "sysctl -qw net.bridge.bridge-nf-call-" + name + "=0\n"
		}
	}
	return out
}

// station is the address of a host behind a port.
func station(n byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0xaa, 0, 0, 0, n} }

// between is a packet from one station to another, by way of a port of the wire.
func (w *twin) between(port string, src, dst net.HardwareAddr) lab.Flow {
	f := w.flow(port, "10.50.0.1", "10.50.0.2")
	f.SrcMAC, f.DstMAC = src, dst
	return f
}

var everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// TestBridge: at both hooks, with each way to read the bridge's own tables.
func TestBridge(t *testing.T) {
	kinds(t, "b0 type bridge")
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		for reading, noCast := range map[string]bool{"cast": false, "probe": true} {
			t.Run(string(hook)+"/"+reading, func(t *testing.T) { testBridge(t, hook, noCast) })
		}
	}
}

func testBridge(t *testing.T, hook graph.Hook, noCast bool) {
	w := newTwin(t, 4, bridgeCommands)
	w.exec(withoutCalls()) // br_netfilter may have come with the first bridge
	shots := bridgeShots(w)
	w.alone(shots)
	w.startWith(hook, func(o *Options) { o.NoCast = noCast })
	if s := w.engine.State(); !s.Features.Bridge {
		t.Skipf("programs cannot read this kernel's bridges (%s): tried: %s", lab.Since("readable bridges"), s.Features.NoBridge)
	}
	w.compare(shots)
	w.bridgeChanges()
}

// With br_netfilter on and no rules, a bridge checks the headers of IP packets and cuts off what lies behind them.
func TestBridgeNetfilter(t *testing.T) {
	kinds(t, "b0 type bridge")
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 3, bridgeCommands)
			calls := strings.ReplaceAll(withoutCalls(), "=0", "=1")
			if calls == "" {
				t.Skip("this kernel has no sysctls of br_netfilter (CONFIG_BRIDGE_NETFILTER, a module of its own since Linux 3.18)")
			}
			w.exec(calls)
			shots := shownShots(w)
			w.alone(shots)
			w.start(hook)
			if s := w.engine.State(); !s.Features.Bridge {
				t.Skipf("programs cannot read this kernel's bridges (%s): tried: %s", lab.Since("readable bridges"), s.Features.NoBridge)
			}
			w.compare(shots)
		})
	}
}

func shownShots(w *twin) (shots []shot) {
	a, b, c := station(1), station(2), station(3)
	add := func(name, port string, frame []byte, code reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: code, tc: code})
	}
	for port, who := range map[string]net.HardwareAddr{"w0": a, "w1": b, "w2": c} {
		add(port+" shows itself", port, w.between(port, who, everyone).UDP("a"), reason.BridgeGroup)
	}
	f := w.between("w0", a, b)
	g := w.flow("w0", "fd00:50::1", "fd00:50::2")
	g.SrcMAC, g.DstMAC = a, b
	for _, ip := range []struct {
		name   string
		f      lab.Flow
		head   int // of the header, where the length in it leaves that out
		header reason.Code
	}{{"IPv4", f, 0, reason.IP4Header}, {"IPv6", g, 40, reason.IP6Header}} {
		add(ip.name, "w0", ip.f.UDP("hello"), reason.Fast)
		add(ip.name+" with padding", "w0", lab.Edited(ip.f.UDP("x"), lab.Pad(96)), reason.Fast)
		add(ip.name+" with TTL 0", "w0", lab.Edited(ip.f.UDP("x"), lab.TTL(0)), reason.Fast)
		add(ip.name+" that is cut short", "w0", lab.Edited(ip.f.UDP("hello"), lab.IPLength(200)), ip.header)
		add(ip.name+" of another version", "w0", lab.Edited(ip.f.UDP("hello"), lab.IPVersion(5), lab.FixIPChecksum()), ip.header)
		add(ip.name+" as long as the port takes", "w0", lab.Edited(ip.f.UDP(fill(1400-28)), lab.L2(0, c...), lab.Truncate(1414), lab.IPLength(1400-ip.head)), reason.Fast)
	}
	add("options", "w0", lab.Edited(f.UDP("x"), lab.IPOptions(1, 1, 1, 1)), reason.IP4Options)
	add("a wrong checksum", "w0", lab.Edited(f.UDP("x"), lab.BadIPChecksum()), reason.IP4Checksum)
	add("a fragment", "w0", lab.Edited(f.UDP("fragment"), lab.FragmentField(1, 1)), reason.Fast)
	add("hop-by-hop options", "w0", lab.Edited(g.UDP("x"), lab.L3(6, 0)), reason.IP6Extension)
	long := w.between("w0", a, c)
	add("what must not be cut", "w0", lab.Edited(long.UDP(fill(1401-28)), lab.FragmentField(2, 0)), reason.MTU)
	add("another ethertype", "w0", lab.Edited(f.UDP("x"), lab.L2(12, 0x88, 0x99)), reason.Fast)
	return shots
}

func bridgeShots(w *twin) (shots []shot) {
	a, b, c := station(1), station(2), station(3)
	add := func(name, port string, frame []byte, code reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: code, tc: code})
	}
	add("the first station shows itself", "w0", w.between("w0", a, everyone).UDP("a"), reason.BridgeGroup)
	add("the second station shows itself", "w1", w.between("w1", b, everyone).UDP("b"), reason.BridgeGroup)
	add("the third station shows itself", "w2", w.between("w2", c, everyone).UDP("c"), reason.BridgeGroup)
	add("first to second", "w0", w.between("w0", a, b).UDP("hello"), reason.Fast)
	add("second to first", "w1", w.between("w1", b, a).UDP("hello"), reason.Fast)
	add("padding stays", "w0", lab.Edited(w.between("w0", a, b).UDP("x"), lab.Pad(96)), reason.Fast)
	add("TTL 1 is nothing to a bridge", "w0", lab.Edited(w.between("w0", a, b).UDP("x"), lab.TTL(1)), reason.Fast)
	add("another ethertype", "w0", lab.Edited(w.between("w0", a, b).UDP("x"), lab.L2(12, 0x88, 0x99)), reason.Fast)
	add("ARP", "w0", lab.Edited(w.between("w0", a, b).UDP("x"), lab.L2(12, 0x08, 0x06)), reason.EtherType)
	add("a tag", "w0", lab.Edited(w.between("w0", a, b).UDP("x"), lab.L2(12, 0x81, 0x00)), reason.VLANUnknown)
	add("as long as the port takes", "w0", w.between("w0", a, c).UDP(fill(1404-28)), reason.Fast)
	add("longer than the port takes", "w0", w.between("w0", a, c).UDP(fill(1405-28)), reason.MTU)
	add("back to where it came from", "w0", w.between("w0", a, a).UDP("x"), reason.BridgePort)
	add("to nobody known", "w0", w.between("w0", a, station(9)).UDP("x"), reason.BridgeDestination)
	add("spanning tree", "w0", w.between("w0", a, net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}).UDP("x"), reason.BridgeGroup)
	add("to another port's address", "w0", w.between("w0", a, w.net.Port(lab.Dut, "p1").MAC).UDP("x"), reason.DstMAC)
	routed := w.flow("w0", "10.70.0.2", "10.0.3.2") // the bridge has the address of its first port
	routed.SrcMAC = a
	add("routed from the bridge", "w0", routed.UDP("x"), reason.Fast)
	add("with padding", "w0", lab.Edited(routed.UDP("x"), lab.Pad(96)), reason.Fast)
	add("with TTL 1", "w0", lab.Edited(routed.UDP("x"), lab.TTL(1)), reason.TTL)
	shots = append(shots, shot{name: "routed to the bridge", port: "w3", frame: w.flow("w3", "10.0.3.2", "10.70.0.2").UDP("x"), xdp: nowhere, tc: reason.Fast})
	add("from a group", "w0", w.between("w0", everyone, b).UDP("x"), reason.BridgeSource)
	add("the first station moves", "w1", w.between("w1", a, c).UDP("x"), reason.BridgeSource)
	add("and is known there", "w1", w.between("w1", a, c).UDP("x"), reason.Fast)
	return shots
}

// bridgeChanges are seen by the next frame, since they are read live, or shortly after.
func (w *twin) bridgeChanges() {
	a, b := station(1), station(2)
	w.follow([]bridgeChange{
		{"bridge link set dev p1 state 0", "bridge link set dev p1 state 3", reason.BridgePort},
		{"bridge fdb del " + b.String() + " dev p1 master", "bridge fdb add " + b.String() + " dev p1 master static", reason.BridgeDestination},
		{"ip link set br0 promisc on", "ip link set br0 promisc off", reason.BridgePromisc},
		{"ip link set p1 nomaster", "ip link set p1 master br0", slow},
		{"ip link set br0 type bridge ageing_time 0", "ip link set br0 type bridge ageing_time 30000", slow},
	}, w.between("w0", a, b).UDP("x"), func(command string) {
		w.teach(a, "w0")
		if !strings.HasPrefix(command, "bridge fdb") {
			w.teach(b, "w1")
		}
	})
}

// bridgeChange is a command, how a frame leaves then that is fast otherwise, and what takes the command back.
type bridgeChange struct {
	command, back string
	want          reason.Code
}

// follow makes changes and takes them back, and sends a frame by w0 until it leaves as is wanted; before each, the stations show themselves.
func (w *twin) follow(changes []bridgeChange, frame []byte, show func(command string)) {
	w.Helper()
	for _, c := range changes {
		for _, command := range []string{c.command, c.back} {
			w.exec(command)
			want := c.want
			if command == c.back {
				want = reason.Fast
			}
			for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				show(c.command)
				before := w.counters()
				w.fire("w0", frame)
				time.Sleep(5 * time.Millisecond)
				way := left(before, w.counters())
				if agrees(want, way) {
					break
				}
				if time.Now().After(end) {
					w.Errorf("after %q: left by %q, want %s", command, way, wantName(want))
					w.explain()
					return
				}
			}
		}
	}
}

// teach lets a station be seen behind a port.
func (w *twin) teach(who net.HardwareAddr, port string) {
	w.Helper()
	w.fire(port, w.between(port, who, everyone).UDP("t"))
}

// fire sends a frame whose arrival is of no interest.
func (w *twin) fire(port string, frame []byte) {
	w.Helper()
	w.wire.Unchecked = true
	if err := w.wire.Fire(lab.Shot{Port: w.net.Port("wire", port), Frame: frame}); err != nil {
		w.Fatal(err)
	}
}
