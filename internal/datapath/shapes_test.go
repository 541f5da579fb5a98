// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"encoding/json"
	"errors"
	flags "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules/image"
)

var onlyShapes = flags.String("shapes", "", "load only shapes whose name this expression matches")

// shape is what this kernel's verifier made of one program.
type shape struct {
	Hook         graph.Hook `json:"hook"`
	Name         string     `json:"name"`
	Instructions int        `json:"instructions"` // as handed to the kernel
	Xlated       int        `json:"xlated"`       // bytes after the kernel's own rewriting
	Processed    int        `json:"processed"`    // instructions that the verifier walked, all paths together
	States       int        `json:"states"`
}

// A feature of the data path and how synth switches it on.
var shapeFeatures = []struct {
	name string
	on   func(*bpfobj.Config)
}{
	{"vlan-in", func(c *bpfobj.Config) { c.VlanIn = 1 }},
	{"vlan-out", func(c *bpfobj.Config) { c.VlanOut = 1 }},
	{"special4", func(c *bpfobj.Config) { c.Special4 = 1 }},
	{"special6", func(c *bpfobj.Config) { c.Special6 = 1 }},
	{"ports", func(c *bpfobj.Config) { c.Ports = 1 }},
	{"local4", func(c *bpfobj.Config) { c.In.Local4 = 1 }},
	{"rpf-strict", func(c *bpfobj.Config) { c.In.Rpf4 = bpfobj.RPFStrict }},
	{"rpf-loose", func(c *bpfobj.Config) { c.In.Rpf4 = bpfobj.RPFLoose }},
	{"rpf-source-vrf", func(c *bpfobj.Config) { c.In.Rpf4, c.In.RpfIn = bpfobj.RPFSource, 1 }},
	{"skb-born", func(c *bpfobj.Config) { c.SkbBorn = 1 }},
	{"neigh-use", func(c *bpfobj.Config) { c.NeighUse = 1 }},
	{"flows", func(c *bpfobj.Config) { c.Flows = 1 }},
	{"set-priority", func(c *bpfobj.Config) { c.SetPriority = 1 }},
	{"tunnel", func(c *bpfobj.Config) { c.Tunnel = 1 }},
	{"frags", func(c *bpfobj.Config) { c.Frags = 1 }},
	{"lower", func(c *bpfobj.Config) { c.Lower = 1 }},
	{"cache4", func(c *bpfobj.Config) { c.Cache4, c.Genid4, c.Lines4 = 1, kernelAddress, minLines4 }},
	{"guards", func(c *bpfobj.Config) { guardAll(c) }},
	{"cache6", func(c *bpfobj.Config) { c.Cache6, c.Genid6, c.Cache6Jiffies = 1, kernelAddress, 5 }},
}

// everyValue is all that conditions of rules can ask for, whatever the number of values.
const (
	everyValue       = ^uint32(0)
	markValue        = 5          // SHUNT_V_MARK
	rememberedValues = 0x6187c7e7 // VERDICT_VALUES in bpf/node/verdicts.h, and what is proved of addresses
)

// askRules lets the stages have rules that ask for values, by 1 << value, and, if for any, for every dimension.
func askRules(c *bpfobj.Config, asks uint32, stages ...int) {
	s := ruleStore{size: firstRuleSize, maps: 1}
	for i := range s.shapes {
		s.shapes[i].On = slices.Contains(stages, i) || c.Rules[i].Dims != 0
		s.shapes[i].Asks = asks
		if asks != 0 {
			s.shapes[i].Dims, s.shapes[i].Sets = 1<<image.NumDims-1, image.SetsDS|image.SetsMark|image.SetsTrack|image.SetsZone
		}
	}
	s.sets.at.Inst = 1
	if asks != 0 {
		s.verdicts = maxVerdicts
	}
	s.configure(c)
}

// guardAll watches as many words as a configuration has room for.
func guardAll(c *bpfobj.Config) {
	c.Guards, c.Guards4, c.Guards6 = uint8(len(c.Guard)), uint8(len(c.Guard4)), uint8(len(c.Guard6))
	for i := range c.Guard {
		c.Guard[i].Addr, c.Guard[i].Slot, c.Guard[i].Width = kernelAddress+uint64(i)*8, uint16(i), uint8(4+4*(i%2))
	}
	for i := range c.Guard4 {
		c.Guard4[i].Addr, c.Guard4[i].Slot, c.Guard4[i].Width = kernelAddress+uint64(i)*8, uint16(i), uint8(4+4*(i%2))
		c.Guard6[i] = c.Guard4[i]
	}
}

