// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// bridgeMAC is the address that cases give the bridge br0, so that it does not follow its ports'.
var bridgeMAC = net.HardwareAddr{0x02, 0, 0, 0, 0xb0, 0x01}

// station is host n at a port of the bridge.
type station struct{ port, n int }

// Stations behind the ports of the bridge, and a second one behind the first port.
var stationA, stationB, stationC, stationA2 = station{0, 0}, station{1, 0}, station{2, 0}, station{0, 1}

func (s station) mac() net.HardwareAddr { return hostMAC(s.port, s.n) }

// addr is an address of the station; all are in one network, that of port 0 in the common router.
func (s station) addr(v6 bool) netip.Addr {
	last := byte(0x10*(s.port+1) + s.n)
	if v6 {
		return addr6(0, 0, last)
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, last})
}

// flow is one between two stations.
func (s station) flow(to station, v6 bool) lab.Flow {
	return lab.Flow{SrcMAC: s.mac(), DstMAC: to.mac(), Src: s.addr(v6), Dst: to.addr(v6), SrcPort: 1000, DstPort: 2000}
}

// to are packets from one station to another, of both families and some protocols.
func (s station) to(o station) []Packet {
	var out []Packet
	for _, v6 := range []bool{false, true} {
		f := s.flow(o, v6)
		out = append(out, in(s.port, f.UDP("u"), f.TCP("S", 1, ""), f.Echo(1, 1, "ping"))...)
	}
	return out
}

// word is one packet from a station to another, by wire and as a socket buffer.
func (s station) word(o station, text string) []Packet {
	return in(s.port, s.flow(o, false).UDP(text))
}

// hello is a broadcast by which every bridge learns where the station is; by another port if it has moved there.
func (s station) hello(port ...int) []Packet {
	at := append(port, s.port)[0]
	return arp(at, 1, s.mac(), s.addr(false).String(), s.addr(false).String())[:1]
}

// everybody has said hello.
func everybody() []Packet {
	return join(stationA.hello(), stationB.hello(), stationC.hello(), stationA2.hello())
}

// chat is what stations that are known say to each other.
func chat() []Packet {
	return join(stationA.to(stationB), stationB.to(stationA), stationC.to(stationA), stationB.word(stationC, "c"), stationA2.word(stationC, "a2"), stationB.word(stationA2, "b"))
}

// meet is everybody's hello and the chat behind it.
func meet() []Packet { return join(everybody(), chat()) }

// quietDevice are the settings of ports for another device.
func quietDevice(dev string) (out []string) {
	for _, s := range perDevice {
		out = append(out, "sysctl "+fmt.Sprintf(s, dev))
	}
	return out
}

// withoutBridgeNetfilter switches the call of IP's rules for bridged packets off, which kernels with br_netfilter do unasked. Without it, the switches do not exist.
var withoutBridgeNetfilter = []string{"sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=0", "sysctl net.bridge.bridge-nf-call-arptables=0"}

// bridge is br0 over p0, p1 and p2, made with options, and further commands.
func bridge(options string, more ...string) []string {
	out := append([]string{fmt.Sprintf("ip link add br0 address %s type bridge %s", bridgeMAC, options)}, quietDevice("br0")...)
	for i := range 3 {
		out = append(out, fmt.Sprintf("ip link set p%d master br0", i))
	}
	out = append(out, "ip link set br0 up")
	return slices.Concat(out, withoutBridgeNetfilter, more)
}

// toward sends copies of packets to another address.
func toward(mac []byte, packets []Packet) []Packet {
	out := slices.Clone(packets)
	for i := range out {
		out[i].Frame = slices.Clone(out[i].Frame)
		copy(out[i].Frame, mac)
	}
	return out
}

// byWire leaves out packets that are not sent as frames of a wire.
func byWire(packets []Packet) []Packet {
	return slices.DeleteFunc(slices.Clone(packets), func(p Packet) bool { return p.How != WireFrame })
}

// across sends what is for the common router to station B instead: a bridge must not care what it is.
func across(packets []Packet) []Packet { return toward(stationB.mac(), packets) }

// ether is a frame of some type from one address to another.
func ether(port int, src, dst net.HardwareAddr, t uint16, body int) []Packet {
	return in(port, lab.Packet(&layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: layers.EthernetType(t)}, gopacket.Payload(strings.Repeat("e", body))))
}

