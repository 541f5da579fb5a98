// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Features is what the running kernel offers beyond Linux 6.1, found by trying, not by version. What only some configurations need is tried
// with the first of them, see [Datapath.Meet].
type Features struct {
	Peek        uint8 `json:"-"`            // how programs can watch kernel words, bpfobj.Peek*
	Ctx         uint8 `json:"-"`            // how programs see their device's namespace, bpfobj.Ctx*
	KernCtx     bool  `json:"kern_ctx"`     // bpf_cast_to_kern_ctx, 6.2
	VethSKB     bool  `json:"veth_skb"`     // struct veth_xdp_buff, 6.3
	SkipNeigh   bool  `json:"skip_neigh"`   // BPF_FIB_LOOKUP_SKIP_NEIGH, 6.3
	TCX         bool  `json:"tcx"`          // 6.6
	NFTSeq      bool  `json:"nft_sequence"` // the guard sees each change of nf_tables: struct net counts them (6.17, and late ones of earlier stable series, but not of 6.1)
	FibMark     bool  `json:"fib_mark"`     // BPF_FIB_LOOKUP_MARK, 6.10
	XDPFeatures bool  `json:"xdp_features"` // netdev genetlink tells what drivers can do, 6.3
	Conntrack   bool  `json:"conntrack"`    // programs can look connections up, with nf_conntrack loaded
	Zones       bool  `json:"zones"`        // in any zone (6.11)
	NAT         bool  `json:"nat"`          // and know what is noted of their translation, with nf_nat loaded
	Flowtable   bool  `json:"flowtable"`    // and find the entries of flow tables, with nf_flow_table loaded (6.11, XDP)
	Sets        bool  `json:"ipset"`        // programs can ask ipsets live, wherever kernel memory can be read
	HZ          int   `json:"hz"`

	Bridge      bool   `json:"bridge"`                 // programs can read the tables of bridges
	BridgeVLANs bool   `json:"bridge_vlans"`           // and those of their VLANs
	NoBridge    string `json:"no_bridge,omitempty"`    // why they cannot
	NoConntrack string `json:"no_conntrack,omitempty"` // why they cannot

	tried           Needs
	lacksConntrack  error // what the kernel has not that lookups need
	bridges         bpfobj.Bridges
	lacksBridgeType error // why its type information does not tell where bridges keep their tables
}

// Needs are the parts of a network's configuration that programs may be able to read, or not.
type Needs struct {
	Conntrack, Sets, Bridges bool
}

const untried = "not tried: there is nothing here that needs it"

// jiffies rounds a duration up.
func (f Features) jiffies(d time.Duration) uint64 {
	return uint64((d*time.Duration(f.HZ) + time.Second - 1) / time.Second)
}

// probe finds out. Missing features are not errors.
func probe(o *objects, kernel []*btf.Spec) (f Features, err error) {
	f.KernCtx = hasFunc(kernel[0], "bpf_cast_to_kern_ctx")
	f.VethSKB = f.KernCtx && hasStruct(kernel, "veth_xdp_buff")
	var short [4]error
	f.SkipNeigh, short[0] = fibFlag(1 << 2)
	f.FibMark, short[1] = fibFlag(1 << 5)
	f.XDPFeatures = hasEnum(kernel[0], "netdev_xdp_act")
	f.TCX, short[2] = haveTCX()
	f.NFTSeq = hasMember(kernel[0], "netns_nftables", "base_seq")
	if f.HZ, err = hz(); err != nil {
		return f, err
	}
	f.Peek, short[3] = peekMode(o, !o.noCast && hasFunc(kernel[0], "bpf_rdonly_cast"))
	if err := errors.Join(short[:]...); err != nil { // or the guard would be off, say, for as long as shunt runs
		return f, fmt.Errorf("finding out what the kernel offers: %w", err)
	}
	switch {
	case f.KernCtx:
		f.Ctx = bpfobj.CtxCast
	case f.Peek == bpfobj.PeekProbe:
		if err := load(o, bpfobj.Config{Peek: f.Peek, KernCtx: bpfobj.CtxProbe}); err == nil {
			f.Ctx = bpfobj.CtxProbe
		} else if shortage(err) != nil {
			return f, fmt.Errorf("finding out what the kernel offers: %w", err)
		}
	}
	f.knowConntrack(kernel)
	f.knowBridges(kernel)
	return f, nil
}