// track looks connections up, as resolve has it.
func track(c *bpfobj.Config) {
	c.Track, c.Track4, c.Track6, c.Hz = 1, 1, 1, 250
	c.Nat = bpfobj.NATIP4 | bpfobj.NATIP6
	c.CtEstablished, c.CtStream, c.CtChecksum = kernelAddress, kernelAddress+4, kernelAddress+8
}

// What rules can be, as far as programs differ by it: where there are any, and what they ask for. A policy alone asks for nothing.
var shapeRules = []struct {
	name   string
	asks   uint32
	stages []int
}{
	{"no rules", 0, nil},
	{"policies", 0, []int{0, 1, 2, 3, 4, 5}},
	{"rules by mark", 1 << markValue, []int{0, 1, 2, 3, 4, 5}},
	{"every rule before the route", everyValue, []int{0, 1, 3, 4}},
	{"every rule behind the route", everyValue, []int{2, 5}},
	{"every rule", everyValue, []int{0, 1, 2, 3, 4, 5}},
	{"every rule that is remembered", rememberedValues, []int{0, 1, 2, 3, 4, 5}},
}

const kernelAddress = 0xffff888000001000

// The named configurations of internal/graph's golden test, as synth freezes a port of them.
var shapeNamed = []struct {
	name string
	set  func(*bpfobj.Config)
}{
	{"plain-router", func(c *bpfobj.Config) { c.In.Local4 = 1 }},
	{"v6-only", func(c *bpfobj.Config) { c.In.Ip4 = uint8(reason.ForwardingOff) }},
	{"rp-filter-strict", func(c *bpfobj.Config) { c.In.Rpf4 = bpfobj.RPFStrict }},
	{"vlan", func(c *bpfobj.Config) { c.In.Local4, c.VlanIn, c.VlanOut = 1, 1, 1 }},
	{"vrf", func(c *bpfobj.Config) { c.In.Rpf4, c.In.RpfIn = bpfobj.RPFSource, 1 }},
	{"ecmp", func(c *bpfobj.Config) { c.In.Local4 = 1 }},
	{"route-mtu", func(c *bpfobj.Config) { c.In.Local4, c.Special4 = 1, 1 }},
	{"nft-forward-rules", func(c *bpfobj.Config) { c.In.Ip4 = uint8(reason.NetfilterIP4Forward) }},
	{"tcpdump", func(c *bpfobj.Config) { c.In.Ip4, c.In.Ip6 = uint8(reason.PacketSocket), uint8(reason.PacketSocket) }},
	{"veth-tc", func(c *bpfobj.Config) { c.In.Local4, c.SkbBorn = 1, 1 }},
}

var shapeFamilies = []struct {
	name string
	set  func(*bpfobj.Config)
}{
	{"both", func(*bpfobj.Config) {}},
	{"ip4", func(c *bpfobj.Config) { c.In.Ip6 = uint8(reason.ForwardingOff) }},
	{"ip6", func(c *bpfobj.Config) { c.In.Ip4 = uint8(reason.ForwardingOff) }},
}

// shapes lists the configurations: each family alone and both, each with no feature, every single one, all, and all but one.
func shapes(base bpfobj.Config, hook graph.Hook, visit func(string, bpfobj.Config)) {
	for _, family := range shapeFamilies {
		plain, all := base, base
		family.set(&plain)
		family.set(&all)
		for _, f := range shapeFeatures {
			f.on(&all)
		}
		visit(family.name, plain)
		visit(family.name+" everything", all)
		for i, f := range shapeFeatures {
			with, without := plain, base
			f.on(&with)
			visit(family.name+" "+f.name, with)
			family.set(&without)
			for j, other := range shapeFeatures {
				if i != j {
					other.on(&without)
				}
			}
			visit(family.name+" everything but "+f.name, without)
		}
	}
	for _, n := range shapeNamed {
		c := base
		n.set(&c)
		if c.NeighUse = flag(hook == graph.XDP); hook == graph.TC {
			c.SetPriority = 1
		}
		visit("named "+n.name, c)
	}
}

// gatewayShapes lists rules of every kind with and without connections, each alone and with every other feature, and all rules with every
// single one. A program that the verifier takes for both families it takes for one. A kernel with the functions for connections has to take them.
func gatewayShapes(base bpfobj.Config, conntrack bool, visit func(string, bpfobj.Config)) {
	all := base
	for _, f := range shapeFeatures {
		f.on(&all)
	}
	for _, rules := range shapeRules {
		for rest, c := range map[string]bpfobj.Config{"": base, " with everything": all} {
			if askRules(&c, rules.asks, rules.stages...); rules.stages != nil {
				visit(rules.name+rest, c)
			}
			if track(&c); conntrack {
				visit(rules.name+", connections"+rest, c)
			}
		}
	}
	for _, f := range shapeFeatures {
		c := base
		f.on(&c)
		askRules(&c, everyValue, 0, 1, 2, 3, 4, 5)
		visit("every rule with "+f.name+" alone", c)
	}
}