// group is a UDP packet from a station to a group, of either family.
func (s station) group(addr string) []Packet {
	dst := netip.MustParseAddr(addr)
	f := lab.Flow{SrcMAC: s.mac(), Src: s.addr(dst.Is6()), Dst: dst, SrcPort: 5000, DstPort: 5001, TTL: 1, DstMAC: groupMAC(dst)}
	return in(s.port, f.UDP("to a group"))
}

func groupMAC(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	if a.Is6() {
		return append(net.HardwareAddr{0x33, 0x33}, b[12:]...)
	}
	return net.HardwareAddr{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
}

// igmp is a station's report that it listens to an IPv4 group, 0x16, or leaves it, 0x17 (IGMPv2).
func (s station) igmp(kind byte, group string) []Packet {
	dst := netip.MustParseAddr(group)
	f := lab.Flow{SrcMAC: s.mac(), DstMAC: groupMAC(dst), Src: s.addr(false), Dst: dst, TTL: 1}
	b := dst.As4()
	body := []byte{kind, 0, 0, 0, b[0], b[1], b[2], b[3]}
	sum := ^uint16(headerSum(body))
	body[2], body[3] = byte(sum>>8), byte(sum)
	return in(s.port, lab.Edited(append(f.UDP("")[:34], body...), lab.IPLength(28), lab.L3(9, 2), lab.FixIPChecksum()))
}

// groups are packets to groups, known and unknown, local and not.
func groups() []Packet {
	return join(stationA.group("239.1.1.1"), stationA.group("224.0.0.251"), stationB.group("239.9.9.9"), stationA.group("ff0e::1:1"), stationA.group("ff02::fb"), stationC.group("ff0e::9:9"),
		ether(0, stationA.mac(), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0x0800, 50), ether(1, stationB.mac(), net.HardwareAddr{0x03, 0, 0, 0, 0, 7}, 0x88b5, 50))
}

// strangers are packets to hosts that nobody has heard.
func strangers() []Packet {
	return join(stationA.to(station{1, 7}), stationB.word(station{0, 7}, "who"), stationC.word(station{2, 7}, "who"))
}

// mixture is everything that a bridge tells apart: known, unknown and group addresses, its own and its ports'.
func mixture() []Packet {
	return join(meet(), strangers(), groups(), toRouters())
}

// manyStations adds or deletes so many entries of a port's.
func manyStations(what string, port, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("bridge fdb %s 02:00:00:07:%02x:%02x dev p%d master static", what, i>>8, i&0xff, port))
	}
	return out
}

// toRouters are packets to the bridge's own address and to those of ports, of this bridge and not.
func toRouters() []Packet {
	var out []Packet
	for _, mac := range []net.HardwareAddr{bridgeMAC, portMAC(0), portMAC(1), portMAC(2), portMAC(3)} {
		out = append(out, toward(mac, join(stationA.word(stationB, "to whom"), stationB.word(stationC, "to whom")))...)
	}
	return out
}

