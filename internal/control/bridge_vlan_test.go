// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net"
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// bridgeVLANCommands make p0 a trunk, p1 a port of VLAN 5 that knows no tags, and p2 one of VLAN 1 that is in two others too.
const bridgeVLANCommands = `
ip link add br0 type bridge forward_delay 0 mcast_snooping 0 vlan_filtering 1
ip link set p0 master br0
ip link set p1 master br0
ip link set p2 master br0
bridge vlan add dev p0 vid 5
bridge vlan add dev p0 vid 6
bridge vlan del dev p1 vid 1
bridge vlan add dev p1 vid 5 pvid untagged
bridge vlan add dev p2 vid 5
bridge vlan add dev p2 vid 6 untagged
ip link set br0 up
`

// filteringKernel skips where bridges ignore vlan_filtering, which virtual machines' kernels have.
func filteringKernel(t *testing.T) {
	t.Helper()
	kinds(t, "b0 type bridge")
	hasAll(t, "bridges that filter by VLAN ("+lab.Since("bridge vlans")+")", "ip link add b0 type bridge vlan_filtering 1", "bridge vlan add dev b0 vid 5 self")
}

func TestVLANBridge(t *testing.T) {
	filteringKernel(t)
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 3, bridgeVLANCommands)
			w.exec(withoutCalls())
			shots := bridgeVLANShots(w)
			w.alone(shots)
			w.start(hook)
			if s := w.engine.State(); !s.Features.Bridge || !s.Features.BridgeVLANs {
				t.Fatalf("this kernel's bridges and their VLANs cannot be read: %s", s.Features.NoBridge)
			}
			w.compare(shots)
			w.bridgeVLANChanges()
		})
	}
}

// within is between in a VLAN by its tag.
func (w *twin) within(port string, src, dst net.HardwareAddr, vlans ...uint16) lab.Flow {
	f := w.between(port, src, dst)
	f.VLANs = vlans
	return f
}

