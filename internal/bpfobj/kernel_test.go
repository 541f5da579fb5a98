// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"os"
	"testing"
)

// The kernel's types are decoded once as long as somebody keeps them, and are gone with the last.
func TestKeepKernelTypes(t *testing.T) {
	first := KeepKernelTypes()
	second := KeepKernelTypes()
	_, err := KernelTypes()
	types := kernel.types
	if _, none := os.Stat("/sys/kernel/btf/vmlinux"); none != nil {
		t.Skip("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF, Linux 5.4): there is no /sys/kernel/btf/vmlinux")
	} else if err != nil {
		t.Fatal(err)
	}
	first()
	first() // again, which does nothing
	if again, err := KernelTypes(); err != nil || kernel.types != types || again == types {
		t.Errorf("kept by one of two, they are others: %v", err)
	}
	second()
	if kernel.types != nil || kernel.keepers != 0 {
		t.Errorf("still there, with %d keepers", kernel.keepers)
	}
}
