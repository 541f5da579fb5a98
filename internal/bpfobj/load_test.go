// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Every program loads as it is, features switched by .rodata alone. (The stubs' slot belongs to one program type at a time,
// so each is loaded with maps of its own.)
func TestObjectsLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	types := btf.NewCache() // else every program reads the types of the kernel and of all its modules anew, which in an emulated machine is most of the test
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"xdp": LoadXDP, "tc": LoadTC, "xdp generic": LoadXDPGeneric, "tc generic": LoadTCGeneric, "stub": LoadStub, "guard": LoadGuard} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for prog := range spec.Programs {
			one := spec.Copy()
			one.Programs = map[string]*ebpf.ProgramSpec{prog: one.Programs[prog]}
			coll, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{Cache: types})
			if err != nil {
				var ve *ebpf.VerifierError
				if errors.As(err, &ve) {
					t.Logf("%+v", ve)
				}
				t.Errorf("%s/%s: %v", name, prog, err)
				continue
			}
			coll.Close()
		}
	}
}