// bridgeShapes lists what ports of bridges are: frames between ports, frames to the bridge too, br_netfilter that looks at them, VLANs.
func bridgeShapes(base bpfobj.Config, at bpfobj.Bridges, visit func(string, bpfobj.Config)) {
	base.Bridges = at
	for _, called := range []uint8{0, bpfobj.CalledOption, bpfobj.CalledAll, bpfobj.CalledSlow} {
		for _, kind := range []uint8{bpfobj.BridgeFrames, bpfobj.BridgeHost} {
			c := base
			c.Bridge, c.Called4, c.Called6 = kind, called, called
			visit(fmt.Sprintf("bridge %d, called %d", kind, called), c)
			guardAll(&c)
			c.SkbBorn, c.BridgeVlans = 1, flag(at.PortVlans != 0)
			visit(fmt.Sprintf("bridge %d, called %d, with VLANs and everything", kind, called), c)
		}
	}
}

// vlanShapes lists ports of bridges that filter by VLAN, whose hosts are routed and to which routes lead, with rules of every kind and connections. Frames between
// ports are asked for none there.
func vlanShapes(base bpfobj.Config, hook graph.Hook, conntrack bool, visit func(string, bpfobj.Config)) {
	base.Bridges, base.Bridge, base.BridgeVlans, base.VlanIn = someBridges, bpfobj.BridgeHost, 1, flag(hook != graph.TC)
	if hook == graph.TC {
		base.Onto = bpfobj.OntoVLANs
	}
	all := base
	for _, f := range shapeFeatures {
		f.on(&all)
	}
	all.Marks, all.FibMark = 1, 1
	port := all
	port.Bridge, port.BridgeVlans = 0, 0
	for rest, c := range map[string]bpfobj.Config{"": base, " with everything": all, " with everything, no bridge's port": port} {
		visit("no rules"+rest, c)
		askRules(&c, everyValue, 0, 1, 2, 3, 4, 5)
		visit("every rule"+rest, c)
		if track(&c); conntrack {
			visit("every rule, connections"+rest, c)
		}
	}
}

// someBridges is a layout of the kernel's bridges: to programs offsets are numbers.
var someBridges = bpfobj.Bridges{Known: 1, VethPeer: 8, VethEnd: 8, DevXdpSkb: 72, DevFlags: 16, PortBridge: 24, BrTable: 32, DevNode: 40, PortVlans: 48, BrVlans: 56, Filtering: 2, Counting: 4, Call4: 8, Call6: 16}

// shownShapes lists ports of bridges where br_netfilter shows both families to rules of every kind, with and without connections, with chains of family bridge, and with
// routed packets beside them.
func shownShapes(base bpfobj.Config, conntrack bool, visit func(string, bpfobj.Config)) {
	base.Bridges, base.Bridge = someBridges, bpfobj.BridgeFrames
	base.Called4, base.Called6, base.Shown4, base.Shown6 = bpfobj.CalledAll, bpfobj.CalledOption, bpfobj.ShownIP, bpfobj.ShownIP
	all := base
	for _, f := range shapeFeatures {
		f.on(&all)
	}
	all.Bridge, all.Marks = bpfobj.BridgeHost, 1 // not Onto: synth.leadsOnto
	host := base
	host.Bridge = bpfobj.BridgeHost
	for rest, c := range map[string]bpfobj.Config{"": base, ", routed": host, " with everything": all} {
		c.Chains, c.Called4, c.Called6, c.Shown4, c.Shown6 = 1, 0, 0, bpfobj.ShownFrames, bpfobj.ShownFrames
		askRules(&c, everyValue, 7, 8, 10, 11)
		visit("chains"+rest, c)
		c.Called4, c.Called6, c.Shown4, c.Shown6 = bpfobj.CalledAll, bpfobj.CalledAll, bpfobj.ShownIP|bpfobj.ShownFrames, bpfobj.ShownIP|bpfobj.ShownFrames
		askRules(&c, everyValue, 0, 1, 2, 3, 4, 5, 7, 8, 10, 11)
		visit("chains and rules"+rest, c)
		if track(&c); conntrack {
			visit("chains, rules, connections"+rest, c)
		}
	}
	for _, rules := range shapeRules {
		if rules.stages != nil && rules.asks != everyValue && rules.asks != rememberedValues || len(rules.stages) == 4 {
			continue // much like the others
		}
		for rest, c := range map[string]bpfobj.Config{"": base, " with everything": all} {
			askRules(&c, rules.asks, rules.stages...)
			visit(rules.name+rest, c)
			if track(&c); conntrack {
				visit(rules.name+", connections"+rest, c)
			}
		}
	}
}

