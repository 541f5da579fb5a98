// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// grace waits until every program that is running has ended, so that nothing reads any more what was in force before.
//
// No system call offers this by itself. An update of a map of maps returns after an RCU grace period, so that its caller may rely on
// every running program having ended (maybe_wait_bpf_programs in kernel/bpf/syscall.c, Linux 5.0, commit 1ae80cf31938).
type grace struct {
	outer, inner *ebpf.Map
}

// wait takes some milliseconds, as long as the kernel needs for synchronize_rcu().
func (g *grace) wait() error {
	if g.outer == nil {
		spec := &ebpf.MapSpec{Name: "shunt_grace", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
		inner, err := ebpf.NewMap(spec)
		if err != nil {
			return fmt.Errorf("creating a map to wait for programs with: %w", err)
		}
		outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "shunt_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec})
		if err != nil {
			inner.Close()
			return fmt.Errorf("creating a map to wait for programs with: %w", err)
		}
		g.outer, g.inner = outer, inner
	}
	if err := g.outer.Put(uint32(0), g.inner); err != nil {
		return fmt.Errorf("waiting for running programs to end: %w", err)
	}
	return nil
}
