// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// kernel is the running kernel's own type information and that of modules, while somebody keeps it.
var kernel struct {
	mu      sync.Mutex
	keepers int
	types   *btf.Cache
	modules string // whose types were there when it was made
}

// cached gives what is kept. Modules come and go: with others loaded, everything is read anew.
func cached() *btf.Cache {
	kernel.mu.Lock()
	defer kernel.mu.Unlock()
	loaded := loadedModules()
	if kernel.types != nil && kernel.modules == loaded {
		return kernel.types
	}
	types := btf.NewCache()
	if kernel.keepers > 0 {
		kernel.types, kernel.modules = types, loaded
	}
	return types
}

// loadedModules names what describes its types, the kernel among it.
func loadedModules() string {
	var names strings.Builder
	entries, _ := os.ReadDir("/sys/kernel/btf")
	for _, e := range entries {
		names.WriteString(e.Name() + " ")
	}
	return names.String()
}

// KernelTypes gives the running kernel's own type information, without that of modules, which come and go. It is safe for concurrent use.
func KernelTypes() (*btf.Spec, error) { return cached().Kernel() }

// KeepKernelTypes has types of the kernel and of its modules decoded only once until the last that called this releases them. Decoding takes some ten milliseconds of CPU
// time, and a start of the daemon asks for them in several places, as each program does that calls a function of a module; but they take megabytes, which nobody needs
// afterwards. Releasing again does nothing.
func KeepKernelTypes() (release func()) {
	kernel.mu.Lock()
	defer kernel.mu.Unlock()
	kernel.keepers++
	return sync.OnceFunc(func() {
		kernel.mu.Lock()
		defer kernel.mu.Unlock()
		if kernel.keepers--; kernel.keepers == 0 {
			kernel.types = nil
		}
	})
}

// ModuleTypes gives the type information of a loaded module, which builds on KernelTypes.
func ModuleTypes(name string) (*btf.Spec, error) { return cached().Module(name) }

// NewProgram loads a program as [ebpf.NewProgram] does, which would decode the types of the kernel and of every module for each program that calls a module's function.
func NewProgram(spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	coll, err := ebpf.NewCollectionWithOptions(&ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{spec.Name: spec}, ByteOrder: spec.ByteOrder}, ebpf.CollectionOptions{Cache: cached()})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(spec.Name), nil
}
