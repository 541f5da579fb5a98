// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
)

const (
	liveMap  = ".data.live"
	statsMap = "stats"
	rodata   = ".rodata"
	rulesMap = ".data.rules"
	countMap = "rule_counts"
)

// linearXDP stands for the XDP program without frames in several buffers, for drivers that refuse those. What a stub's slot takes must be of
// the stub's own sort (owner check of the PROG_ARRAY).
const linearXDP graph.Hook = "xdp-linear"

// The programs of the generic tier.
const (
	genericXDP       graph.Hook = "xdp-generic"
	genericLinearXDP graph.Hook = "xdp-linear-generic"
	genericTC        graph.Hook = "tc-generic"
)

// objects are the compiled programs as specifications, and the maps that all programs of the namespace share.
type objects struct {
	programs             map[graph.Hook]*ebpf.ProgramSpec // see tied
	stubs                *ebpf.CollectionSpec
	rodata               *ebpf.MapSpec
	stats                *ebpf.MapSpec
	ruleData, ruleCounts *ebpf.MapSpec        // made as large as rules need, see ruleStore
	maps                 map[string]*ebpf.Map // shared, by the name that programs refer to
	live                 *ebpf.Memory         // struct shunt_live
	guard                *ebpf.Program
	unbound              *ebpf.ProgramSpec // guard, not yet tied to a kernel
	rebound              bool
	met                  map[string]bool // modules of connections that were there when the programs were tied to the kernel
	bridges              bpfobj.Bridges  // how bridges are read, where they can be
	triedBridges         bool            // whether they can was tried with the module in place,
	triedVeth            bool            // and with that of veths
	noCast               bool            // Options.NoCast
	beat                 *ebpf.Program
	findsSets            *ebpf.ProgramSpec
	sets                 *ebpf.Program // finds the namespace's ipsets; nil until there are some
	lines4               uint32        // size of the memory of IPv4 lookups, see remember.go
	pass                 *ebpf.Program // at TC, passes everything to Linux
	passID               ebpf.ProgramID
	nobody               *ebpf.Map // counters of packets that the generic programs find no port for
	log                  *slog.Logger

	mu     sync.Mutex
	folded map[foldKey]asm.Instructions // specialised programs, for when a configuration comes back
	large  map[foldKey]bool             // what the verifier does not take, see lesser
}

type foldKey struct {
	hook   graph.Hook
	config bpfobj.Config
}

// maxFolded bounds the memory of the above: a program takes about 120 KiB.
const maxFolded = 64

func loadObjects(log *slog.Logger, kernel []*btf.Spec, found string) (*objects, error) {
	o := &objects{log: log, lines4: minLines4, maps: map[string]*ebpf.Map{}, met: map[string]bool{}, triedBridges: moduleLive(bridgeModule), triedVeth: moduleLive(vethModule)}
	o.newcomers()
	if err := o.fill(kernel, found); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// fill reads the objects, makes the maps that programs share, and loads the programs that the daemon runs for itself. What there is after an error is for close.
func (o *objects) fill(kernel []*btf.Spec, found string) error {
	all, err := o.tie(kernel, found)
	if err != nil {
		return err
	}
	if o.stubs, err = bpfobj.LoadStub(); err != nil {
		return fmt.Errorf("reading the stub object: %w", err)
	}
	guard, err := bpfobj.LoadGuard()
	if err != nil {
		return fmt.Errorf("reading the guard object: %w", err)
	}
	if err := o.makeMaps(all); err != nil {
		return err
	}
	o.unbound, o.findsSets = guard.Programs["shunt_guard"], guard.Programs["shunt_find_sets"]
	if o.guard, err = o.bind(o.unbound, kernel); err != nil {
		return err
	}
	if o.beat, err = o.bind(guard.Programs["shunt_beat"], kernel); err != nil {
		return err
	}
	if o.pass, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "shunt_pass", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}}); err != nil { // TCX_NEXT
		return fmt.Errorf("loading the program that passes everything: %w", err)
	}
	if info, err := o.pass.Info(); err == nil {
		o.passID, _ = info.ID()
	}
	return nil
}

