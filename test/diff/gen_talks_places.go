// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
)

// venue is where generated conversations pass. All that the generator says of a router, devices above all, is put into a place's words (placed), so that its choices are the same everywhere.
type venue string

const (
	// Between two ports that are routed.
	byRouter venue = ""
	// Hosts of one side or both are behind ports of a bridge with addresses, as containers are: routed from or to it, and translated.
	byBridge venue = "bridge"
	// Both sides are stations of one bridge, whose packets br_netfilter shows to the rules of IP; some call a service by the router's address, which sends them back into the bridge.
	byStations venue = "stations"
	// The servers are behind another node, joined by VXLAN as Flannel does it.
	byTunnel venue = "tunnel"
)

// placing draws where a case's conversations pass, and what is particular there.
type placing struct {
	rng      *rand.Rand
	place    venue
	bridged  [2]bool // which side's port is a bridge's (byBridge)
	shown    bool    // br_netfilter is on
	services bool    // stations call services
	static   bool    // the bridge is told where stations are, and does not have to hear them
	undo     [][]string
}

func newPlacing(seed uint64, hook string, kinds []string) *placing {
	p := &placing{rng: rand.New(rand.NewPCG(seed, 0x70_6c_61_63))}
	switch n := p.rng.IntN(100); {
	case n < 20:
		p.place = byBridge
		p.bridged[p.rng.IntN(2)] = true
		if chance(p.rng, 30) {
			p.bridged = [2]bool{true, true}
		}
	case n < 36:
		p.place = byStations
	case n < 48 && slices.Contains(kinds, "vxlan"):
		p.place = byTunnel
	}
	p.shown, p.static = p.place == byStations || chance(p.rng, 50), chance(p.rng, 50)
	p.services = chance(p.rng, map[bool]int{true: 20, false: 70}[hook == "xdp"]) // these are fast at tc alone
	return p
}

// hook is the one at which a case runs: tunnels are fast at tc.
func (p *placing) hook(hook string) string {
	if p.place == byTunnel && hook == "xdp" {
		return "auto"
	}
	return hook
}

// base are the commands that a case begins with.
func (p *placing) base() []string {
	switch p.place {
	case byBridge:
		var out []string
		for i, on := range p.bridged {
			if !on {
				continue
			}
			br := fmt.Sprintf("br%d", i)
			out = append(out, fmt.Sprintf("ip link add %s address %s type bridge%s", br, portMAC(i), pick(p.rng, []string{"", "", " mcast_snooping 0"})))
			out = append(out, quietDevice(br)...)
			for _, port := range []int{i, i + 3} {
				out = append(out, fmt.Sprintf("ip link set p%d master %s", port, br))
			}
			out = append(out, "ip link set "+br+" up")
			for n := range 2 {
				if p.static {
					out = append(out, fmt.Sprintf("bridge fdb replace %s dev p%d master static", hostMAC(i, n), i))
				}
			}
		}
		return slices.Concat(out, p.netfilter(), p.placed(common()))
	case byStations:
		out := irb("", p.netfilter()...)
		for n := range mostTalks {
			for port := range 3 {
				s := station{port, n}
				for _, v6 := range []bool{false, true} {
					out = append(out, fmt.Sprintf("ip neighbour replace %s lladdr %s dev br0 nud permanent", s.addr(v6), s.mac()))
				}
				if p.static {
					out = append(out, fmt.Sprintf("bridge fdb replace %s dev p%d master static", s.mac(), port))
				}
			}
		}
		return out
	case byTunnel:
		node2 := []string{"ip address add fd00:f0::1/128 dev vx0 nodad", "ip route add 10.244.2.0/24 via 10.244.2.0 dev vx0 onlink", fmt.Sprintf("ip neighbour replace 10.244.2.0 lladdr %s dev vx0 nud permanent", otherMAC),
			fmt.Sprintf("ip neighbour replace fd00:f2::1 lladdr %s dev vx0 nud permanent", otherMAC), fmt.Sprintf("bridge fdb append %s dev vx0 dst 10.0.1.11", otherMAC)}
		toServers := func(do string) bool {
			return strings.HasPrefix(do, "ip route add 10.1.") || strings.HasPrefix(do, "ip route add 2001:db8:1:")
		}
		routes := slices.DeleteFunc(common(), func(do string) bool { return !toServers(do) })
		return slices.Concat(slices.DeleteFunc(common(), toServers), flannel("", node2...), p.placed(routes))
	}
	return common()
}

// otherMAC is a second node's end of the tunnel.
var otherMAC = net.HardwareAddr{0x02, 0, 0, 0, 0xaa, 0x03}

func (p *placing) netfilter() []string {
	if p.shown {
		return withBridgeNetfilter
	}
	return withoutBridgeNetfilter
}

var (
	routedPorts = regexp.MustCompile(`\bp[01]\b`)
	nodesRoutes = strings.NewReplacer("via 10.0.1.10", "via 10.244.1.0 dev vx0 onlink", "via 10.0.1.11", "via 10.244.2.0 dev vx0 onlink", "via fd00::2:0:0:0:10", "via fd00:f1::1 dev vx0 onlink", "via fd00::2:0:0:0:11", "via fd00:f2::1 dev vx0 onlink")
)

// placed are commands about the common router in the words of the place.
func (p *placing) placed(commands []string) []string {
	out := slices.Clone(commands)
	for i := range out {
		out[i] = routedPorts.ReplaceAllStringFunc(out[i], func(port string) string {
			side := int(port[1] - '0')
			switch {
			case p.place == byStations:
				return "br0"
			case p.bridged[side]:
				return fmt.Sprintf("br%d", side)
			case p.place == byTunnel && side == 1:
				return "vx0"
			}
			return port
		})
		if p.place == byTunnel {
			out[i] = nodesRoutes.Replace(out[i])
		}
	}
	return out
}

