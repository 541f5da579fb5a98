// SPDX-License-Identifier: Apache-2.0

package specialise

//go:generate clang-19 -O2 -g -Wall -Werror -target bpfel -mcpu=v3 -fdebug-compilation-dir=. -I ../../../bpf/third_party/libbpf -idirafter /usr/include/x86_64-linux-gnu -c testdata/switches.c -o testdata/switches_bpfel.o
//go:generate clang-19 -O2 -g -Wall -Werror -target bpfel -mcpu=v3 -fdebug-compilation-dir=. -I ../../../bpf/third_party/libbpf -idirafter /usr/include/x86_64-linux-gnu -DPLAIN -c testdata/switches.c -o testdata/plain_bpfel.o

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// settings is struct settings of testdata/switches.c.
type settings struct {
	Filter, Count, Guard, Loop uint8
	Port, Rules                uint16
	Ifindex                    uint32
	_                          uint32
	Cookie                     uint64
}

func object(t *testing.T, name string) *ebpf.CollectionSpec {
	t.Helper()
	if !littleEndian {
		t.Skip("the objects in testdata are little-endian")
	}
	spec, err := ebpf.LoadCollectionSpec("testdata/" + name + "_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// frozen specialises spec for cfg.
func frozen(t *testing.T, spec *ebpf.CollectionSpec, cfg settings) Stats {
	t.Helper()
	if err := spec.Variables["cfg"].Set(cfg); err != nil {
		t.Fatal(err)
	}
	all, err := Collection(spec)
	stats := all["route"]
	if err != nil || stats.Untouched != "" {
		t.Fatal(err, stats.Untouched)
	}
	t.Logf("%+v: %+v, maps %v", cfg, stats, Maps(spec.Programs["route"].Instructions))
	return stats
}

func loadRoute(t *testing.T, spec *ebpf.CollectionSpec) *ebpf.Program {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	coll, err := ebpf.NewCollection(spec)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("the program as compiled calls what this kernel lacks (bpf_loop, Linux 5.17; bpf_cast_to_kern_ctx, Linux 6.2): tried: %v", err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	return coll.Programs["route"]
}

// TestAllOff: with every switch off nothing of the features is left: not an instruction, a map, a function or a kernel type.
func TestAllOff(t *testing.T) {
	spec, plain := object(t, "switches"), object(t, "plain")
	stats := frozen(t, spec, settings{})
	want := plain.Programs["route"].Instructions
	got := spec.Programs["route"].Instructions
	lean, err := Collection(plain)
	if err != nil {
		t.Fatal(err)
	}
	if stats.After > lean["route"].Before || stats.After != lean["route"].After {
		t.Errorf("%d instructions, the source without the features has %d\n%v\n%v", stats.After, count(want), got, want)
	}
	if maps := Maps(got); !slices.Equal(maps, Maps(want)) {
		t.Errorf("maps %v, want %v", maps, Maps(want))
	}
	if refs := got.FunctionReferences(); len(refs) != 0 {
		t.Errorf("functions left: %v", refs)
	}
	for i := range got {
		if got[i].IsKfuncCall() || btf.CORERelocationMetadata(&got[i]) != nil {
			t.Errorf("instruction %d needs kernel types: %v", i, got[i])
		}
	}
	loadRoute(t, spec)
}

// TestEverySwitch loads all 16 combinations and runs them beside the original on the same packets.
func TestEverySwitch(t *testing.T) {
	for bits := range 16 {
		cfg := settings{Filter: uint8(bits & 1), Count: uint8(bits >> 1 & 1), Guard: uint8(bits >> 2 & 1), Loop: uint8(bits >> 3),
			Port: 7, Rules: 5, Ifindex: 1, Cookie: 10}
		if bits&1 != 0 {
			cfg.Cookie = 11
		}
		orig, spec := object(t, "switches"), object(t, "switches")
		if err := orig.Variables["cfg"].Set(cfg); err != nil {
			t.Fatal(err)
		}
		stats := frozen(t, spec, cfg)
		if bits != 15 && stats.Removed == 0 {
			t.Errorf("%+v: nothing removed", cfg)
		}
		first := &spec.Programs["route"].Instructions[0]
		if first.Symbol() != "route" || btf.FuncMetadata(first) == nil || first.Source() == nil {
			t.Errorf("%+v: the first instruction lost its symbol, function or line", cfg)
		}
		a, b := loadRoute(t, orig), loadRoute(t, spec)
		for _, packet := range packets() {
			want, wantOut, err := a.Test(packet)
			if err != nil {
				t.Fatal(err)
			}
			got, gotOut, err := b.Test(packet)
			if err != nil || got != want || !slices.Equal(gotOut, wantOut) {
				t.Errorf("%+v: got %d, want %d, %v", cfg, got, want, err)
			}
		}
	}
}

// packets has an IPv4 packet, one that expires, one of another type and a runt.
func packets() [][]byte {
	ip := make([]byte, 64)
	binary.BigEndian.PutUint16(ip[12:], 0x0800)
	copy(ip[14:], []byte{0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 10, 9, 8, 7})
	dying, other := slices.Clone(ip), slices.Clone(ip)
	dying[22] = 1
	other[12] = 0x86
	return [][]byte{ip, dying, other, ip[:20]}
}

// TestHelperArguments holds the table against the header that the programs are compiled with.
func TestHelperArguments(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/third_party/libbpf/bpf_helper_defs.h")
	if err != nil {
		t.Fatal(err)
	}
	helper := regexp.MustCompile(`static [^;]*\(\* ?(?:const )?(bpf_\w+)\)\(([^;]*)\) = \(void \*\) (\d+);`)
	found := helper.FindAllStringSubmatch(string(header), -1)
	if len(found) < 200 {
		t.Fatalf("%d helpers found in the header", len(found))
	}
	for _, h := range found {
		id, _ := strconv.Atoi(h[3])
		want := strings.Count(h[2], ",") + 1
		switch {
		case h[2] == "void":
			want = 0
		case strings.Contains(h[2], "..."):
			want = 5
		}
		n := node{ins: asm.BuiltinFunc(id).Call()}
		if got := argumentCount(&n); got != want {
			t.Errorf("%s: %d arguments, want %d", h[1], got, want)
		}
	}
	if n := (node{ins: asm.BuiltinFunc(1 << 20).Call()}); argumentCount(&n) != 5 {
		t.Error("an unknown helper must be taken to read all five")
	}
}

// TestOwnObjects specialises the project's own programs for random settings: what loads as compiled must load specialised, and decide
// the same.
func TestOwnObjects(t *testing.T) {
	files, err := filepath.Glob("../../bpfobj/*_bpfel.o")
	if err != nil || len(files) == 0 || !littleEndian || os.Geteuid() != 0 {
		t.Skip("needs root, a little-endian machine and the compiled programs in internal/bpfobj")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, file := range files {
		for round := range 4 {
			orig, err := ebpf.LoadCollectionSpec(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range orig.Maps {
				m.Pinning = ebpf.PinNone
			}
			for _, v := range orig.Variables {
				for i := range v.Value {
					if v.Constant() && round > 0 && r.IntN(4) == 0 {
						v.Value[i] ^= byte(r.IntN(3))
					}
				}
			}
			spec := orig.Copy()
			all, err := Collection(spec)
			if err != nil {
				t.Fatal(err)
			}
			a, err := ebpf.NewCollection(orig)
			if err != nil {
				t.Logf("%s: not loadable as compiled: %v", file, err)
				continue
			}
			b, err := ebpf.NewCollection(spec)
			if err != nil {
				t.Fatalf("%s, round %d: specialised: %+v", file, round, err)
			}
			for name, stats := range all {
				t.Logf("%s %s: %+v", filepath.Base(file), name, stats)
				if stats.Untouched != "" {
					t.Errorf("%s %s: %s", file, name, stats.Untouched)
				}
				for _, packet := range packets() {
					packet = append(packet, make([]byte, 64-len(packet))...)
					want, wantOut, err1 := a.Programs[name].Test(packet)
					got, gotOut, err2 := b.Programs[name].Test(packet)
					if (err1 == nil) != (err2 == nil) || got != want || !slices.Equal(gotOut, wantOut) {
						t.Errorf("%s %s, round %d: got %d %v, want %d %v", file, name, round, got, err2, want, err1)
					}
				}
			}
			a.Close()
			b.Close()
		}
	}
}