// makeMaps makes the maps of the objects, of which the first is XDP's, but for those that each port, or each size of rules, has of its own.
func (o *objects) makeMaps(all []map[string]*ebpf.MapSpec) error {
	xdp := all[0]
	o.rodata, o.stats, o.ruleData, o.ruleCounts = xdp[rodata], xdp[statsMap], xdp[rulesMap], xdp[countMap]
	cpus, err := possibleCPUs()
	if err != nil {
		return err
	}
	for _, maps := range all {
		for name, spec := range maps {
			if name == rodata || name == statsMap || name == rulesMap || name == countMap || o.maps[name] != nil {
				continue
			}
			m := spec.Copy()
			if name == liveMap {
				m.Flags |= unix.BPF_F_MMAPABLE
			}
			if perCPU := map[string]uint32{destsMap: minLines4, hopsMap: hopSlots}[name]; perCPU > 0 {
				m.MaxEntries = perCPU * uint32(cpus)
			}
			if o.maps[name], err = ebpf.NewMap(m); err != nil {
				return fmt.Errorf("creating map %s: %w", name, err)
			}
		}
	}
	if o.nobody, err = o.newStats(); err != nil {
		return err
	}
	if o.live, err = o.maps[liveMap].Memory(); err != nil {
		return fmt.Errorf("mapping %s: %w", liveMap, err)
	}
	return nil
}

// tied are the programs, tied to the kernel, and the maps that they refer to. All namespaces share them, and nobody changes them: instructions alone take five megabytes, and making them takes more than
// half of the CPU time in which a namespace's data path is opened.
type tied struct {
	modules  string // whose types were there
	programs map[graph.Hook]*ebpf.ProgramSpec
	maps     []map[string]*ebpf.MapSpec // by object, that of XDP first
}

var lastTied struct {
	sync.Mutex
	*tied
}

// tie has the programs tied to the kernel, and gives the maps that they refer to.
func (o *objects) tie(kernel []*btf.Spec, modules string) (maps []map[string]*ebpf.MapSpec, err error) {
	lastTied.Lock()
	defer lastTied.Unlock()
	if lastTied.tied == nil || lastTied.modules != modules {
		now, err := newTied(kernel, modules)
		if err != nil {
			return nil, err
		}
		lastTied.tied = now
	}
	o.programs, o.folded, o.large = lastTied.programs, map[foldKey]asm.Instructions{}, map[foldKey]bool{}
	return lastTied.maps, nil
}

// newTied reads the programs and ties them to the kernel.
func newTied(kernel []*btf.Spec, modules string) (*tied, error) {
	t := &tied{modules: modules, programs: map[graph.Hook]*ebpf.ProgramSpec{}}
	for _, object := range []struct {
		hook graph.Hook
		name string
		read func() (*ebpf.CollectionSpec, error)
	}{
		{graph.XDP, "shunt_xdp", bpfobj.LoadXDP}, {graph.TC, "shunt_tc", bpfobj.LoadTC},
		{genericXDP, "shunt_xdp", bpfobj.LoadXDPGeneric}, {genericTC, "shunt_tc", bpfobj.LoadTCGeneric},
	} {
		spec, err := object.read()
		if err != nil {
			return nil, fmt.Errorf("reading the %s object: %w", object.hook, err)
		}
		prog := spec.Programs[object.name]
		if prog.Instructions, err = resolve(prog.Instructions, kernel); err != nil {
			return nil, err
		}
		t.programs[object.hook] = prog
		t.maps = append(t.maps, spec.Maps)
	}
	for linear, frags := range map[graph.Hook]graph.Hook{linearXDP: graph.XDP, genericLinearXDP: genericXDP} {
		spec := *t.programs[frags] // of the same instructions
		spec.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
		t.programs[linear] = &spec
	}
	return t, nil
}

