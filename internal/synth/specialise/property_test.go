// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// sample is a generated program with its frozen data and its specialised form.
type sample struct {
	seed        uint64
	ro          map[string][]byte
	insns, spec asm.Instructions
	stats       Stats
	r           *rand.Rand
}

func newSample(t *testing.T, seed uint64) sample {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	data := make([]byte, generatedRodata)
	for i := range data {
		if r.IntN(3) != 0 { // switches that are off are what matters
			continue
		}
		data[i] = byte(r.Uint32())
	}
	s := sample{seed: seed, ro: map[string][]byte{".rodata": data}, insns: generate(r), r: r}
	before := slices.Clone(s.insns)
	var err error
	s.spec, s.stats, err = Run(s.insns, s.ro)
	if err != nil || s.stats.Untouched != "" {
		t.Fatalf("seed %d: %v %s\n%v", seed, err, s.stats.Untouched, s.insns)
	}
	for i := range before {
		if before[i] != s.insns[i] {
			t.Fatalf("seed %d: Run changed its input at %d", seed, i)
		}
	}
	return s
}

// input is a context: only the five words of cb are random, often small.
func (s *sample) input() []byte {
	ctx := make([]byte, 192)
	for i := range 5 {
		v := s.r.Uint32()
		if s.r.IntN(2) == 0 {
			v %= 4
		}
		binary.NativeEndian.PutUint32(ctx[ctxWords+4*i:], v)
	}
	return ctx
}

// resolved gives jumps by name their distance, as Marshal does, for the interpreter.
func resolved(t *testing.T, insns asm.Instructions) asm.Instructions {
	t.Helper()
	out := slices.Clone(insns)
	if err := out.Marshal(io.Discard, byteOrder()); err != nil {
		t.Fatal(err)
	}
	return out
}

// byteOrder is this machine's, as the encoder wants it.
func byteOrder() binary.ByteOrder {
	if littleEndian {
		return binary.LittleEndian
	}
	return binary.BigEndian
}

// TestInterpreted compares original and specialised programs in the interpreter.
func TestInterpreted(t *testing.T) {
	var before, after, loads, branches int
	for seed := range uint64(3000) {
		s := newSample(t, seed)
		before, after = before+s.stats.Before, after+s.stats.After
		loads, branches = loads+s.stats.FoldedLoads, branches+s.stats.FoldedBranches
		orig, spec := resolved(t, s.insns), resolved(t, s.spec)
		for range 8 {
			ctx := s.input()
			args := [11]uint64{1: ctxBase}
			want, err := newMachine(orig, s.ro, ctx).call(0, 0, args)
			if err != nil {
				t.Fatalf("seed %d: original: %v\n%v", seed, err, orig)
			}
			got, err := newMachine(spec, s.ro, ctx).call(0, 0, args)
			if err != nil || got != want {
				t.Fatalf("seed %d: got %#x, want %#x, %v\n%v\n%v", seed, got, want, err, orig, spec)
			}
		}
		again, stats, err := Run(s.spec, s.ro)
		// Blocks may find better places, now that conditions are inverted; there is nothing else left to do.
		if err != nil || count(withoutJumps(again)) != count(withoutJumps(s.spec)) || stats.After > s.stats.After {
			t.Errorf("seed %d: a second run went from %d to %d: %v", seed, s.stats.After, stats.After, err)
		}
	}
	t.Logf("%d instructions became %d; %d loads and %d branches folded", before, after, loads, branches)
	if loads == 0 || branches == 0 || after >= before {
		t.Error("the generator did not exercise the passes")
	}
}

// TestInKernel compares them in the kernel: the verifier must accept both, and test runs must agree.
func TestInKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	n := uint64(300)
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		s := newSample(t, seed)
		orig, err := load(t, s.insns, s.ro)
		if err != nil {
			t.Fatalf("seed %d: original refused, the generator is off: %v\n%v", seed, err, s.insns)
		}
		spec, err := load(t, s.spec, s.ro)
		if err != nil {
			t.Fatalf("seed %d: specialised program refused: %+v\n%v\n%v", seed, err, s.insns, s.spec)
		}
		for range 4 {
			ctx := s.input()
			want, got := runKernel(t, orig, ctx), runKernel(t, spec, ctx)
			if want != got {
				t.Fatalf("seed %d: got %#x, want %#x\n%v\n%v", seed, got, want, s.insns, s.spec)
			}
		}
		orig.Close()
		spec.Close()
	}
}

// load loads insns as a classifier with its frozen data.
func load(t *testing.T, insns asm.Instructions, ro map[string][]byte) (*ebpf.Program, error) {
	t.Helper()
	insns = slices.Clone(insns)
	for _, name := range Maps(insns) {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(ro[name])), MaxEntries: 1,
			Flags: 0x80 /* BPF_F_RDONLY_PROG */, Contents: []ebpf.MapKV{{Key: uint32(0), Value: ro[name]}}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := insns.AssociateMap(name, m); err != nil {
			t.Fatal(err)
		}
	}
	return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: insns})
}

func runKernel(t *testing.T, p *ebpf.Program, ctx []byte) uint32 {
	t.Helper()
	for {
		ret, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Context: ctx})
		if errors.Is(err, ebpf.ErrNotSupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ret
	}
}

// FuzzRun feeds arbitrary instructions: whatever they are, Run must come back; what it accepts must be encodable and stable, and compute
// the same if the interpreter can run it.
func FuzzRun(f *testing.F) {
	f.Add(make([]byte, 64), uint64(1))
	for seed := range uint64(20) {
		var raw bytes.Buffer
		insns := generate(rand.New(rand.NewPCG(seed, 3)))
		if err := insns.Marshal(&raw, byteOrder()); err != nil {
			f.Fatal(err)
		}
		f.Add(raw.Bytes(), seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte, rodata uint64) {
		insns, err := asm.AppendInstructions(nil, bytes.NewReader(raw), byteOrder(), "linux")
		if err != nil || len(insns) == 0 || len(insns) > 2000 {
			return
		}
		for i := range insns {
			if insns[i].IsLoadFromMap() && insns[i].Src == asm.PseudoMapValue {
				insns[i] = insns[i].WithReference(".rodata")
			}
		}
		ro := map[string][]byte{".rodata": binary.NativeEndian.AppendUint64(nil, rodata)}
		out, stats, err := Run(insns, ro)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Untouched != "" {
			return
		}
		if err := slices.Clone(out).Marshal(io.Discard, byteOrder()); err != nil {
			t.Skip(err) // not encodable to begin with
		}
		if _, again, err := Run(out, ro); err != nil || again.Untouched != "" {
			t.Fatalf("result is not understood: %v %s\n%v", err, again.Untouched, out)
		}
		for i := range insns {
			if isCall(&insns[i]) { // all frames of the interpreter have one address
				return
			}
		}
		ctx := make([]byte, 192)
		for i := range ctx {
			ctx[i] = byte(i * 7)
		}
		args := [11]uint64{1: ctxBase}
		want, err := newMachine(insns, ro, ctx).call(0, 0, args)
		if err != nil {
			return
		}
		if got, err := newMachine(out, ro, ctx).call(0, 0, args); err != nil || got != want {
			t.Fatalf("got %#x, want %#x, %v\n%v\n%v", got, want, err, insns, out)
		}
	})
}

func withoutJumps(insns asm.Instructions) asm.Instructions {
	return slices.DeleteFunc(slices.Clone(insns), func(ins asm.Instruction) bool { return isJump(&ins) && isUnconditional(&ins) })
}
