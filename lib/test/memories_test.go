// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A memory is one of the three that lists and trees can lie in.
type memory struct {
	name   string // what the test program's name ends with
	lacks  func() string
	refLen int // bytes of a reference; 0: nobody but the kernel sees it
}

var memories = []memory{
	{"", func() string { return "" }, 4},
	{"_arena", lacksArena, 8},
	{"_objects", lacksObjects, 0},
}

// onThisProcessor ends what a kernel of any age may lack.
const onThisProcessor = " on a processor without cmpxchg16b"

// skipLacking skips a test of a program for which a probe did not find what it needs. Where the kernel is one that has it, the probe or the
// kernel's configuration is wrong, and that fails.
func skipLacking(t *testing.T, program, lack string) {
	t.Helper()
	from, special := loadFrom[program]
	if !strings.HasSuffix(lack, onThisProcessor) && (!special || !olderThan(t, from[0], from[1])) {
		t.Fatalf("%s: the probe found no %s, which this kernel ought to have", program, lack)
	}
	t.Skipf("this kernel lacks %s; Linux %d.%d has it", lack, from[0], from[1])
}

// inMemories runs a test in each memory that the kernel has.
func inMemories(t *testing.T, name string, memories []memory, test func(t *testing.T, m *machine, in memory)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	for _, in := range memories {
		t.Run("memory"+in.name, func(t *testing.T) {
			if lack := in.lacks(); lack != "" {
				skipLacking(t, name+in.name, lack)
			}
			if in.name == "" {
				test(t, load(t, name, nil, name+"_alone"), in)
				return
			}
			m, err := loadWhole(t, name+in.name)
			if err != nil && in.refLen == 0 && strings.Contains(err.Error(), "is not allowed") { // for other kinds of programs only
				skipLacking(t, name+in.name, "kernel objects in XDP programs: "+err.Error())
			}
			if err != nil {
				t.Fatal(err)
			}
			test(t, m, in)
		})
	}
}

// lacksArena: from 7.x on the kernel's arenas want memory that may be had in any context, which there is only with cmpxchg16b. An emulated
// processor may be without.
func lacksArena() string {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Arena, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err == nil {
		err = m.Close()
	}
	cpu, _ := os.ReadFile("/proc/cpuinfo") // nothing there is an answer too
	switch {
	case errors.Is(err, unix.EINVAL):
		return "arenas"
	case errors.Is(err, unix.ENOMEM) && !bytes.Contains(cpu, []byte(" cx16")):
		return "arenas" + onThisProcessor
	}
	return "" // what else may be wrong, the test will say
}

// lacksKfunc names the first of these functions that the kernel does not have.
func lacksKfunc(names ...string) string {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return "type information: " + err.Error()
	}
	for _, name := range names {
		var f *btf.Func
		if err := kernel.TypeByName(name, &f); err != nil {
			return name + "()"
		}
	}
	return ""
}

func lacksObjects() string {
	return lacksKfunc("bpf_obj_new_impl", "bpf_list_push_front_impl", "bpf_rbtree_add_impl")
}

// arenaBase and arenaPages are ARENA_BASE and max_entries of bpf/arena.h.
const (
	arenaBase  = 1 << 44
	arenaPages = 64
)

// loadWhole is load for what cilium/ebpf (up to 0.22.0) does not load: it writes a move's offset as 0, and with it that the move is a cast
// between address spaces (arenas); and it gives each map and program type information of its own, in which the kernel does not
// recognize one's objects in another's lists. So maps and programs are made here, of one description of all types.
func loadWhole(t *testing.T, name string) (*machine, error) {
	t.Helper()
	return loadWholeFile(t, filepath.Join("testdata", name+".bpf.o"))
}

func loadWholeFile(t *testing.T, object string) (*machine, error) {
	t.Helper()
	w, err := loadTypes(t, object)
	if err != nil {
		return nil, err
	}
	m := newMachine(t, w.coll)
	if w.coll.Maps["arena"] == nil {
		return m, nil
	}
	addr, _, failed := unix.Syscall6(unix.SYS_MMAP, arenaBase, arenaPages*4096, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(w.coll.Maps["arena"].FD()), 0)
	if failed != 0 {
		return nil, fmt.Errorf("mapping the arena: %w", failed)
	}
	m.arena = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), arenaPages*4096)
	t.Cleanup(func() {
		if _, _, failed := unix.Syscall(unix.SYS_MUNMAP, addr, arenaPages*4096, 0); failed != 0 {
			t.Error(failed)
		}
	})
	for page := 0; page < len(m.arena); page += 4096 {
		m.arena[page] = 0 // the fault gives the arena its page
	}
	return m, nil
}