// bind loads one of the programs that the daemon runs for itself.
func (o *objects) bind(spec *ebpf.ProgramSpec, kernel []*btf.Spec) (_ *ebpf.Program, err error) {
	p := spec.Copy()
	if p.Instructions, err = resolve(p.Instructions, kernel); err != nil {
		return nil, err
	}
	if err := associate(p, map[string]*ebpf.Map{liveMap: o.maps[liveMap]}); err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgram(p)
	if err != nil {
		return nil, fmt.Errorf("loading program %s: %w", spec.Name, err)
	}
	return prog, nil
}

// setFinder loads the program that finds ipsets with the first question: verifying its loops takes longer than that of all other programs of the daemon's own.
func (o *objects) setFinder() (*ebpf.Program, error) {
	if o.sets != nil {
		return o.sets, nil
	}
	kernel, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	o.sets, err = o.bind(o.findsSets, kernel)
	return o.sets, err
}

// rebind ties the guard program to the kernel once more when legacy tables have come since, with the module that knows their layout. It says
// whether it did.
func (o *objects) rebind() bool {
	if o.rebound || unix.Access("/sys/kernel/btf/"+legacyModule, unix.R_OK) != nil {
		return false
	}
	o.rebound = true
	kernel, err := kernelTypes()
	if err == nil {
		var guard *ebpf.Program
		if guard, err = o.bind(o.unbound, kernel); err == nil {
			o.guard.Close()
			o.guard = guard
			return true
		}
	}
	o.log.Warn("rules in legacy tables are noticed by events alone", "err", err)
	return false
}

// moduleLive says whether something is there as a module, and ready.
func moduleLive(name string) bool {
	state, err := os.ReadFile("/sys/module/" + name + "/initstate")
	return err == nil && strings.TrimSpace(string(state)) == "live"
}

// newcomers says whether a module of connections is there that was not when this was asked last.
func (o *objects) newcomers() (found bool) {
	for _, name := range []string{conntrackModule, natModule, flowtableModule} {
		if !o.met[name] && moduleLive(name) {
			o.met[name], found = true, true
		}
	}
	return found
}

// meetConntrack looks anew at the lookup of connections, and their translation, where a module has come since the programs were tied to the kernel:
// their types and the functions that find them are its own. A kernel that has them built in had them then.
func (d *Datapath) meetConntrack() {
	if d.features.lacksConntrack == nil && d.features.NAT && d.features.Flowtable || !d.objects.newcomers() {
		return
	}
	kernel, found, err := typesOf(moduleTypes)
	if err == nil {
		d.behind.end() // nobody else uses the programs
		_, err = d.objects.tie(kernel, found)
	}
	if err != nil {
		d.log.Warn("packets of tracked connections go to Linux", "err", err)
		return
	}
	d.features.knowConntrack(kernel)
}

// associate binds the map loads of a program to maps.
func associate(spec *ebpf.ProgramSpec, maps map[string]*ebpf.Map) error {
	for i := range spec.Instructions {
		ins := &spec.Instructions[i]
		if !ins.IsLoadFromMap() || ins.Map() != nil {
			continue
		}
		m := maps[ins.Reference()]
		if m == nil {
			return fmt.Errorf("program %s refers to map %q, which nobody made", spec.Name, ins.Reference())
		}
		if err := ins.AssociateMap(m); err != nil {
			return fmt.Errorf("binding map %s in program %s: %w", ins.Reference(), spec.Name, err)
		}
	}
	return nil
}

func (o *objects) newStats() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(o.stats)
	if err != nil {
		return nil, fmt.Errorf("creating counters: %w", err)
	}
	return m, nil
}

func (o *objects) close() {
	for _, m := range o.maps { // those of rules too
		m.Close()
	}
	for _, p := range []*ebpf.Program{o.guard, o.beat, o.sets, o.pass} {
		if p != nil {
			p.Close()
		}
	}
	if o.nobody != nil {
		o.nobody.Close()
	}
}
