// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// routedVLANCommands make p0 a trunk, p1 a port of VLAN 5 that knows no tags, and p2 one of VLAN 1 that has VLAN 5 tagged and takes shorter frames. The bridge itself is in VLAN 1
// and 7 without a tag, in 5, 8 and 9 with one, and not in 6; on it are VLAN devices but for 8. p3 is no port.
const routedVLANCommands = `
sysctl -qw net.ipv4.conf.all.send_redirects=0
sysctl -qw net.ipv4.conf.default.send_redirects=0
ip link add br0 type bridge forward_delay 0 mcast_snooping 0 vlan_filtering 1
ip link set p0 master br0
ip link set p1 master br0
ip link set p2 master br0
ip link set p2 mtu 1400
ip link set br0 mtu 1500
bridge vlan add dev p0 vid 5-9
bridge vlan del dev p1 vid 1
bridge vlan add dev p1 vid 5 pvid untagged
bridge vlan add dev p2 vid 5
bridge vlan add dev br0 vid 5 self
bridge vlan add dev br0 vid 7 untagged self
bridge vlan add dev br0 vid 8 self
bridge vlan add dev br0 vid 9 self
ip link set br0 up
ip link add link br0 name br0.5 type vlan id 5
ip link add link br0 name br0.6 type vlan id 6
ip link add link br0 name br0.9 type vlan id 9
ip link set br0.9 mtu 1300
ip link set br0.5 up
ip link set br0.6 up
ip link set br0.9 up
ip address add 10.70.0.1/24 dev br0
ip address add fd00:70::1/64 dev br0
ip address add 10.75.0.1/24 dev br0.5
ip address add fd00:75::1/64 dev br0.5
ip address add 10.76.0.1/24 dev br0.6
ip address add 10.79.0.1/24 dev br0.9
ip neighbour replace 10.70.0.2 lladdr 02:aa:00:00:00:01 nud permanent dev br0
ip neighbour replace 10.70.0.4 lladdr 02:aa:00:00:00:03 nud permanent dev br0
ip neighbour replace fd00:70::4 lladdr 02:aa:00:00:00:03 nud permanent dev br0
ip neighbour replace 10.75.0.2 lladdr 02:aa:00:00:00:01 nud permanent dev br0.5
ip neighbour replace 10.75.0.3 lladdr 02:aa:00:00:00:02 nud permanent dev br0.5
ip neighbour replace 10.75.0.4 lladdr 02:aa:00:00:00:03 nud permanent dev br0.5
ip neighbour replace 10.75.0.9 lladdr 02:aa:00:00:00:09 nud permanent dev br0.5
ip neighbour replace fd00:75::2 lladdr 02:aa:00:00:00:01 nud permanent dev br0.5
ip neighbour replace fd00:75::3 lladdr 02:aa:00:00:00:02 nud permanent dev br0.5
ip neighbour replace 10.76.0.2 lladdr 02:aa:00:00:00:01 nud permanent dev br0.6
ip neighbour replace 10.79.0.2 lladdr 02:aa:00:00:00:01 nud permanent dev br0.9
`

// TestVLANBridgeRouted routes from and to a bridge that filters by VLAN, its own device and the VLAN devices on it.
func TestVLANBridgeRouted(t *testing.T) {
	filteringKernel(t)
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 4, routedVLANCommands)
			w.exec(withoutCalls())
			shots := routedVLANShots(w)
			w.alone(shots)
			w.start(hook)
			if s := w.engine.State(); !s.Features.Bridge || !s.Features.BridgeVLANs {
				t.Fatalf("this kernel's bridges and their VLANs cannot be read: %s", s.Features.NoBridge)
			}
			w.compare(shots)
			w.explained(hook)
			if hook == graph.TC {
				w.goesPast()
			}
			w.routedVLANChanges()
		})
	}
}

// routed is a packet from a station behind a port of the bridge, by its tag, to the bridge's own address, which is that of its first port.
func (w *twin) routed(port string, who net.HardwareAddr, src, dst string, vlans ...uint16) lab.Flow {
	f := w.flow(port, src, dst, vlans...)
	f.SrcMAC, f.DstMAC = who, w.net.Port(lab.Dut, "p0").MAC
	return f
}