// shortage is the error of a probe that failed for want of something that may be there a moment later: it says nothing of the kernel. It is nil of any other.
func shortage(err error) error {
	if slices.ContainsFunc([]error{unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN}, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	return nil
}

// meet tries what is needed for the first time. What could not be tried is to be tried again: short.
func (f *Features) meet(o *objects, n Needs) (short bool) {
	try := func(tried *bool, err error) error {
		*tried = shortage(err) == nil
		short = short || !*tried
		return err
	}
	if n.Conntrack && !f.tried.Conntrack {
		err := try(&f.tried.Conntrack, looksUpConnections(o, *f))
		if f.Conntrack, f.NoConntrack = err == nil, ""; err != nil {
			f.NoConntrack = err.Error()
		}
	}
	if n.Sets && !f.tried.Sets {
		f.Sets = try(&f.tried.Sets, asksSets(o, *f)) == nil
	}
	if n.Bridges && !f.tried.Bridges {
		err := try(&f.tried.Bridges, f.meetBridges(o))
		if f.Bridge, f.NoBridge = err == nil, ""; err != nil {
			f.NoBridge = err.Error()
		}
	}
	return short
}

// meetAgain is when what could not be tried is tried again: that costs the work behind the loop.
const meetAgain = time.Minute

// Meet makes sure that Features tells what the kernel offers for these parts of a configuration. The first time that one is needed programs
// are loaded to find out, which takes some 50 ms.
func (d *Datapath) Meet(n Needs) {
	tried := d.features.tried
	if (n.Conntrack && !tried.Conntrack || n.Sets && !tried.Sets || n.Bridges && !tried.Bridges) && time.Since(d.short) > meetAgain {
		d.behind.end() // nobody else uses the programs
		if d.features.meet(d.objects, n) {
			d.short = time.Now()
		}
	}
}

// Probe finds out without leaving anything behind.
func Probe() (f Features, err error) {
	err = probing(func(o *objects, found Features) error {
		f = found
		f.meet(o, Needs{Conntrack: true, Sets: true, Bridges: true})
		return nil
	})
	return f, err
}

// probing calls use with objects of its own and what the kernel offers, and leaves nothing behind.
func probing(use func(o *objects, f Features) error) error {
	kernel, modules, err := typesOf(moduleTypes)
	if err != nil {
		return err
	}
	objects, err := loadObjects(slog.New(slog.DiscardHandler), kernel, modules)
	if err != nil {
		return err
	}
	defer objects.close()
	f, err := probe(objects, kernel)
	if err != nil {
		return err
	}
	return use(objects, f)
}

// ProbeGeneric tries the programs of the generic tier, without leaving anything behind.
func ProbeGeneric() error {
	return probing(func(o *objects, f Features) error {
		g, err := newGeneric(o, f)
		if err != nil {
			return err
		}
		defer g.close()
		for _, variant := range []graph.Hook{graph.XDP, graph.TC} {
			prog, err := g.load(variant, g.fixed)
			if err != nil {
				return err
			}
			prog.Close()
		}
		return nil
	})
}

// Guard says how programs notice changes by themselves.
func (f Features) Guard() string {
	switch f.Peek {
	case bpfobj.PeekCast:
		return "live, by bpf_rdonly_cast"
	case bpfobj.PeekProbe:
		return "live, by bpf_probe_read_kernel"
	}
	return "off"
}

// Kernel is what the graph's decisions depend on.
func (f Features) Kernel() graph.Kernel {
	return graph.Kernel{XDPFeatures: f.XDPFeatures, VethSKBCheck: f.VethSKB, TC: true, BondXDP: true, FibMark: f.FibMark, Conntrack: f.Conntrack, NoConntrack: f.NoConntrack, Zones: f.Zones, NAT: f.NAT, Flowtable: f.Flowtable, Sets: f.Sets, Rules: true, Bridge: f.Bridge, NoBridge: f.NoBridge, BridgeVLANs: f.BridgeVLANs}
}

func hasFunc(spec *btf.Spec, name string) bool {
	var fn *btf.Func
	return spec.TypeByName(name, &fn) == nil
}

func hasMember(spec *btf.Spec, name, member string) bool {
	var t *btf.Struct
	return spec.TypeByName(name, &t) == nil && slices.ContainsFunc(t.Members, func(m btf.Member) bool { return m.Name == member })
}

func hasEnum(spec *btf.Spec, name string) bool {
	var t *btf.Enum
	return spec.TypeByName(name, &t) == nil
}

func hasStruct(specs []*btf.Spec, name string) bool {
	return slices.ContainsFunc(specs, func(s *btf.Spec) bool {
		var t *btf.Struct
		return s.TypeByName(name, &t) == nil
	})
}

// fibFlag asks the route lookup for a flag on the loopback device; kernels that do not know a flag answer EINVAL.
func fibFlag(flag int32) (known bool, short error) {
	const size = 64 // struct bpf_fib_lookup
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R0, 0)}
	for off := int16(-size); off < 0; off += 8 {
		insns = append(insns, asm.StoreMem(asm.RFP, off, asm.R0, asm.DWord))
	}
	insns = append(insns,
		asm.StoreImm(asm.RFP, -size, 2, asm.Byte), // AF_INET
		asm.StoreImm(asm.RFP, -size+8, 1, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -size),
		asm.Mov.Imm(asm.R3, size), asm.Mov.Imm(asm.R4, flag), asm.FnFibLookup.Call(), asm.Return(),
	)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: insns, License: "GPL"})
	if err != nil {
		return false, shortage(err)
	}
	defer prog.Close()
	const einval = ^uint32(22) + 1
	ret, _, err := prog.Test(make([]byte, 64))
	return err == nil && ret != einval, shortage(err)
}

