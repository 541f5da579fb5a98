// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model"
)

// hookWalk reads the kernel's own tables of netfilter hooks by a BPF program. It shows what no dump shows (BPF links, IPVS, SELinux,
// modules of others) on kernels without nfnetlink_hook.
//
// One serves all readers of a process, and is never closed.
type hookWalk struct {
	prog    *ebpf.Program
	mu      sync.Mutex
	symbols map[uint64]string // names of the functions seen so far
}

// walkedHook is one function that the kernel calls at a hook.
type walkedHook struct {
	Function string // symbol, or its address when /proc/kallsyms hides it
	Priority int
}

var theHookWalk = sync.OnceValues(newHookWalk)

func newHookWalk() (*hookWalk, error) {
	spec, err := bpfobj.LoadGuard()
	if err != nil {
		return nil, fmt.Errorf("reading the guard object: %w", err)
	}
	types, err := bpfobj.KernelTypes() // has all that this reads; left to itself, the library would read the types of every module that is loaded
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's type information: %w", err)
	}
	prog, err := ebpf.NewProgramWithOptions(spec.Programs["shunt_hooks"], ebpf.ProgramOptions{KernelTypes: types})
	if err != nil {
		return nil, fmt.Errorf("loading the hook walk: %w", err)
	}
	return &hookWalk{prog: prog, symbols: map[uint64]string{}}, nil
}

// hooks lists the functions at a hook (0 prerouting … 4 postrouting) of the calling thread's namespace, in the order of their calls.
func (w *hookWalk) hooks(family model.Family, hook uint32) ([]walkedHook, error) {
	q := bpfobj.HooksQuery{Family: uint32(family), Hook: hook}
	in := make([]byte, binary.Size(q))
	if _, err := binary.Encode(in, binary.NativeEndian, &q); err != nil {
		return nil, fmt.Errorf("encoding the hook query: %w", err)
	}
	out := make([]byte, len(in))
	if _, err := w.prog.Run(&ebpf.RunOptions{Context: in, ContextOut: out}); err != nil {
		return nil, fmt.Errorf("walking netfilter hook %d of %s: %w", hook, family, err)
	}
	if _, err := binary.Decode(out, binary.NativeEndian, &q); err != nil {
		return nil, fmt.Errorf("decoding the hook walk: %w", err)
	}
	if int(q.Count) > len(q.Entry) {
		return nil, fmt.Errorf("netfilter hook %d of %s has %d functions, more than can be walked", hook, family, q.Count)
	}
	var list []walkedHook
	for _, e := range q.Entry[:q.Count] {
		name, err := w.symbol(e.Func)
		if err != nil {
			return nil, err
		}
		list = append(list, walkedHook{Function: name, Priority: int(e.Priority)})
	}
	return list, nil
}

// symbol names a kernel function. Those of netfilter are kept along the way.
func (w *hookWalk) symbol(addr uint64) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, ok := w.symbols[addr]; ok {
		return name, nil
	}
	err := eachFunction(func(at uint64, name []byte, _ bool) {
		if w.symbols[at] == "" && (at == addr || at != 0 && classify(string(name)) != model.NFOther) {
			w.symbols[at] = string(name)
		}
	})
	if err != nil {
		return "", fmt.Errorf("naming a netfilter hook: %w", err)
	}
	if w.symbols[addr] == "" {
		w.symbols[addr] = fmt.Sprintf("%#x", addr)
	}
	return w.symbols[addr], nil
}