// genericShapes lists what generic programs are made for: what is the same for every port. They look no connections up (generic.offer).
func genericShapes(fixed bpfobj.Config, visit func(string, bpfobj.Config)) {
	for _, rules := range shapeRules {
		c := fixed
		askRules(&c, rules.asks, rules.stages...)
		visit(rules.name, c)
		c.Bridges = someBridges
		visit(rules.name+", bridges", c)
	}
}

// Every program that synth can ask for loads on this kernel, and fits into its stub's slot. With SHUNT_VM_OUT the figures are kept.
func TestEveryShapeLoads(t *testing.T) {
	o := objectsForTest(t)
	kernel, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	features, err := probe(o, kernel)
	if err != nil {
		t.Fatal(err)
	}
	features.meet(o, Needs{Bridges: true})
	generic, err := newGeneric(o, features)
	if err != nil {
		t.Fatal(err)
	}
	defer generic.close()
	generic.fixed.Lines4, generic.fixed.Bridges = minLines4, o.bridges
	base := typical()
	base.NeighUse, base.Peek, base.KernCtx, base.SkipNeigh = 0, features.Peek, features.Ctx, flag(features.SkipNeigh)
	only := regexp.MustCompile(*onlyShapes)
	var list []shape
	for hook, stub := range map[graph.Hook]string{graph.XDP: stubXDP, graph.TC: "shunt_stub_tc", linearXDP: stubXDPLinear} {
		slot := slotForTest(t, o, stub)
		run := func(kind string, of graph.Hook, each func(func(string, bpfobj.Config))) {
			t.Run(fmt.Sprintf("%s/%s", kind, hook), func(t *testing.T) {
				each(func(name string, c bpfobj.Config) {
					if !features.VethSKB {
						c.SkbBorn = 0
					}
					if !only.MatchString(name) {
						return
					}
					if hook == linearXDP && !strings.HasPrefix(name, "named") && name != "every rule" {
						return // the same instructions
					}
					list = append(list, loadShape(t, o, of, name, c, slot))
				})
			})
		}
		run("router", hook, func(visit func(string, bpfobj.Config)) { shapes(base, hook, visit) })
		run("gateway", hook, func(visit func(string, bpfobj.Config)) { gatewayShapes(base, missesConntrack(kernel) == nil, visit) })
		run("bridge", hook, func(visit func(string, bpfobj.Config)) { bridgeShapes(base, o.bridges, visit) })
		run("bridge by VLAN", hook, func(visit func(string, bpfobj.Config)) {
			vlanShapes(base, hook, missesConntrack(kernel) == nil, visit)
		})
		run("bridge shown", hook, func(visit func(string, bpfobj.Config)) {
			shownShapes(base, missesConntrack(kernel) == nil, visit)
		})
		run("generic", genericOf[hook], func(visit func(string, bpfobj.Config)) { genericShapes(generic.fixed, visit) })
	}
	if *onlyShapes == "" {
		featuresCost(t, list)
	}
	most := shape{}
	for _, s := range list {
		if s.Processed > most.Processed {
			most = s
		}
	}
	t.Logf("%d shapes; the most work for the verifier: %+v", len(list), most)
	if dir := os.Getenv("SHUNT_VM_OUT"); dir != "" {
		keepShapes(t, dir, list)
	}
}

// shapeHasCode says where a feature is code at all; elsewhere it is data, or the hook does without. A feature that is not listed has code everywhere.
var shapeHasCode = map[string]struct {
	hook   graph.Hook // "" for both
	family string     // "" for all
}{
	"vlan-in": {hook: graph.XDP}, "vlan-out": {hook: graph.XDP}, // at TC the kernel takes the tag out and puts it in
	"special4": {family: "ip4"}, "special6": {family: "ip6"}, "local4": {family: "ip4"},
	"rpf-strict": {family: "ip4"}, "rpf-loose": {family: "ip4"}, "rpf-source-vrf": {family: "ip4"},
	"skb-born": {hook: graph.XDP}, "neigh-use": {hook: graph.XDP}, "frags": {hook: graph.XDP},
	"set-priority": {hook: graph.TC, family: "ip4"}, "tunnel": {hook: graph.TC},
	"cache4": {family: "ip4"}, "cache6": {family: "ip6"},
}

