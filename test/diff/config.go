// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/datapath"
)

// Config is a router's configuration being generated, and what packets near it are made of.
type Config struct {
	Commands []string
	Slow     Excuse
	N        int // ports in use

	Own     []OwnAddr      // addresses given to ports
	Hosts   []Host         // neighbours, resolved or not
	Targets []netip.Prefix // destinations that routes and rules speak of
	MTU     [Ports]int
	Notes   map[string]bool // what features leave for each other: "ecmp", "rules" …

	Kinds    []string      // of links, that the kernel has beside veth
	Stacking *rand.Rand    // choices about these, apart from the others so that a seed means much the same on every kernel
	Top      [Ports]string // the device that has a port's addresses, if it is not the port
	Tags     [Ports][]byte // what it expects between a frame's addresses and type

	Bridging    *rand.Rand // choices about bridges, apart for the same reason
	Bridged     []int      // the ports of the bridge br0
	Unaddressed bool       // a bridge without addresses

	Tunneling *rand.Rand     // choices about tunnels, apart for the same reason
	Tunnels   [Ports]*tunnel // that the hosts of a port are behind

	Filtering *rand.Rand   // choices about packet filters, apart for the same reason
	Tables    []*ruleTable // of iptables
	NFT       []*nftTable
	IPSets    []ipset
}

// OwnAddr is an address of a port with its prefix.
type OwnAddr struct {
	Port   int
	Prefix netip.Prefix
}

// Host is a neighbour that routes go through and packets go to.
type Host struct {
	Port int
	Addr netip.Addr
	MAC  net.HardwareAddr
	Kind string // "static", "answers", "silent"
}

// Feature is one generator: it reads what earlier ones made and adds to it. Later
// features of shunt add one file and one line in Features.
type Feature struct {
	Name     string
	Generate func(rng *rand.Rand, c *Config)
}

// Features in the order in which they run.
var Features = []Feature{
	{"links", genLinks},
	{"stacked", genStacked},
	{"overlays", genOverlays},
	{"bridges", genBridge},
	{"addresses", genAddresses},
	{"hosts", genHosts},
	{"sysctls", genSysctls},
	{"nexthops", genNexthops},
	{"routes", genRoutes},
	{"rules", genRules},
	{"netfilter", genNetfilter},
	{"qdiscs", genQdiscs},
	{"xfrm", genXFRM},
	{"sockets", genSockets},
	{"states", genStates},
	{"filters", genFilters},
}

// add appends a command.
func (c *Config) add(format string, args ...any) {
	c.Commands = append(c.Commands, fmt.Sprintf(format, args...))
}

// excusePort takes a port out of what must be fast, in both directions.
func (c *Config) excusePort(p int) {
	c.Slow.In = append(c.Slow.In, p)
	c.Slow.Out = append(c.Slow.Out, p)
}

// chance is true n times in 100.
func chance(rng *rand.Rand, n int) bool { return rng.IntN(100) < n }

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// dev is the device that has a port's addresses.
func (c *Config) dev(port int) string {
	if c.Top[port] != "" {
		return c.Top[port]
	}
	return portName(port)
}

// port picks a port in use.
func (c *Config) port(rng *rand.Rand) int { return rng.IntN(c.N) }

// host picks a neighbour of a family that can be reached, nil if there is none.
func (c *Config) host(rng *rand.Rand, v6 bool) *Host {
	var fit []*Host
	for i := range c.Hosts {
		if h := &c.Hosts[i]; h.Addr.Is6() == v6 && (h.Kind != "silent" || chance(rng, 10)) {
			fit = append(fit, h)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return pick(rng, fit)
}

// target makes a prefix for a route: of its own, or one that overlaps with what is there.
func (c *Config) target(rng *rand.Rand, v6 bool) netip.Prefix {
	if len(c.Targets) > 0 && chance(rng, 40) {
		p := pick(rng, c.Targets)
		if p.Addr().Is6() == v6 {
			return reprefix(rng, p)
		}
	}
	if v6 {
		b := netip.MustParseAddr("2001:db8::").As16()
		b[5], b[7] = byte(rng.IntN(4)), byte(rng.IntN(8))
		return netip.PrefixFrom(netip.AddrFrom16(b), pick(rng, []int{0, 32, 48, 56, 64, 64, 64, 127, 128})).Masked()
	}
	b := [4]byte{pick(rng, []byte{10, 48, 172, 192, 198}), byte(rng.IntN(4)), byte(rng.IntN(4)), byte(rng.IntN(256))}
	return netip.PrefixFrom(netip.AddrFrom4(b), pick(rng, []int{0, 8, 16, 22, 24, 24, 24, 30, 31, 32})).Masked()
}

// reprefix makes a longer or shorter prefix around the same address.
func reprefix(rng *rand.Rand, p netip.Prefix) netip.Prefix {
	bits := p.Bits() + rng.IntN(17) - 8
	return netip.PrefixFrom(p.Addr(), max(0, min(bits, p.Addr().BitLen()))).Masked()
}

// Generate makes the case of a seed, for a kernel that has these kinds of links.
func Generate(seed uint64, packets int, hook string, kinds []string) *Case {
	rng := rand.New(rand.NewPCG(seed, 0x73_68_75_6e_74))
	c := &Config{Notes: map[string]bool{}, Kinds: kinds, Stacking: rand.New(rand.NewPCG(seed, 0x73_74_61_63_6b)), Filtering: rand.New(rand.NewPCG(seed, 0x66_69_6c_74_65_72)), Bridging: rand.New(rand.NewPCG(seed, 0x62_72_69_64_67_65)), Tunneling: rand.New(rand.NewPCG(seed, 0x74_75_6e_6e_65_6c))}
	for i := range c.MTU {
		c.MTU[i] = 1500
	}
	for _, f := range Features {
		f.Generate(rng, c)
	}
	out := &Case{Name: fmt.Sprintf("seed-%d", seed), Seed: seed, Hook: hook, Late: chance(rng, 20)}
	switch seed % 6 {
	case 0, 3:
		out.Tier = string(datapath.Generic)
	case 1:
		out.Tier = string(datapath.Both)
	}
	gen := &packetGen{rng: rng, c: c, hook: hook}
	first := packets / 5
	out.Steps = []Step{
		{Commands: c.Commands, Packets: gen.packets(first)},
		{Packets: gen.packets(packets - first - packets/5)},
		{Commands: c.change(rng), Packets: gen.packets(packets / 5)},
	}
	if c.filtered() {
		out.Steps = append(out.Steps[:2], c.filterSteps(out.Steps[2])...)
	}
	c.excuseOverlays()
	c.spreadExcuses()
	out.Slow = c.Slow
	return out
}

// filterSteps spreads the packets of a step over changes of the packet filters, each of which has to hold from the next packet on.
func (c *Config) filterSteps(last Step) []Step {
	var out []Step
	for chunk := range slices.Chunk(last.Packets, max(1, len(last.Packets)/4)) {
		out = append(out, Step{Commands: c.changeFilters(), Immediate: true, Packets: chunk})
	}
	out[0].Commands, out[0].Immediate = append(last.Commands, out[0].Commands...), false
	return out
}

// change is one more command or two under traffic. The excuses of a configuration cover it, since
// it only repeats what the features do.
func (c *Config) change(rng *rand.Rand) []string {
	before := len(c.Commands)
	f := pick(rng, []func(*rand.Rand, *Config){genRoutes, genRules, genChanges})
	f(rng, c)
	restack(c)
	c.changeBridge()
	return c.Commands[before:]
}
