// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// What programs read of ipset has to be found in this kernel, kind by kind, and a structure that is not as expected has to be noticed.
func TestSetLayout(t *testing.T) {
	if n := binary.Size(bpfobj.SetKind{}); n != image.SetKindSize {
		t.Fatalf("struct shunt_set_kind has %d bytes, images have room for %d", n, image.SetKindSize)
	}
	kernel, err := btf.LoadKernelSpec()
	if _, none := os.Stat("/sys/kernel/btf/vmlinux"); none != nil {
		t.Skip("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF, Linux 5.4): there is no /sys/kernel/btf/vmlinux")
	} else if err != nil {
		t.Fatal(err)
	}
	types := setTypes{specs: []*btf.Spec{kernel}}
	for _, name := range setModules {
		if os.Getenv("SHUNT_VM") != "" { // elsewhere nothing is loaded
			exec.Command("modprobe", "-q", name).Run()
		}
		if module, err := btf.LoadKernelModuleSpec(name); err == nil {
			types.specs = append(types.specs, module)
		}
	}
	if !types.has("ip_set", "data") {
		t.Skip("this kernel's types have no struct ip_set (Linux 2.6.39, CONFIG_IP_SET), or the module is not loaded")
	}
	l, err := types.layout()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range image.SetKinds {
		if inVM := os.Getenv("SHUNT_VM") != ""; k.Type != "list:set" && !inVM && !types.has(structOf(k), "gc") {
			t.Logf("this kernel has no %s", k.Type)
			continue
		}
		if kind, ok := l.kinds[k]; !ok || kind.Method == 0 || kind.Table == 0 && k.Type == "list:set" {
			t.Errorf("sets of type %s, family %v are not known: %+v", k.Type, k.Family, kind)
		}
	}
	types.are("hash_net4_elem", map[string]btf.Bits{"ip": 0, "padding0": 32, "nomatch": 48, "cidr": 57})
	if types.err == nil {
		t.Error("an element with its prefix length elsewhere is taken for the expected one")
	}
	types.err = nil
	if types.at("ip_set", "dsize", 4); types.err == nil {
		t.Error("a member of another size is taken for the expected one")
	}
}

// Where kernel memory can be read at all, the verifier has to take programs that ask ipsets beside everything else: else all such rules would be
// slow.
func TestProgramsAskSets(t *testing.T) {
	lab.RequireRoot(t)
	kernel, found, err := typesOf(moduleTypes)
	if err != nil {
		t.Fatal(err)
	}
	o, err := loadObjects(slog.New(slog.DiscardHandler), kernel, found)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	f, err := probe(o, kernel)
	if err != nil {
		t.Fatal(err)
	}
	for _, peek := range []uint8{bpfobj.PeekCast, bpfobj.PeekProbe} {
		if f.Peek == bpfobj.PeekNone || peek == bpfobj.PeekCast && f.Peek != peek {
			continue
		}
		with := f
		with.Peek = peek
		if err := asksSets(o, with); err != nil {
			t.Errorf("reading in way %d: %v", peek, err)
		}
	}
}
