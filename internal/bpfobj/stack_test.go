// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Linux 6.1 adds up the frames of all functions that can be on the stack at once, in steps of 32 bytes (check_max_stack_depth() in
// kernel/bpf/verifier.c, MAX_BPF_STACK in include/linux/filter.h).
const (
	stackLimit = 512
	stackStep  = 32
)

// function is what the stack of one takes, and whom it calls.
type function struct {
	frame int
	calls []string
}

// functionsOf reads them off a program's instructions, with all that its options may leave out.
func functionsOf(insns asm.Instructions) map[string]*function {
	out := map[string]*function{}
	var f *function
	var frameIn [16]bool // registers that point into the frame
	for i := range insns {
		in := &insns[i]
		if fn := btf.FuncMetadata(in); fn != nil {
			f, frameIn = &function{}, [16]bool{}
			out[fn.Name] = f
		}
		need := func(offset int64) { f.frame = max(f.frame, int(-offset)) }
		op := in.OpCode
		switch {
		case in.IsFunctionCall(), in.IsLoadOfFunctionPointer(): // called back, by bpf_loop()
			f.calls = append(f.calls, in.Reference())
		case op.Class().IsStore() && in.Dst == asm.RFP, op.Class().IsLoad() && in.Src == asm.RFP:
			need(int64(in.Offset))
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.Mov:
			frameIn[in.Dst] = op.Source() == asm.RegSource && in.Src == asm.RFP
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && frameIn[in.Dst]:
			need(in.Constant)
			frameIn[in.Dst] = false
		}
	}
	return out
}

// deepest is the longest chain of calls from a function on: its bytes and its names.
func deepest(all map[string]*function, name string) (bytes int, chain []string) {
	f := all[name]
	for _, callee := range f.calls {
		if b, c := deepest(all, callee); b > bytes {
			bytes, chain = b, c
		}
	}
	own := (max(f.frame, 1) + stackStep - 1) / stackStep * stackStep
	return bytes + own, append([]string{name}, chain...)
}

// TestStackFits: whatever is switched on, no chain of calls takes more stack than the oldest kernel has. A program that only some configuration makes
// would otherwise fail there alone.
func TestStackFits(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"xdp": LoadXDP, "tc": LoadTC, "xdp generic": LoadXDPGeneric, "tc generic": LoadTCGeneric, "stub": LoadStub, "guard": LoadGuard} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, prog := range spec.Programs {
			all := functionsOf(prog.Instructions)
			if len(all) == 0 {
				t.Fatalf("%s/%s: no functions found", name, prog.Name)
			}
			bytes, chain := deepest(all, prog.Name)
			if bytes > stackLimit {
				t.Errorf("%s/%s: %d bytes of stack: %s", name, prog.Name, bytes, strings.Join(chain, " > "))
			}
			t.Logf("%s/%s: %d bytes: %s", name, prog.Name, bytes, strings.Join(chain, " > "))
		}
	}
}