// bridgeTraps are about how a bridge finds the way, and about frames by themselves.
func bridgeTraps() []hand {
	bare := func(name, why string, steps ...handStep) hand {
		return hand{name: "bridge " + name, why: why, bare: true, slow: onBridge, steps: steps}
	}
	v4, v6 := flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)
	used := step(join(stationA.hello(), stationB.hello(), stationC.hello()), bridge("ageing_time 300")...)
	ages := bare("entries in use", "an entry ages unless its station is heard, and only then: what flows fast must keep it alive", used)
	for range 7 {
		ages.steps = append(ages.steps, step(join(stationA.word(stationB, "still here"), stationC.word(stationA, "me too")), "sleep 700ms"))
	}
	ages.steps = append(ages.steps, step(join(stationB.word(stationA, "flooded if forgotten"), stationB.word(stationC, "and here"), stationA.word(stationB, "b only listened, and is forgotten"))))
	ages.slow.Bridge = true // Linux has to see some of each station's packets
	out := []hand{
		bare("learning", "unknown, learned by the first frame, known from the next on", step(join(stationA.to(stationB), stationB.to(stationA), stationA.to(stationB), stationC.to(stationB), stationA.word(stationC, "known")), bridge("")...), step(chat()), step(meet())),
		bare("moves", "a station that is heard behind another port is there from the very next frame on, and may come back",
			step(join(everybody(), stationB.word(stationA, "1"), stationA.hello(2), stationB.word(stationA, "2"), toward(stationB.mac(), stationA.hello(1)), stationB.word(stationA, "3"), stationC.word(stationA, "3"), stationA.hello(), stationB.word(stationA, "4")), bridge("")...),
			step(join(chat(), by(2, stationA.to(stationB)), stationB.to(stationA), by(0, stationC.to(stationB)), stationB.to(stationC), stationA.word(stationC, "same port")))),
		bare("grows", "the table of stations is made anew as it grows and shrinks, under another seed: who was known is found there", step(join(everybody(), chat()), bridge("")...), step(chat(), manyStations("add", 2, 200)...), step(chat(), manyStations("del", 2, 200)...)),
		bare("floods", "unknown destinations, broadcast and groups leave by every other port; with snooping some do not",
			step(mixture(), bridge("mcast_snooping 0")...), step(mixture(), "ip link set br0 type bridge mcast_snooping 1"),
			step(join(stationC.igmp(0x16, "239.1.1.1"), groups()), "ip link set br0 type bridge mcast_query_response_interval 10 mcast_querier 1", "sleep 400ms"),
			step(groups(), "bridge mdb add dev br0 port p1 grp 239.9.9.9 permanent", "bridge link set dev p2 mcast_router 2", "bridge link set dev p2 fastleave on"), step(join(stationC.igmp(0x17, "239.1.1.1"), groups(), chat()))),
		bare("own addresses", "what goes to the bridge or one of its ports is the router's, with addresses or without",
			step(join(everybody(), toRouters(), pings()), bridge("")...), step(join(toRouters(), pings()), "ip address add 10.0.0.1/24 dev br0", "ip address add fd00::1:0:0:0:1/64 dev br0 nodad"),
			step(join(toRouters(), pings(), chat()), "ip link set br0 promisc on"), step(join(toRouters(), pings()), "ip link set br0 promisc off", "ip link set p1 promisc on")),
		bare("control addresses", "01:80:c2:00:00:0x is not forwarded, but for what a mask lets through", step(join(meet(), controls()), bridge("")...), step(controls(), "ip link set br0 type bridge group_fwd_mask 0xfff8"),
			step(controls(), "bridge link set dev p1 group_fwd_mask 0x4008", "ip link set br0 type bridge group_fwd_mask 0x4000"), step(join(controls(), chat()), "ip link set br0 type bridge stp_state 1 forward_delay 0")),
		bare("entries", "static, permanent and sticky ones, some of the bridge's own, and their end", step(meet(), bridge("", entries()...)...),
			step(join(meet(), nine(), by(2, station{1, 9}.to(stationA)), nine())), step(join(meet(), nine()), "bridge fdb replace 02:00:00:01:02:0b dev p2 master static", "bridge fdb del 02:00:00:01:01:0b dev p0 master"),
			step(join(meet(), nine(), groups(), toward([]byte{3, 0, 0, 0, 0, 7}, stationA.to(stationC))), "ip link set p2 down"), step(join(meet(), nine()), "ip link set p2 up", "ip link set br0 type bridge fdb_flush")),
		ages,
		bare("entries not in use", "an entry that nobody refreshes goes, and what is sent to it floods again", step(meet(), bridge("", "bridge fdb add 02:00:00:01:02:0b dev p1 master static")...),
			step(join(stationA.word(stationB, "flooded"), stationA.word(station{1, 9}, "not flooded")), "ip link set br0 type bridge ageing_time 100", "sleep 3500ms")),
		bare("mtu", "what a port's MTU does not take ends there, without a word", step(join(everybody(), sizedTo(1300), sizedTo(1304), sizedTo(1305), sizedTo(1501)), bridge("", "ip link set p1 mtu 1300")...), step(join(sizedTo(1500), sizedTo(1501), sizedTo(3000), sizedTo(9000), chat()), "ip link set p0 mtu 9000", "ip link set p1 mtu 9000")),
		bare("mtu of its own", "the bridge's own MTU, set by hand, does not matter between ports", step(join(everybody(), sizedTo(1500), sizedTo(3000)), bridge("", "ip link set br0 mtu 576")...)),
		bare("frames", "a bridge must not care what is in a packet", step(join(everybody(), across(byWire(join(eachEdit(v4, v6, lab.TTL(0), lab.TTL(1), lab.TTL(2)), options(v4), fragments(v4), shortMessages())))), bridge("")...),
			step(across(byWire(join(lengths(v4, v6), everyICMP(), martians(), extensions(v6))))), step(across(join(streams(), byWire(join(runts(v4, v6), tags())))))),
		bare("types", "neither does it care for the type, but for pauses", step(join(meet(), types()), bridge("")...)),
		bare("senders", "groups, zero, the bridge itself and its ports are no senders to learn", step(join(everybody(), senderMACs(), chat()), bridge("")...), step(join(senderMACs(), chat()), "ip address add 10.0.0.1/24 dev br0")),
		{name: "bridge offloads", why: "what is left to the device stays so, whole or cut, also where ports differ in MTU", bare: true, slow: onBridge, hooks: []string{"tc"},
			steps: []handStep{step(join(everybody(), across(offloads())), bridge("")...), step(across(offloads()), "ip link set p1 mtu 1300")}},
		{name: "bridge offloads xdp", why: "a checksum to be filled in by the device is lost by XDP_REDIRECT", bare: true, slow: onBridge, hooks: []string{"xdp"},
			steps: []handStep{step(join(everybody(), across(partials())), bridge("")...)}},
	}
	// A trap that nothing ran into proves nothing.
	for name, reasons := range map[string][]string{
		"learning": {"fast", "bridge-source", "bridge-destination"}, "moves": {"fast", "bridge-source"}, "floods": {"fast", "bridge-group", "bridge-destination"}, "own addresses": {"dst-mac", "not-forwarded", "bridge-promisc"},
		"control addresses": {"bridge-group"}, "entries": {"fast", "bridge-port"}, "entries in use": {"fast", "bridge-refresh"}, "frames": {"fast"}, "types": {"fast", "vlan-unknown"}, "senders": {"bridge-source"}, "mtu": {"fast", "mtu"},
	} {
		i := slices.IndexFunc(out, func(h hand) bool { return h.name == "bridge "+name })
		out[i].reasons = reasons
		out[i].slow.Bridge = out[i].slow.Bridge || name == "own addresses" // a promiscuous bridge gets all
	}
	return out
}