// loadTypes makes the maps and programs.
func loadTypes(t *testing.T, object string) (*whole, error) {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	w := whole{coll: &ebpf.Collection{Maps: map[string]*ebpf.Map{}, Programs: map[string]*ebpf.Program{}}}
	t.Cleanup(w.coll.Close)
	for _, m := range spec.Maps {
		for _, typ := range []btf.Type{m.Key, m.Value} {
			if typ == nil {
				continue
			}
			if _, err := w.types.Add(typ); err != nil {
				return nil, err
			}
		}
	}
	funcs := map[string][]byte{}
	for name, p := range spec.Programs {
		if err := w.relocate(p.Instructions); err != nil {
			return nil, err
		}
		if funcs[name], _, err = btf.MarshalExtInfos(p.Instructions, &w.types); err != nil {
			return nil, err
		}
	}
	handle, err := btf.NewHandle(&w.types)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	for name, m := range spec.Maps {
		if w.coll.Maps[name], err = w.newMap(m, handle); err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	for name, p := range spec.Programs {
		if w.coll.Programs[name], err = w.newProgram(p, handle, funcs[name]); err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	return &w, nil
}

// A whole is an object file on its way into the kernel.
type whole struct {
	coll  *ebpf.Collection
	types btf.Builder
	walks []walk
}

// relocate gives types their numbers here and kernel functions theirs in the kernel.
func (w *whole) relocate(insns asm.Instructions) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for it := insns.Iterate(); it.Next(); {
		if r := btf.CORERelocationMetadata(it.Ins); r != nil {
			relos, at = append(relos, r), append(at, it.Ins)
		}
		if !it.Ins.IsKfuncCall() {
			continue
		}
		var f *btf.Func
		if err := kernel.TypeByName(it.Ins.Reference(), &f); err != nil {
			return fmt.Errorf("%s(): %w", it.Ins.Reference(), err)
		}
		id, err := kernel.TypeID(f)
		if err != nil {
			return err
		}
		it.Ins.Constant = int64(id)
	}
	if len(relos) == 0 {
		return nil
	}
	fixups, err := btf.CORERelocate(relos, []*btf.Spec{kernel}, binary.LittleEndian, w.types.Add)
	if err != nil {
		return err
	}
	for i := range fixups {
		if err := fixups[i].Apply(at[i]); err != nil {
			return err
		}
	}
	return nil
}

// command is bpf(2).
func command[T any](number uintptr, attr *T) (int, error) {
	fd, _, failed := unix.Syscall(unix.SYS_BPF, number, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if failed != 0 {
		return -1, failed
	}
	return int(fd), nil
}

func (w *whole) newMap(spec *ebpf.MapSpec, types *btf.Handle) (*ebpf.Map, error) {
	attr := struct {
		mapType, keySize, valueSize, maxEntries, flags, innerFD, numaNode uint32
		name                                                              [16]byte
		ifindex, btfFD                                                    uint32
		keyType, valueType                                                btf.TypeID
		vmlinuxValueType                                                  uint32
		extra                                                             uint64
	}{
		mapType: uint32(spec.Type), keySize: spec.KeySize, valueSize: spec.ValueSize, maxEntries: spec.MaxEntries,
		flags: uint32(spec.Flags), extra: spec.MapExtra,
	}
	if spec.Value != nil {
		var err error
		if attr.keyType, err = w.types.Add(spec.Key); err != nil {
			return nil, err
		}
		if attr.valueType, err = w.types.Add(spec.Value); err != nil {
			return nil, err
		}
		attr.btfFD = uint32(types.FD())
	}
	fd, err := command(unix.BPF_MAP_CREATE, &attr)
	if err != nil {
		return nil, err
	}
	return ebpf.NewMapFromFD(fd)
}

func (w *whole) newProgram(spec *ebpf.ProgramSpec, types *btf.Handle, funcs []byte) (*ebpf.Program, error) {
	insns := spec.Instructions
	for it := insns.Iterate(); it.Next(); {
		if name := it.Ins.Reference(); it.Ins.IsLoadFromMap() && name != "" {
			if w.coll.Maps[name] == nil {
				return nil, fmt.Errorf("no map %s", name)
			}
			if err := it.Ins.AssociateMap(w.coll.Maps[name]); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	if err := insns.Marshal(&out, binary.LittleEndian); err != nil {
		return nil, err
	}
	code := out.Bytes()
	for it := insns.Iterate(); it.Next(); {
		if op := it.Ins.OpCode; op.Class() == asm.ALU64Class && op.ALUOp() == asm.Mov && it.Ins.Offset != 0 {
			binary.LittleEndian.PutUint16(code[it.Offset.Bytes()+2:], uint16(it.Ins.Offset))
		}
	}
	license, log := []byte(spec.License+"\x00"), make([]byte, 16<<20)
	attr := struct {
		progType, insnCnt                      uint32
		insns, license                         unsafe.Pointer
		logLevel, logSize                      uint32
		log                                    unsafe.Pointer
		kernVersion, progFlags                 uint32
		name                                   [16]byte
		ifindex, attachType, btfFD, funcRecLen uint32
		funcs                                  unsafe.Pointer
		funcCnt, _                             uint32
	}{
		progType: uint32(spec.Type), insnCnt: uint32(len(code) / asm.InstructionSize),
		insns: unsafe.Pointer(&code[0]), license: unsafe.Pointer(&license[0]),
		btfFD: uint32(types.FD()), funcRecLen: 8, funcs: unsafe.Pointer(&funcs[0]), funcCnt: uint32(len(funcs) / 8),
		log: unsafe.Pointer(&log[0]), logSize: uint32(len(log)), logLevel: uint32(ebpf.LogLevelStats),
	}
	fd, err := command(unix.BPF_PROG_LOAD, &attr)
	if err != nil {
		attr.logLevel = uint32(ebpf.LogLevelBranch)
		fd, err = command(unix.BPF_PROG_LOAD, &attr)
	}
	log = log[:max(0, bytes.IndexByte(log, 0))]
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, log[max(0, len(log)-2000):])
	}
	walked, err := newWalk(spec.Name, string(log))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	w.walks = append(w.walks, walked)
	return ebpf.NewProgramFromFD(fd)
}

// image is the memory that nodes lie in.
func (m *machine) image(name string) []byte {
	if m.arena != nil {
		return m.arena
	}
	return m.value(name)
}

// A pool is a supply of nodes as it lies in memory, read.
type pool struct {
	raw          []byte
	refLen       int
	size, stride int // of nodes
	at           int // where the pool begins
}

func (p pool) u32(at int) int    { return int(binary.NativeEndian.Uint32(p.raw[at:])) }
func (p pool) u64(at int) uint64 { return binary.NativeEndian.Uint64(p.raw[at:]) }

// ref is the number of the node that a reference refers to, 0 for none, -1 for a wrong one.
func (p pool) ref(at int) int {
	if p.refLen == 4 {
		if n := p.u32(at); n < p.size {
			return n
		}
		return -1
	}
	v := p.u64(at)
	if v == 0 {
		return 0
	}
	n := (int(v) - arenaBase - p.node(0)) / p.stride
	if n <= 0 || n >= p.size || int(v) != arenaBase+p.node(n) {
		return -1
	}
	return n
}

func (p pool) node(n int) int  { return p.at + 16 + n*p.stride }
func (p pool) where(n int) int { return int(binary.NativeEndian.Uint16(p.raw[p.node(n)+p.refLen:])) }
func (p pool) red(n int) bool  { return binary.NativeEndian.Uint16(p.raw[p.node(n)+p.refLen+2:]) != 0 }

// link is where in a node the members behind struct shunt_node begin.
func (p pool) link() int { return (p.refLen + 4 + p.refLen - 1) / p.refLen * p.refLen }

func (p pool) next(n int) int { return p.ref(p.node(n)) }

// check: each node that was ever used is either linked, and then in `linked`, or free and among the free ones once. Nobody holds one.
func (p pool) check(linked map[int]int) error {
	fresh, used := p.u32(p.at+p.refLen), p.u32(p.at+p.refLen+4)
	free := map[int]bool{}
	for n := p.ref(p.at); n != 0; n = p.next(n) {
		if n < 0 || free[n] || p.where(n) != 0 || linked[n] != 0 {
			return fmt.Errorf("free node %d: seen %v, where %d, linked %d", n, free[n], p.where(n), linked[n])
		}
		free[n] = true
	}
	for n, where := range linked {
		if p.where(n) != where {
			return fmt.Errorf("node %d says %d and is in %d", n, p.where(n), where)
		}
	}
	if used != len(linked) || fresh != len(linked)+len(free) {
		return fmt.Errorf("%d used and %d fresh, but %d linked and %d free", used, fresh, len(linked), len(free))
	}
	return nil
}