// featuresCost: after verification, too, a feature that is not in use has no instruction in the program, and a named configuration's program is like another's
// only where nothing but data tells them apart.
func featuresCost(t *testing.T, list []shape) {
	t.Helper()
	size := map[string]int{}
	for _, s := range list {
		size[fmt.Sprintf("%s %s", s.Hook, s.Name)] = s.Xlated
	}
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		for _, family := range shapeFamilies {
			for _, f := range shapeFeatures {
				code := shapeHasCode[f.name]
				has := (code.hook == "" || code.hook == hook) && (code.family == "" || family.name == "both" || code.family == family.name)
				plain := fmt.Sprintf("%s %s", hook, family.name)
				with, without := size[plain+" "+f.name], size[plain]
				switch {
				case f.name == "lower": // shortens the program: a port that is only passed through
				case has && with <= without:
					t.Errorf("%s: %s makes a program of %d bytes one of %d", plain, f.name, without, with)
				case !has && with != without:
					t.Errorf("%s: %s is said to be no code there, and makes a program of %d bytes one of %d", plain, f.name, without, with)
				}
			}
		}
		alike := map[string]string{"ecmp": "plain-router", "nft-forward-rules": "v6-only"} // the kernel's lookup chooses; these rules nobody has read
		if hook == graph.TC {
			alike["veth-tc"] = "plain-router"
			alike["vlan"] = "plain-router" // the program sits on the VLAN's own device
		}
		seen := map[int]string{}
		for _, n := range shapeNamed {
			bytes := size[fmt.Sprintf("%s named %s", hook, n.name)]
			if other, same := seen[bytes]; same != (alike[n.name] != "") || same && other != alike[n.name] {
				t.Errorf("%s: the program of %s is like that of %q, want %q", hook, n.name, other, alike[n.name])
			}
			if alike[n.name] == "" {
				seen[bytes] = n.name
			}
		}
	}
}

func slotForTest(t *testing.T, o *objects, stub string) *ebpf.Map {
	t.Helper()
	spec := o.stubs.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{stub: spec.Programs[stub]}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("loading %s: %v", stub, err)
	}
	t.Cleanup(coll.Close)
	return coll.Maps["slot"]
}

func loadShape(t *testing.T, o *objects, hook graph.Hook, name string, c bpfobj.Config, slot *ebpf.Map) shape {
	t.Helper()
	s := shape{Hook: hook, Name: name}
	stats, err := o.newStats()
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	bound := maps.Clone(o.maps)
	bound[statsMap] = stats
	spec, err := o.specialised(hook, c, bound)
	if err == nil {
		err = associate(spec, bound)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", hook, name, err)
	}
	if m := bound[rodata]; m != nil {
		defer m.Close()
	}
	s.Instructions = len(spec.Instructions)
	prog, err := ebpf.NewProgramWithOptions(spec, ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats})
	if err != nil {
		if less, without := lesser(c); errors.Is(err, unix.E2BIG) && without != "" { // as objects.load does
			t.Logf("%s %s: too large: %s", hook, name, without)
			return loadShape(t, o, hook, name+", "+without, less, slot)
		}
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Logf("%+v", ve)
		}
		t.Errorf("%s %s: %v", hook, name, err)
		return s
	}
	defer prog.Close()
	if err := slot.Put(uint32(0), prog); err != nil {
		t.Errorf("%s %s does not fit into its slot: %v", hook, name, err)
	}
	if m := processed.FindStringSubmatch(prog.VerifierLog); m == nil {
		t.Errorf("%s %s: the verifier said %q", hook, name, prog.VerifierLog)
	} else {
		fmt.Sscan(m[1]+" "+m[2], &s.Processed, &s.States)
	}
	if info, err := prog.Info(); err == nil {
		if n, err := info.TranslatedSize(); err == nil {
			s.Xlated = n
		}
	}
	return s
}

var processed = regexp.MustCompile(`processed (\d+) insns .* total_states (\d+)`)

// keepShapes writes what test/vm brings back; bench/results has a copy for each kernel.
func keepShapes(t *testing.T, dir string, list []shape) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b shape) int {
		return cmp.Or(strings.Compare(string(a.Hook), string(b.Hook)), strings.Compare(a.Name, b.Name))
	})
	out, err := json.MarshalIndent(struct {
		Kernel string  `json:"kernel"`
		Shapes []shape `json:"shapes"`
	}{unix.ByteSliceToString(u.Release[:]), list}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "verifier.json"), append(out, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
