// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestFeatures writes down which of the kernel functions that the design builds on this kernel has,
// and holds the list against the versions that the design states. SHUNT_VM_OUT/features.json is
// what docs/other-kernels.md shows as a table.
func TestFeatures(t *testing.T) {
	inMachine(t)
	types := btf.NewCache()
	features := map[string]bool{}
	for _, kfunc := range []struct {
		name         string
		major, minor int // the first kernel with it
	}{
		{"bpf_skb_ct_lookup", 6, 0},
		{"bpf_xdp_ct_lookup", 6, 0},
		{"bpf_ct_change_timeout", 6, 0},
		{"bpf_cast_to_kern_ctx", 6, 2},
		{"bpf_rdonly_cast", 6, 2},
		{"bpf_dynptr_from_xdp", 6, 4},
		{"bpf_xdp_metadata_rx_vlan_tag", 6, 8},
		{"bpf_xdp_flow_lookup", 6, 11},
	} {
		have, err := haveFunction(types, kfunc.name)
		if err != nil {
			t.Fatal(err)
		}
		features[kfunc.name] = have
		if want := atLeast(t, kfunc.major, kfunc.minor); have != want {
			t.Errorf("kernel function %s: present is %t, want %t (it came with %d.%d)", kfunc.name, have, want, kfunc.major, kfunc.minor)
		}
	}
	data, err := json.MarshalIndent(features, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("SHUNT_VM_OUT"), "features.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// haveFunction looks for a function in the type information of the kernel and its loaded modules.
func haveFunction(types *btf.Cache, name string) (bool, error) {
	kernel, err := types.Kernel()
	if err != nil {
		return false, err
	}
	modules, err := types.Modules()
	if err != nil {
		return false, err
	}
	specs := []*btf.Spec{kernel}
	for _, module := range modules {
		spec, err := types.Module(module)
		if err != nil {
			return false, err
		}
		specs = append(specs, spec)
	}
	for _, spec := range specs {
		var function *btf.Func
		switch err := spec.TypeByName(name, &function); {
		case err == nil:
			return true, nil
		case !errors.Is(err, btf.ErrNotFound):
			return false, err
		}
	}
	return false, nil
}