func routedVLANShots(w *twin) (shots []shot) {
	a, b, c := station(1), station(2), station(3)
	add := func(name, port string, frame []byte, xdp, tc reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: xdp, tc: tc})
	}
	both := func(name, port string, frame []byte, code reason.Code) { add(name, port, frame, code, code) }
	unheard := func(name, port string, frame []byte, code reason.Code) {
		both(name, port, frame, code)
		shots[len(shots)-1].unheard = true
	}
	shows := func(port string, who net.HardwareAddr, vlans ...uint16) {
		name := port + " shows itself"
		for _, id := range vlans {
			name += " in VLAN " + strconv.Itoa(int(id))
		}
		both(name, port, w.within(port, who, everyone, vlans...).UDP("here"), reason.BridgeGroup)
	}
	shows("w0", a)
	for id := uint16(5); id < 10; id++ {
		shows("w0", a, id)
	}
	shows("w1", b)
	shows("w2", c)
	shows("w2", c, 5)

	const out, out6 = "10.0.3.2", "fd00:0:0:4::2"
	tagged := w.routed("w0", a, "10.75.0.2", out, 5)
	both("from the bridge's own VLAN", "w0", w.routed("w0", a, "10.70.0.2", out).UDP("x"), reason.Fast)
	both("from the bridge's own VLAN, by its tag", "w0", w.routed("w0", a, "10.70.0.2", out, 7).UDP("x"), reason.Fast)
	both("from VLAN 5 by a tag", "w0", tagged.UDP("x"), reason.Fast)
	both("from VLAN 5 by the port's PVID", "w1", w.routed("w1", b, "10.75.0.3", out).UDP("x"), reason.Fast)
	both("from VLAN 5, padded", "w0", lab.Edited(tagged.UDP("x"), lab.Pad(96)), reason.Fast)
	both("from VLAN 5, with priority", "w0", lab.Edited(tagged.UDP("x"), lab.L2(14, 0xb0, 5)), reason.Fast)
	both("from VLAN 5, as long as it may be", "w0", tagged.UDP(fill(1500-28)), reason.Fast)
	both("IPv6 from VLAN 5", "w0", w.routed("w0", a, "fd00:75::2", out6, 5).UDP("x"), reason.Fast)
	both("IPv6 from VLAN 5 by the port's PVID", "w1", w.routed("w1", b, "fd00:75::3", out6).UDP("x"), reason.Fast)
	both("IPv6 from the bridge's own VLAN", "w2", w.routed("w2", c, "fd00:70::4", out6).UDP("x"), reason.Fast)
	both("TTL 1 from VLAN 5", "w0", lab.Edited(tagged.UDP("x"), lab.TTL(1)), reason.TTL)
	both("options from VLAN 5", "w0", lab.Edited(tagged.UDP("x"), lab.IPOptions(1, 1, 1, 1)), reason.IP4Options)
	both("no route from VLAN 5", "w0", w.routed("w0", a, "10.75.0.2", "10.99.0.1", 5).UDP("x"), slow)
	both("a VLAN that the bridge itself is not in", "w0", w.routed("w0", a, "10.76.0.2", out, 6).UDP("x"), reason.BridgeMember)
	unheard("a VLAN without a device", "w0", w.routed("w0", a, "10.70.0.2", out, 8).UDP("x"), reason.VLANUnknown)
	unheard("a VLAN that the port is not in", "w1", w.routed("w1", b, "10.79.0.2", out, 9).UDP("x"), reason.BridgeMember)
	both("a priority tag", "w0", w.routed("w0", a, "10.70.0.2", out, 0).UDP("x"), reason.VLANUnknown)
	both("two tags", "w0", w.routed("w0", a, "10.75.0.2", out, 5, 7).UDP("x"), reason.VLANUnknown)
	other := tagged
	other.DstMAC = w.net.Port(lab.Dut, "p1").MAC
	both("to the address of another port", "w0", other.UDP("x"), reason.DstMAC)

	to := func(dst string) lab.Flow {
		if strings.Contains(dst, ":") {
			return w.flow("w3", out6, dst)
		}
		return w.flow("w3", out, dst)
	}
	onto := func(name string, frame []byte, code reason.Code) { add(name, "w3", frame, nowhere, code) }
	onto("to the bridge's PVID", to("10.70.0.4").UDP("x"), reason.Fast)
	onto("to the bridge's PVID, by the trunk", to("10.70.0.2").UDP("x"), reason.Fast)
	onto("IPv6 to the bridge's PVID", to("fd00:70::4").UDP("x"), reason.Fast)
	onto("to VLAN 5, tagged", to("10.75.0.2").UDP("x"), reason.Fast)
	onto("to VLAN 5, untagged", to("10.75.0.3").UDP("x"), reason.Fast)
	onto("to VLAN 5, padded", lab.Edited(to("10.75.0.2").UDP("x"), lab.Pad(96)), reason.Fast)
	onto("IPv6 to VLAN 5, tagged", to("fd00:75::2").UDP("x"), reason.Fast)
	onto("IPv6 to VLAN 5, untagged", to("fd00:75::3").UDP("x"), reason.Fast)
	onto("to VLAN 5, as long as it may be", to("10.75.0.2").UDP(fill(1500-28)), reason.Fast)
	onto("to VLAN 5, as long as the port takes", to("10.75.0.4").UDP(fill(1404-28)), reason.Fast)
	onto("to VLAN 5, longer than the port takes", to("10.75.0.4").UDP(fill(1405-28)), reason.Fast) // by the bridge's own device, which drops it
	onto("to a station that is not known", to("10.75.0.9").UDP("x"), reason.Fast)                  // the same, which floods it
	onto("to a VLAN that the bridge is not in", to("10.76.0.2").UDP("x"), reason.Fast)             // the same, which drops it
	onto("as long as the VLAN device takes", to("10.79.0.2").UDP(fill(1300-28)), reason.Fast)
	onto("longer than the VLAN device takes", to("10.79.0.2").UDP(fill(1301-28)), reason.MTU)

	add("from VLAN 1 to 5", "w2", w.routed("w2", c, "10.70.0.4", "10.75.0.3").UDP("x"), reason.EgressSlow, reason.Fast)
	add("from VLAN 1 to 5, tagged", "w2", w.routed("w2", c, "10.70.0.4", "10.75.0.2").UDP("x"), reason.EgressSlow, reason.Fast)
	add("from VLAN 5 to 1", "w0", w.routed("w0", a, "10.75.0.2", "10.70.0.4", 5).UDP("x"), reason.EgressSlow, reason.Fast)
	add("from VLAN 5 to 1 by the port's PVID", "w1", w.routed("w1", b, "10.75.0.3", "10.70.0.4").UDP("x"), reason.EgressSlow, reason.Fast)
	add("from one tag to another, by the trunk", "w0", w.routed("w0", a, "10.79.0.2", "10.75.0.2", 9).UDP("x"), reason.EgressSlow, reason.Fast)
	add("IPv6 from VLAN 5 to 1", "w0", w.routed("w0", a, "fd00:75::2", "fd00:70::4", 5).UDP("x"), reason.EgressSlow, reason.Fast)
	add("back into the VLAN that it came by", "w0", w.routed("w0", a, "10.75.0.2", "10.75.0.3", 5).UDP("x"), reason.SameInterface, reason.SameInterface)
	return shots
}

