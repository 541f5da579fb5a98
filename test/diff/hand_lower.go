// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// lowerTraps have devices that share a router's port with it, or change what it sends: macvlan, ipvlan, macsec. What is theirs is Linux's, and so is the port below; what goes between other ports is not.
func lowerTraps() []hand {
	mac := [6]byte{2, 0, 0, 0x55, 0, 1}
	upper := func(packets []Packet) []Packet { return toward(mac[:], packets) }
	// Networks 10.6.0.0/16 and 2001:db8:6::/48 are behind the device on p1.
	onTop := func(kind, address string) []string {
		return slices.Concat([]string{"ip link add up0 link p1 " + address + "type " + kind}, quietDevice("up0"), []string{"ip link set up0 up", "ip address add 10.0.6.1/24 dev up0", "ip address add fd00::7:0:0:0:1/64 dev up0 nodad",
			fmt.Sprintf("ip neighbour replace 10.0.6.10 lladdr %s dev up0 nud permanent", hostMAC(1, 1)), fmt.Sprintf("ip neighbour replace fd00::7:0:0:0:10 lladdr %s dev up0 nud permanent", hostMAC(1, 1)),
			"ip route add 10.6.0.0/16 via 10.0.6.10", "ip route add 2001:db8:6::/48 via fd00::7:0:0:0:10"})
	}
	to := join(udp(0, h0, "10.6.1.1"), udp(0, h0, "10.0.6.10"), udp(0, h0v6, "2001:db8:6::1"), udp(2, "10.2.3.4", "10.6.1.1"), sized(0, h0, "10.6.1.1", 1500), sized(0, h0, "10.6.1.1", 1501))
	from := join(udp(1, "10.0.6.10", h0), udp(1, "10.6.3.4", "10.2.3.4"), udp(1, "2001:db8:6::5", h0v6), udp(1, "10.0.6.10", h0, lab.TTL(1)), in(1, flowOf(1, "10.0.6.10", h0).TCP("S", 1, "")))
	packets := join(some(), back(), to, from, upper(from), upper(back()))
	slow := Excuse{In: []int{1}, Out: []int{1}}
	stack := func(name, kind, options, address, why string, more ...handStep) hand {
		return hand{name: "stacked " + name, why: why, needs: kind, loads: true, slow: slow, reasons: []string{"fast"}, steps: append([]handStep{step(packets, onTop(kind+options, address)...)}, more...)}
	}
	address := "address 02:00:00:55:00:01 "
	down := step(packets, "ip link set up0 down")
	up := step(packets, "ip link set up0 up", "ip route add 10.6.0.0/16 via 10.0.6.10")
	gone := atOnce(packets, "ip link del up0")
	out := []hand{
		stack("macvlan on a port", "macvlan", " mode bridge", address, "routes lead by a device that shares the port, in and out; it goes down, comes back, and is taken away", down, up, gone, step(packets)),
		stack("macvlan private", "macvlan", " mode private", address, "the same in another mode", step(packets, "ip link set p1 mtu 1400"), step(packets, "ip link set p1 mtu 1500"), step(packets, "ip link set up0 address 02:00:00:55:00:02")),
		stack("macvlan passthru", "macvlan", " mode passthru", "", "a device that takes all that the port receives", gone, step(packets)),
		stack("ipvlan on a port", "ipvlan", " mode l2", "", "a device with the port's own address, found by that of IP", gone, step(packets)),
		stack("ipvlan routed", "ipvlan", " mode l3", "", "the same, by routes", gone, step(packets)),
		stack("macsec on a port", "macsec", " encrypt off", "", "what leaves by a device is signed, and nothing else is taken", gone, step(packets)),
	}
	macsec := &out[len(out)-1]
	macsec.steps[0].packets, macsec.steps[1].packets = join(some(), back(), from), join(some(), back(), from) // signatures have a number that counts
	return out
}
