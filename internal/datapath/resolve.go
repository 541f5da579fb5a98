// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/synth/specialise"
)

// resolve ties a program to the running kernel once, so that loading it again and again for new configurations needs no type
// information: CO-RE relocations and kernel function ids are written into the instructions, and line and function info are left out (they
// would be a BTF object of their own at each load). A kernel function that this kernel lacks keeps its call, which the verifier refuses
// unless the configuration folds it away.
func resolve(insns asm.Instructions, targets []*btf.Spec) (asm.Instructions, error) {
	if err := relocate(insns, targets); err != nil {
		return nil, err
	}
	out := make(asm.Instructions, 0, len(insns))
	for i, ins := range insns {
		plain := asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant}
		if ins.OpCode.IsDWordLoad() && ins.Dst == asm.RFP {
			// What stands for a number that this kernel does not have writes to a register that no program may write to. This is refused as well, unless it is folded away.
			plain = asm.LoadMapPtr(asm.R0, math.MaxInt32) // no such map
		}
		if ref := ins.Reference(); ref != "" && !ins.IsKfuncCall() {
			plain = plain.WithReference(ref)
		}
		if sym := ins.Symbol(); sym != "" {
			plain = plain.WithSymbol(sym)
			plain = btf.WithFuncMetadata(plain, function(sym, ins, i == 0))
		}
		if ins.IsKfuncCall() {
			var fn *btf.Func
			if err := targets[0].TypeByName(ins.Reference(), &fn); err == nil {
				id, err := targets[0].TypeID(fn)
				if err != nil {
					return nil, fmt.Errorf("finding kernel function %s: %w", ins.Reference(), err)
				}
				plain.Constant = int64(id)
			} else if slices.ContainsFunc(targets[1:], func(s *btf.Spec) bool { return s.TypeByName(ins.Reference(), &fn) == nil }) {
				// Calls into a module name it by a descriptor, which the library opens at each load.
				plain.Metadata = ins.Metadata
				plain = plain.WithSource(nil)
			}
			if proto, ok := prototype(fn); ok {
				plain = specialise.WithArguments(plain, len(proto.Params))
			}
		}
		out = append(out, plain)
	}
	return out, nil
}

// prototype is that of a kernel function, if it is known.
func prototype(fn *btf.Func) (*btf.FuncProto, bool) {
	if fn == nil {
		return nil, false
	}
	return btf.As[*btf.FuncProto](fn.Type)
}

// function is the least that the kernel asks to know of a function of a program that calls others back: which functions are global, so that it
// reads them once and by themselves, and how large the structures are that they are given.
func function(name string, ins asm.Instruction, entry bool) *btf.Func {
	number := &btf.Int{Name: "u64", Size: 8}
	proto := &btf.FuncProto{Return: number}
	out := &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc}
	f := btf.FuncMetadata(&ins)
	if f == nil {
		return out
	}
	from, ok := btf.As[*btf.FuncProto](f.Type)
	if !ok {
		return out
	}
	if !entry {
		out.Linkage = f.Linkage
	}
	for _, param := range from.Params {
		var t btf.Type = number
		if to, ok := btf.As[*btf.Pointer](param.Type); ok && out.Linkage == btf.GlobalFunc {
			if size, err := btf.Sizeof(to.Target); err == nil {
				name := "memory"
				if s, ok := btf.As[*btf.Struct](to.Target); ok && contexts[s.Name] {
					name = s.Name
				}
				t = &btf.Pointer{Target: &btf.Struct{Name: name, Size: uint32(size)}}
			}
		}
		proto.Params = append(proto.Params, btf.FuncParam{Name: "a", Type: t})
	}
	return out
}

// contexts are what programs are called with, which the verifier knows by the name.
var contexts = map[string]bool{"xdp_md": true, "__sk_buff": true}

// untyped takes the functions' types away where the kernel does not ask for them: no function is called back.
func untyped(insns asm.Instructions) {
	for i := range insns {
		if insns[i].IsFunctionReference() && insns[i].OpCode.JumpOp() != asm.Call {
			return
		}
	}
	for i := range insns {
		if ins := &insns[i]; btf.FuncMetadata(ins) != nil {
			sym, ref := ins.Symbol(), ins.Reference()
			*ins = asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant}.WithSymbol(sym)
			if ref != "" {
				*ins = ins.WithReference(ref)
			}
		}
	}
}

// relocate applies the CO-RE relocations.
func relocate(insns asm.Instructions, targets []*btf.Spec) error {
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range insns {
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			relos, at = append(relos, r), append(at, &insns[i])
		}
	}
	// Little endian is the order that the objects are built for.
	fixups, err := btf.CORERelocate(relos, targets, binary.LittleEndian, func(btf.Type) (btf.TypeID, error) {
		return 0, errors.New("the data path must not need its own type ids")
	})
	if err != nil {
		return fmt.Errorf("relocating to this kernel: %w", err)
	}
	for i, f := range fixups {
		if err := f.Apply(at[i]); err != nil {
			return fmt.Errorf("relocating %s: %w", relos[i], err)
		}
	}
	return nil
}

// moduleTypes are the modules whose types programs read, where a kernel has them as modules and they are loaded.
var moduleTypes = []string{vethModule, legacyModule, conntrackModule, natModule, flowtableModule, bridgeModule}

// legacyModule has the tables of legacy iptables. It is loaded with the first of them, long after shunt's start perhaps.
const legacyModule = "x_tables"

// conntrackModule has the connections, and the functions that find them.
const conntrackModule = "nf_conntrack"

// natModule has what a connection's entry notes of its translation. It comes with the first chain that translates.
const natModule = "nf_nat"

// flowtableModule has flow tables, and the function that finds their entries. It comes with the first of them.
const flowtableModule = "nf_flow_table"

// vethModule has the pairs of veths, whose other ends programs look at.
const vethModule = "veth"

// bridgeModule has bridges, and the types of their tables.
const bridgeModule = "bridge"

// kernelTypes loads the type information that programs are tied to.
func kernelTypes() ([]*btf.Spec, error) {
	types, _, err := typesOf(moduleTypes)
	return types, err
}

// typesOf loads the kernel's own type information, and that of those modules which are there. found says which ones these are.
func typesOf(modules []string) (out []*btf.Spec, found string, err error) {
	kernel, err := bpfobj.KernelTypes()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kernel's type information (needs CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	out = []*btf.Spec{kernel}
	for _, name := range modules {
		if module, err := bpfobj.ModuleTypes(name, kernel); err == nil {
			out, found = append(out, module), found+" "+name
		}
	}
	return out, found, nil
}