// onBridge is the ports of br0.
var onBridge = Excuse{Bridged: []int{0, 1, 2}}

// by are packets by another port than their sender's.
func by(port int, packets []Packet) []Packet {
	out := slices.Clone(packets)
	for i := range out {
		out[i].Port = port
	}
	return out
}

// pings ask the router's addresses, by the bridge's MAC address and by a port's.
func pings() (out []Packet) {
	for _, mac := range []net.HardwareAddr{bridgeMAC, portMAC(0), portMAC(1)} {
		for _, v6 := range []bool{false, true} {
			f := stationA.flow(stationB, v6)
			f.DstMAC, f.Dst = mac, map[bool]netip.Addr{false: netip.MustParseAddr("10.0.0.1"), true: addr6(0, 0, 1)}[v6]
			out = append(out, in(0, f.Echo(3, 4, "ping"), f.UDP("to nobody"))...)
		}
	}
	return join(out, arp(1, 1, stationB.mac(), stationB.addr(false).String(), "10.0.0.1"))
}

// controls are frames to the addresses that bridges keep for themselves.
func controls() (out []Packet) {
	for last := range byte(17) {
		out = append(out, ether(0, stationA.mac(), net.HardwareAddr{1, 0x80, 0xc2, 0, 0, last}, 0x88cc, 60)[:1]...)
	}
	for _, last := range []byte{0x0e, 0x20, 0x21, 0x2f} {
		out = append(out, ether(1, stationB.mac(), net.HardwareAddr{1, 0x80, 0xc2, 0, 0, last}, 0x0800, 60)...)
	}
	return append(out, ether(2, stationC.mac(), net.HardwareAddr{1, 0x80, 0xc2, 0, 1, 0}, 0x88cc, 60)...)
}

