// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"sync"

	"github.com/cilium/ebpf/btf"
)

// kernel is the running kernel's own type information, while somebody keeps it.
var kernel struct {
	mu      sync.Mutex
	keepers int
	types   *btf.Spec
}

// KernelTypes gives the running kernel's own type information, without that of modules, which come and go. It is safe for concurrent use, and what it gives is the caller's own: looking a
// type up decodes it, and what the library has of a module decodes types of the kernel's without its lock.
func KernelTypes() (*btf.Spec, error) {
	kernel.mu.Lock()
	defer kernel.mu.Unlock()
	if kernel.types != nil {
		return kernel.types.Copy(), nil
	}
	types, err := btf.LoadKernelSpec()
	if err != nil || kernel.keepers == 0 {
		return types, err
	}
	kernel.types = types // nobody looks anything up in this one, so copying it is cheap
	return types.Copy(), nil
}

// KeepKernelTypes has KernelTypes decode only once until the last that called this releases it. Decoding takes some ten milliseconds of CPU time, and a start of the
// daemon asks for them in several places; but they take megabytes, which nobody needs afterwards. Releasing again does nothing.
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

// ModuleTypes gives the type information of a loaded module; kernel is what KernelTypes gave.
func ModuleTypes(name string, kernel *btf.Spec) (*btf.Spec, error) {
	return btf.LoadSplitSpec("/sys/kernel/btf/"+name, kernel)
}