func bridgeVLANShots(w *twin) (shots []shot) {
	a, b, c := station(1), station(2), station(3)
	add := func(name, port string, frame []byte, code reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: code, tc: code})
	}
	unheard := func(name, port string, frame []byte, code reason.Code) {
		add(name, port, frame, code)
		shots[len(shots)-1].unheard = true
	}
	shows := func(name, port string, who net.HardwareAddr, vlans ...uint16) {
		add(name+" shows itself", port, w.within(port, who, everyone, vlans...).UDP("here"), reason.BridgeGroup)
	}
	shows("a without a tag", "w0", a)
	shows("a in VLAN 5", "w0", a, 5)
	shows("a in VLAN 6", "w0", a, 6)
	shows("b", "w1", b)
	shows("c without a tag", "w2", c)
	shows("c in VLAN 5", "w2", c, 5)
	shows("c in VLAN 6", "w2", c, 6)
	add("no tag on either side", "w0", w.within("w0", a, c).UDP("x"), reason.Fast)
	add("and back", "w2", w.within("w2", c, a).UDP("x"), reason.Fast)
	add("padding stays", "w0", lab.Edited(w.within("w0", a, c).UDP("x"), lab.Pad(96)), reason.Fast)
	add("the same tag on both sides", "w0", w.within("w0", a, c, 5).UDP("x"), reason.Fast)
	add("the same tag, back", "w2", w.within("w2", c, a, 5).UDP("x"), reason.Fast)
	add("priority and DEI stay", "w0", lab.Edited(w.within("w0", a, c, 5).UDP("x"), lab.L2(14, 0xb0, 5)), reason.Fast)
	add("a tag is taken off", "w0", w.within("w0", a, b, 5).UDP("x"), reason.Fast)
	add("a tag with priority is taken off", "w0", lab.Edited(w.within("w0", a, b, 5).UDP("x"), lab.L2(14, 0xb0, 5)), reason.Fast)
	add("a tag is taken off a padded frame", "w0", lab.Edited(w.within("w0", a, b, 5).UDP("x"), lab.Pad(96)), reason.Fast)
	add("a tag is put on", "w1", w.within("w1", b, a).UDP("x"), reason.Fast)
	add("a tag is put on a padded frame", "w1", lab.Edited(w.within("w1", b, c).UDP("x"), lab.Pad(96)), reason.Fast)
	add("a tag is put on as much as the port takes", "w1", w.within("w1", b, a).UDP(fill(1500-28)), reason.Fast)
	add("a tag is taken off as much as the port takes", "w0", w.within("w0", a, b, 5).UDP(fill(1500-28)), reason.Fast)
	add("TTL 1", "w1", lab.Edited(w.within("w1", b, a).UDP("x"), lab.TTL(1)), reason.Fast)
	add("another ethertype", "w1", lab.Edited(w.within("w1", b, a).UDP("x"), lab.L2(12, 0x88, 0x99)), reason.Fast)
	add("another ethertype behind a tag", "w0", lab.Edited(w.within("w0", a, b, 5).UDP("x"), lab.L2(16, 0x88, 0x99)), reason.Fast)
	add("tagged into a port that sends it without", "w1", w.within("w1", b, a, 5).UDP("x"), reason.Fast)
	add("untagged at a port that has no VLAN for it", "w0", w.within("w0", a, c, 6).UDP("x"), reason.Fast)
	add("ARP behind a tag", "w0", lab.Edited(w.within("w0", a, c, 5).UDP("x"), lab.L2(16, 0x08, 0x06)), reason.EtherType)
	add("PPPoE behind a tag", "w0", lab.Edited(w.within("w0", a, c, 5).UDP("x"), lab.L2(16, 0x88, 0x64)), reason.EtherType)
	add("known in another VLAN only", "w0", w.within("w0", a, b).UDP("x"), reason.BridgeDestination)
	unheard("a VLAN that the port is not in", "w0", w.within("w0", a, c, 7).UDP("x"), reason.BridgeMember)
	unheard("VLAN 1 where there is none", "w1", w.within("w1", b, c, 1).UDP("x"), reason.BridgeMember)
	add("a priority tag", "w0", w.within("w0", a, c, 0).UDP("x"), reason.VLANUnknown)
	add("a tag of another protocol", "w0", lab.Edited(w.within("w0", a, c, 5).UDP("x"), lab.L2(12, 0x88, 0xa8)), reason.VLANUnknown)
	add("two tags", "w0", w.within("w0", a, c, 5, 7).UDP("x"), reason.VLANUnknown)
	add("two tags of one protocol", "w0", lab.Edited(w.within("w0", a, c, 5, 7).UDP("x"), lab.L2(12, 0x81, 0)), reason.VLANUnknown)
	add("a moves within VLAN 5", "w2", w.within("w2", a, b, 5).UDP("x"), reason.BridgeSource)
	add("and is known there", "w2", w.within("w2", a, b, 5).UDP("x"), reason.Fast)
	add("and in VLAN 6 where it was", "w2", w.within("w2", c, a, 6).UDP("x"), reason.Fast)
	return shots
}

// bridgeVLANChanges are seen by the next frame, since they are read live, or shortly after.
func (w *twin) bridgeVLANChanges() {
	a, b := station(1), station(2)
	w.follow([]bridgeChange{
		{"bridge vlan del dev p0 vid 5", "bridge vlan add dev p0 vid 5", reason.BridgeMember},
		{"bridge vlan set dev p0 vid 5 state blocking", "bridge vlan set dev p0 vid 5 state forwarding", reason.BridgeMember},
		{"bridge vlan set dev p1 vid 5 state blocking", "bridge vlan set dev p1 vid 5 state forwarding", slow},
		{"ip link set br0 type bridge vlan_protocol 802.1ad", "ip link set br0 type bridge vlan_protocol 802.1Q", reason.VLANUnknown},
		{"ip link set br0 type bridge vlan_stats_enabled 1", "ip link set br0 type bridge vlan_stats_enabled 0", reason.BridgeOption},
		{"ip link set br0 type bridge vlan_filtering 0", "ip link set br0 type bridge vlan_filtering 1", slow},
		{"ip link add link p0 name p0.9 type vlan id 9", "ip link del p0.9", slow},
	}, w.within("w0", a, b, 5).UDP("x"), func(string) {
		w.fire("w0", w.within("w0", a, everyone, 5).UDP("t"))
		w.teach(b, "w1")
	})
}