// explained runs the programs on frames with their tag in them, as shunt explain has it.
func (w *twin) explained(hook graph.Hook) {
	w.Helper()
	a := station(1)
	for _, c := range []struct {
		name  string
		flow  lab.Flow
		want  reason.Code
		leave string
	}{
		{"VLAN 5", w.routed("w0", a, "10.75.0.2", "10.0.3.2", 5), reason.Fast, "p3"},
		{"VLAN 7", w.routed("w0", a, "10.70.0.2", "10.0.3.2", 7), reason.Fast, "p3"},
		{"IPv6", w.routed("w0", a, "fd00:75::2", "fd00:0:0:4::2", 5), reason.Fast, "p3"},
		{"VLAN 6", w.routed("w0", a, "10.76.0.2", "10.0.3.2", 6), reason.BridgeMember, ""},
	} {
		err := w.engine.Do(context.Background(), func(d *datapath.Datapath) error {
			s := w.engine.State()
			t, err := d.Explain(s.Network.LinkByName("p0").Index, hook, c.flow.UDP(fill(100)))
			if err != nil {
				return err
			}
			name := ""
			if l := s.Network.Link(t.Egress); l != nil {
				name = l.Name
			}
			if t.Reason != c.want || name != c.leave {
				w.Errorf("explaining %s: %s by %q, want %s by %q", c.name, t.Reason, name, c.want, c.leave)
			}
			if t.Reason == reason.Fast && (len(t.Frame) != len(c.flow.UDP(fill(100)))-4 || t.Frame[12] == 0x81) {
				w.Errorf("explaining %s: it leaves as % x", c.name, t.Frame)
			}
			return nil
		})
		if err != nil {
			w.Errorf("explaining %s: %v", c.name, err)
		}
	}
}