// entries are made by hand: 02:00:00:01:0X:0b is host 9 behind port X-1.
func entries() []string {
	return []string{
		"bridge fdb add 02:00:00:01:01:0b dev p0 master static", "bridge fdb add 02:00:00:01:02:0b dev p1 master static sticky", "bridge fdb add 02:00:00:01:03:0b dev p2 master permanent",
		"bridge fdb add 02:00:00:01:01:0c dev p0 master dynamic", "bridge fdb add 02:00:00:01:02:0c dev p1 master extern_learn dynamic", "bridge fdb add 02:00:00:01:03:0c dev br0 self permanent",
		"bridge fdb add 02:00:00:01:04:0c dev br0 self local", "bridge fdb replace 02:00:00:01:02:02 dev p1 master static", "bridge fdb add 01:00:5e:09:09:09 dev p1 master permanent",
		"bridge fdb add 03:00:00:00:00:07 dev p1 master static", // of a group, which no bridge asks for
	}
}

// nine are packets to and from the hosts of entries.
func nine() (out []Packet) {
	for _, n := range []int{9, 10} {
		for port := range 4 {
			out = append(out, stationA.word(station{port, n}, "to an entry")...)
			out = append(out, stationB.word(station{port, n}, "to an entry")...)
		}
	}
	return join(out, station{0, 9}.word(stationB, "from one"), station{2, 9}.word(stationB, "from one"), station{2, 10}.word(stationB, "from one"))
}

// sizedTo are packets of n bytes from the IP header on, between stations, and the same with a tag.
func sizedTo(n int) (out []Packet) {
	for _, pair := range [][2]station{{stationA, stationB}, {stationB, stationA}, {stationA, stationC}} {
		f := pair[0].flow(pair[1], false)
		one := in(pair[0].port, f.UDP(strings.Repeat("x", n-28)))
		out = join(out, one, tagged(one, 7))
	}
	return join(out, in(0, stationA.flow(stationB, true).UDP(strings.Repeat("x", n-48))))
}

// types are frames of protocols that a bridge passes on and a router does not.
func types() (out []Packet) {
	for _, t := range []uint16{0x0026, 0x05dc, 0x0600, 0x8035, 0x8100, 0x8808, 0x8809, 0x8847, 0x8863, 0x8864, 0x888e, 0x88a8, 0x88cc, 0x88e5, 0x88f7, 0x9000, 0xffff} {
		out = append(out, ether(0, stationA.mac(), stationB.mac(), t, 60)...)
	}
	for body := range 12 { // br_netfilter wants a whole header of this one
		out = append(out, ether(0, stationA.mac(), stationB.mac(), 0x8864, body)...)
	}
	return join(out, stationA.to(stationB), tagged(stationA.to(stationB), 0), tagged(stationA.to(stationB), 5), tagged(stationA.to(stationB), 5, 7), tagged(stationA.word(stationC, "dei"), 0x3005),
		in(0, arpBetween(stationA, stationB, 1), arpBetween(stationA, stationB, 2)), pauses())
}

// pauses are flow control, which no bridge forwards.
func pauses() []Packet {
	return ether(0, stationA.mac(), net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 1}, 0x8808, 46)
}

func arpBetween(s, o station, op uint16) []byte {
	a, b := s.addr(false).As4(), o.addr(false).As4()
	return lab.Packet(&layers.Ethernet{SrcMAC: s.mac(), DstMAC: o.mac(), EthernetType: layers.EthernetTypeARP}, &layers.ARP{
		AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: s.mac(), SourceProtAddress: a[:], DstHwAddress: o.mac(), DstProtAddress: b[:],
	})
}

// senderMACs are frames from addresses that no station can have.
func senderMACs() (out []Packet) {
	for _, mac := range []net.HardwareAddr{{1, 0, 0x5e, 1, 1, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0, 0, 0}, bridgeMAC, portMAC(0), portMAC(1), portMAC(3), {0x03, 0, 0, 1, 1, 2}} {
		f := stationA.flow(stationB, false)
		f.SrcMAC = mac
		g := f
		g.DstMAC = stationC.mac()
		out = join(out, in(0, f.UDP("from whom")), in(1, g.UDP("from whom")), toward(mac, stationC.word(stationA, "to whom"))[:1])
	}
	return out
}
