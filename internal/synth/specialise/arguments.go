// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// helperArguments has the number of arguments of helper i at position i, counted from bpf/third_party/libbpf/bpf_helper_defs.h (a test
// compares them). Helpers with "..." read all five registers.
const helperArguments = "" +
	"52423050055533002131442215435333231032322103231125" +
	"43442435224224325454444443414102425513224431111115" +
	"54333444215533332104451130531243222211111444342335" +
	"41421242020315453413231111341454332101144533231442" +
	"255333220442"

// argumentsKey is under which an instruction's metadata say how many arguments the kernel function has that it calls.
type argumentsKey struct{}

// WithArguments says how many arguments the kernel function has that ins calls. Run takes it to read all registers for them otherwise.
func WithArguments(ins asm.Instruction, n int) asm.Instruction {
	ins.Metadata.Set(argumentsKey{}, n)
	return ins
}

// argumentCount is how many argument registers a call reads: 5 where that is not known.
func argumentCount(n *node) int {
	switch {
	case n.ins.IsBuiltinCall():
		if id := n.ins.Constant; id >= 0 && id < int64(len(helperArguments)) {
			return int(helperArguments[id] - '0')
		}
	case n.callee != nil && n.callee.info != nil:
		if proto, ok := btf.As[*btf.FuncProto](n.callee.info.Type); ok && len(proto.Params) <= 5 {
			return len(proto.Params)
		}
	}
	if count, ok := n.ins.Metadata.Get(argumentsKey{}).(int); ok && count <= int(asm.R5) {
		return count
	}
	return int(asm.R5)
}