func haveTCX() (have bool, short error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", AttachType: ebpf.AttachTCXIngress,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err == nil {
		prog.Close()
		err = tcxQuery()
	}
	return err == nil, shortage(err)
}

// peekMode tries the real program with each way of watching, best first.
func peekMode(o *objects, cast bool) (mode uint8, short error) {
	for _, mode := range []uint8{bpfobj.PeekCast, bpfobj.PeekProbe} {
		if mode == bpfobj.PeekCast && !cast {
			continue
		}
		c := bpfobj.Config{Peek: mode, Guards: 1}
		c.Guard[0].Width = 8
		err := load(o, c)
		if short := shortage(err); err == nil || short != nil {
			return mode, short
		}
	}
	return bpfobj.PeekNone, nil
}

// conntrackFunctions find a connection, let it go, and set when it ends.
var conntrackFunctions = []string{"bpf_xdp_ct_lookup", "bpf_skb_ct_lookup", "bpf_ct_release", "bpf_ct_change_timeout"}

// missesConntrack says which of the functions for connections the kernel lacks.
func missesConntrack(kernel []*btf.Spec) error {
	for _, name := range conntrackFunctions {
		if !slices.ContainsFunc(kernel, func(s *btf.Spec) bool { return hasFunc(s, name) }) {
			return fmt.Errorf("no kernel function %s (module %s)", name, conntrackModule)
		}
	}
	return nil
}

// looksUpConnections says what is against programs that find connections and what their life depends on.
func looksUpConnections(o *objects, f Features) error {
	if f.Peek == bpfobj.PeekNone {
		return errors.New("kernel memory cannot be read")
	}
	if f.lacksConntrack != nil {
		return f.lacksConntrack
	}
	return load(o, bpfobj.Config{Peek: f.Peek, KernCtx: f.Ctx, Track: f.look(), Track4: 1, Track6: 1, Hz: uint32(f.HZ)})
}

// look is how programs find connections. A note is followed only where memory that may be somebody else's by now can be read, and where reads are done in their order: of what was
// read the last shows that the first was still the connection's (bpf/node/conntrack.h).
func (f Features) look() uint8 {
	if f.Peek == bpfobj.PeekCast && f.Ctx != bpfobj.CtxNone && runtime.GOARCH == "amd64" {
		return bpfobj.LookNoted
	}
	return bpfobj.LookUp
}