// goesPast sees that what tc sends to stations that are known goes past the bridge's own device, and the VLAN device.
func (w *twin) goesPast() {
	w.Helper()
	for _, dst := range []string{"10.70.0.4", "10.75.0.2", "10.75.0.3"} {
		dev := "br0"
		if strings.HasPrefix(dst, "10.75.") {
			dev = "br0.5"
		}
		before := w.transmitted(dev)
		for range 5 {
			w.fire("w3", w.flow("w3", "10.0.3.2", dst).UDP("past"))
		}
		w.sinks.Take(5, patience)
		if n := w.transmitted(dev) - before; n > 2 { // some neighbour solicitation of the host's own may be among them
			w.Errorf("%s has sent %d packets to %s", dev, n, dst)
		}
	}
}

// transmitted is how many packets a device of the router has sent.
func (w *twin) transmitted(dev string) int {
	w.Helper()
	out, err := w.net.Node(lab.Dut).Output("ip -s -o link show dev %s", dev)
	if err != nil {
		w.Fatal(err)
	}
	_, tx, _ := strings.Cut(out, "TX:")
	fields := strings.Fields(tx[strings.Index(tx, `\`)+1:])
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		w.Fatalf("%v in %q", err, out)
	}
	return n
}

// routedVLANChanges are seen by the next frame, since they are read live, or shortly after. At tc the VLAN device's own program may forward what the port's has left to Linux.
func (w *twin) routedVLANChanges() {
	a := station(1)
	tagged, own := w.routed("w0", a, "10.75.0.2", "10.0.3.2", 5).UDP("x"), w.routed("w0", a, "10.70.0.2", "10.0.3.2").UDP("x")
	for _, c := range []struct {
		frame []byte
		bridgeChange
	}{
		{tagged, bridgeChange{"bridge vlan del dev br0 vid 5 self", "bridge vlan add dev br0 vid 5 self", reason.BridgeMember}},
		{tagged, bridgeChange{"bridge vlan del dev p0 vid 5", "bridge vlan add dev p0 vid 5", reason.BridgeMember}},
		{tagged, bridgeChange{"ip link set br0.5 down", "ip link set br0.5 up", slow}},
		{tagged, bridgeChange{"ip link set br0 type bridge vlan_stats_enabled 1", "ip link set br0 type bridge vlan_stats_enabled 0", reason.BridgeOption}},
		{tagged, bridgeChange{"ip link set br0 type bridge vlan_filtering 0", "ip link set br0 type bridge vlan_filtering 1", slow}},
		{tagged, bridgeChange{"ip link set br0 type bridge vlan_protocol 802.1ad", "ip link set br0 type bridge vlan_protocol 802.1Q", reason.VLANUnknown}},
		{tagged, bridgeChange{"ip link set br0 type bridge nf_call_iptables 1", "ip link set br0 type bridge nf_call_iptables 0", slow}},
		{tagged, bridgeChange{"ip link set br0.5 type vlan ingress-qos-map 3:4", "ip link set br0.5 type vlan ingress-qos-map 3:0", slow}},
		{own, bridgeChange{"bridge vlan add dev br0 vid 1 self", "bridge vlan add dev br0 vid 1 pvid untagged self", reason.VLANUnknown}},
		{tagged, bridgeChange{"sysctl -qw net.bridge.bridge-nf-call-iptables=1", "sysctl -qw net.bridge.bridge-nf-call-iptables=0", slow}},
	} {
		if strings.HasPrefix(c.command, "sysctl") && withoutCalls() == "" {
			continue
		}
		w.leftTo(c.command, c.want, c.frame)
		w.leftTo(c.back, reason.Fast, c.frame)
	}
}

// leftTo sends a frame by w0 after a command until the port's program says of it what is wanted. Before each the station shows itself.
func (w *twin) leftTo(command string, want reason.Code, frame []byte) {
	w.Helper()
	w.exec(command)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		w.fire("w0", w.within("w0", station(1), everyone, 5).UDP("t"))
		w.teach(station(1), "w0")
		before := w.counters()
		w.fire("w0", frame)
		time.Sleep(5 * time.Millisecond)
		way := slices.DeleteFunc(left(before, w.counters()), func(s string) bool { return !strings.HasPrefix(s, "p0 ") || s == "p0 bridge-group" })
		if len(way) > 0 && agrees(want, way) {
			return
		}
		if time.Now().After(end) {
			w.Errorf("after %q: left by %q, want %s", command, way, wantName(want))
			return
		}
	}
}
