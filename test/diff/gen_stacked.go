// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
)

// stackedKinds are the links that genStacked makes, where the kernel has them.
var stackedKinds = []string{"vlan", "vrf", "bond"}

// genStacked puts devices on top of ports: bonds, VLANs with one tag and with two, on ports and on bonds; and makes some of the top ones
// part of a VRF. Addresses, neighbours, routes, rules and switches of the features behind this one then go to the top device.
func genStacked(_ *rand.Rand, c *Config) {
	rng := c.Stacking
	if !slices.ContainsFunc(stackedKinds, func(kind string) bool { return slices.Contains(c.Kinds, kind) }) || !chance(rng, 70) {
		return
	}
	for i := range c.N {
		if slices.Contains(c.Kinds, "bond") && chance(rng, 15) {
			c.bond(i)
		}
		if slices.Contains(c.Kinds, "vlan") && chance(rng, 50) {
			c.vlans(i)
		}
	}
	if slices.Contains(c.Kinds, "vrf") && chance(rng, 25) {
		c.vrf()
	}
	c.Slow.Tagged = true
}

// bond gives a port's place to a bond with this one member.
func (c *Config) bond(port int) {
	dev := fmt.Sprintf("b%d", port)
	c.add("ip link add %s type bond mode %s", dev, pick(c.Stacking, []string{"active-backup", "active-backup", "balance-xor", "802.3ad"}))
	c.add("ip link set %s down", portName(port))
	c.add("ip link set %s master %s", portName(port), dev)
	c.quietTop(port, dev)
	c.add("ip link set %s mtu %d", dev, c.MTU[port])
}

// vlans puts a VLAN device on a port, or two, one on the other.
func (c *Config) vlans(port int) {
	proto, id := "802.1Q", pick(c.Stacking, []uint16{5, 10, 100})
	if chance(c.Stacking, 30) {
		proto = "802.1ad"
		c.vlan(port, fmt.Sprintf("s%d", port), proto, id)
		if chance(c.Stacking, 20) {
			return // a service tag alone
		}
		proto, id = "802.1Q", pick(c.Stacking, []uint16{7, 10, 100})
	}
	c.vlan(port, fmt.Sprintf("v%d", port), proto, id)
	if chance(c.Stacking, 10) {
		c.add("ip link set %s type vlan %s", c.dev(port), pick(c.Stacking, []string{"egress 0:1 2:3 4:5", "ingress 0:2 3:1", "reorder_hdr off"}))
		c.excusePort(port)
	}
}

func (c *Config) vlan(port int, dev, proto string, id uint16) {
	c.add("ip link add link %s name %s type vlan proto %s id %d", c.dev(port), dev, proto, id)
	tpid := map[string]uint16{"802.1Q": 0x8100, "802.1ad": 0x88a8}[proto]
	c.Tags[port] = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(c.Tags[port], tpid), id)
	c.quietTop(port, dev)
}

// vrf makes a VRF of some of the top devices; its table is one of those that routes go to.
func (c *Config) vrf() {
	c.add("ip link add red type vrf table 100")
	c.add("ip link set red up")
	for i := range c.N {
		if i < 2 || chance(c.Stacking, 40) {
			c.add("ip link set %s master red", c.dev(i))
		}
	}
}

// quietTop brings up a device on a port, with the settings that ports have, and makes it the port's top one.
func (c *Config) quietTop(port int, dev string) {
	for _, s := range perDevice {
		c.add("sysctl "+s, dev)
	}
	c.add("ip link set %s up", dev)
	c.Top[port] = dev
}

// restack changes or removes one of the devices on top.
func restack(c *Config) {
	port := c.N - 1
	if c.Top[port] == "" || !chance(c.Stacking, 40) {
		return
	}
	c.add(pick(c.Stacking, []string{"ip link del %s", "ip link set %s down", "ip link set %s mtu 1290", "ip link set %s nomaster", "ip link set %s address 02:00:00:00:99:01"}), c.Top[port])
	c.excusePort(port)
}