// takesZones says whether the lookup of connections takes a zone, by a structure that is laid out as programs have it (struct bpf_ct_opts___shunt).
func takesZones(kernel []*btf.Spec) bool {
	return slices.ContainsFunc(kernel, func(s *btf.Spec) bool {
		var t *btf.Struct
		if s.TypeByName("bpf_ct_opts", &t) != nil || t.Size != 16 {
			return false
		}
		at := map[string]btf.Bits{}
		for _, m := range t.Members {
			at[m.Name] = m.Offset
		}
		return at["l4proto"] == 8*8 && at["ct_zone_id"] == 10*8 && at["ct_zone_dir"] == 12*8
	})
}

// knowConntrack reads what the kernel tells of it.
func (f *Features) knowConntrack(kernel []*btf.Spec) {
	f.tried.Conntrack, f.Conntrack, f.NoConntrack = false, false, untried
	f.lacksConntrack = missesConntrack(kernel)
	f.Zones = takesZones(kernel)
	f.NAT = hasStruct(kernel, "nf_conn_nat")
	f.Flowtable = slices.ContainsFunc(kernel, func(s *btf.Spec) bool {
		entries, err := s.AnyTypesByName("flow_offload_tuple_rhash") // a module may have it twice, as long as they are the same
		return err == nil && len(entries) > 0 && hasFunc(s, "bpf_xdp_flow_lookup")
	})
}

// asksSets says what is against programs that ask ipsets beside everything else that rules ask.
func asksSets(o *objects, f Features) error {
	if f.Peek == bpfobj.PeekNone {
		return errors.New("kernel memory cannot be read")
	}
	var s ruleStore
	for i := range s.shapes {
		s.shapes[i] = image.Shape{On: true, Dims: 1<<image.NumDims - 1, Asks: 1<<32 - 1, Sets: image.SetsDS | image.SetsMark | image.SetsTrack | image.SetsZone | image.SetsPriority, Tree: true}
	}
	before := maps.Clone(o.maps)
	if err := s.open(o, firstRuleSize, firstCounts); err != nil {
		return fmt.Errorf("%w: %w", unix.ENOMEM, err) // every kernel from 6.1 on makes such maps; the library takes it for one that does not
	}
	defer func() {
		s.data.Close()
		s.counts.Close()
		o.maps = before
	}()
	s.sets.at.Inst = 1
	c := bpfobj.Config{Peek: f.Peek, KernCtx: f.Ctx}
	s.configure(&c)
	return load(o, c)
}

// load tries both programs with a configuration.
func load(o *objects, c bpfobj.Config) error {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		stats, err := o.newStats()
		if err != nil {
			return err
		}
		defer stats.Close()
		prog, err := o.load(hook, c, stats)
		if err != nil {
			return err
		}
		prog.Close()
	}
	return nil
}

// Required checks for what shunt cannot do without, and says which kernel has it.
func Required() error {
	return lacks([]needed{
		{"bpf_fib_lookup in XDP programs (Linux 4.18)", features.HaveProgramHelper(ebpf.XDP, asm.FnFibLookup)},
		{"multi-buffer XDP (Linux 5.18)", features.HaveProgramHelper(ebpf.XDP, asm.FnXdpGetBuffLen)},
		{"bpf_redirect_neigh (Linux 5.10)", features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectNeigh)},
		{"BPF_PROG_TYPE_SYSCALL (Linux 5.14)", features.HaveProgramType(ebpf.Syscall)},
	})
}

// needed is something that data paths cannot do without, and what a probe of it said.
type needed struct {
	what string
	err  error
}

// lacks names the first thing that the kernel does not have. A probe that failed otherwise says nothing of the kernel.
func lacks(list []needed) error {
	for _, need := range list {
		if errors.Is(need.err, ebpf.ErrNotSupported) {
			return fmt.Errorf("this kernel lacks %s; shunt needs Linux 6.1 or newer", need.what)
		}
	}
	return nil
}