// put moves a conversation's ends to where they are in this place.
func (p *placing) put(t *talking, i int) {
	switch p.place {
	case byStations:
		a, b := station{0, i}, station{1 + p.rng.IntN(2), i}
		t.stations, t.hairpin = []station{a, b}, false
		t.client, t.server = a.addr(t.v6).String(), b.addr(t.v6).String()
		t.real, t.seen, t.realPort, t.dport = "", "", 0, 80
		if t.nat != "dnat" && t.nat != "both" || !p.services {
			t.nat = ""
			return
		}
		t.real, t.realPort, t.server, t.dport = t.server, 80, t.own(0), uint16(8080+i)
		if t.nat == "both" {
			t.seen = t.own(0)
		}
	case byTunnel:
		if t.hairpin {
			return
		}
		node := nodeAt(1, 0, 1, flannelPort)
		t.tunnel = &node
		if t.nat == "masquerade" {
			t.seen = map[bool]string{false: "10.244.0.0", true: "fd00:f0::1"}[t.v6]
		}
	}
}

// hello is what bridges hear first.
func (p *placing) hello(talks []*talking) (out []Packet) {
	if p.static {
		return nil
	}
	switch p.place {
	case byBridge:
		for i, on := range p.bridged {
			for n := range 2 {
				if on {
					out = append(out, arp(i, 1, hostMAC(i, n), fmt.Sprintf("10.0.%d.%d", i, 10+n), fmt.Sprintf("10.0.%d.%d", i, 10+n))[:1]...)
				}
			}
		}
	case byStations:
		for _, t := range talks {
			out = append(out, join(t.stations[0].hello(), t.stations[1].hello())...)
		}
	}
	return out
}

// change is something that happens to a bridge meanwhile, and whether packets follow at once; nothing where there is none, or something else is to happen. Nothing keeps packets from Linux's tracking: what
// it had not seen would make the rest invalid to it, and fast beside shunt (docs/deviations.md). So no port leaves a bridge or gets a smaller MTU, and stations' packets are always shown.
func (p *placing) change(t *talking) (do []string, atOnce bool) {
	if p.place != byBridge && p.place != byStations || !chance(p.rng, 40) {
		return nil, false
	}
	if len(p.undo) > 0 && chance(p.rng, 60) {
		do, p.undo = p.undo[len(p.undo)-1], p.undo[:len(p.undo)-1]
		return do, chance(p.rng, 50)
	}
	br, port := "br0", p.rng.IntN(2)
	if p.place == byBridge {
		if !p.bridged[port] {
			port = 1 - port
		}
		br = fmt.Sprintf("br%d", port)
	}
	dev := portName(port)
	then := func(back ...string) { p.undo = append(p.undo, back) }
	switch p.rng.IntN(7) {
	case 0:
		return []string{"ip link set " + br + " type bridge fdb_flush"}, true
	case 1:
		then("bridge link set dev " + dev + " isolated off")
		return []string{"bridge link set dev " + dev + " isolated on"}, true
	case 2:
		then("bridge link set dev " + dev + " hairpin off")
		return []string{"bridge link set dev " + dev + " hairpin on"}, true
	case 3:
		then("bridge link set dev "+dev+" learning on", "bridge link set dev "+dev+" flood on")
		return []string{"bridge link set dev " + dev + pick(p.rng, []string{" learning off", " flood off"})}, true
	case 4:
		if p.place == byStations {
			return []string{"ip link set " + br + " type bridge mcast_snooping " + pick(p.rng, []string{"0", "1"})}, true
		}
		on, off := withBridgeNetfilter, withoutBridgeNetfilter
		if p.shown {
			on, off = off, on
		}
		then(off...)
		return on, true
	case 5:
		mac := hostMAC(port, p.rng.IntN(2))
		if p.place == byStations {
			mac = t.stations[port%len(t.stations)].mac()
		}
		return []string{fmt.Sprintf("bridge fdb replace %s dev %s master %s", mac, dev, pick(p.rng, []string{"static", "dynamic", "static sticky"}))}, true
	}
	then("ip link set " + br + " mtu 1500")
	return []string{"ip link set " + br + " mtu 1300"}, true
}

// rules are more rules than the common router's, which ask for ports of the bridge.
func (p *placing) rules(tool string) []string {
	if p.place != byStations || tool == "" || !chance(p.rng, 40) {
		return nil
	}
	return []string{tool + " -A FORWARD -m physdev " + pick(p.rng, []string{"--physdev-in p0", "--physdev-is-bridged", "--physdev-in p1 --physdev-out p0", "! --physdev-out p0"})}
}

// room is how much of a size fits into a packet everywhere on its way: what a tunnel's underlay does not let in Linux has not seen, so that what follows would be outside of the window that it knows.
func (t *talking) room(size int) int {
	if t.tunnel != nil {
		return min(size, 1340)
	}
	return size
}

// wrapped is a frame of one side as it comes to the router.
func (t *talking) wrapped(side int, frame []byte) []byte {
	if side == 0 || t.tunnel == nil {
		return frame
	}
	frame = slices.Clone(frame)
	copy(frame, vtepMAC)
	return t.tunnel.wrap(frame)
}

// mostTalks is how many conversations a case has at most.
const mostTalks = 5

// title is the name of a case from a seed.
func (p *placing) title(seed uint64) string {
	if p.place == byRouter {
		return fmt.Sprintf("talks-%d", seed)
	}
	return fmt.Sprintf("talks-%s-%d", p.place, seed)
}
