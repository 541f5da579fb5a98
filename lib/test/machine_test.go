// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

var (
	operations = flag.Int("operations", 1_000_000, "random operations per structure")
	seed       = flag.Uint64("seed", 20261125, "seed of the random operations; 0: a new one, which is printed")
	duration   = flag.Duration("duration", 0, "run the tests again and again, with a new seed each time, for so long or until one fails")
)

// TestMain runs the tests once, or, for `make fuzz-lib`, in rounds.
func TestMain(m *testing.M) {
	flag.Parse()
	end := time.Now().Add(*duration)
	for round := 1; ; round++ {
		if *seed == 0 || round > 1 {
			*seed = rand.Uint64()
			fmt.Printf("round %d: -seed %d\n", round, *seed)
		}
		if code := m.Run(); code != 0 {
			fmt.Printf("repeat with: go test ./lib/test -operations %d -seed %d\n", *operations, *seed)
			os.Exit(code)
		}
		if !time.Now().Before(end) {
			os.Exit(0)
		}
	}
}

// maxSteps is MAX_STEPS of bpf/harness.h.
const maxSteps = 4096

// A step is one operation on a structure; struct step of bpf/harness.h.
type step struct {
	Op, Arg   uint32
	A, B, Out uint64
}

// A machine is a loaded test program with its script and the structures' maps.
type machine struct {
	t     testing.TB
	coll  *ebpf.Collection
	steps []step // the script's memory itself
	arena []byte // the arena as user space sees it, if there is one
}

// load loads testdata/NAME.bpf.o; change, if any, may set variables before. Some programs cost the verifier a second: of several, only those are
// loaded that are named, if any are. Tests that call it need root.
func load(t testing.TB, name string, change func(*ebpf.CollectionSpec), programs ...string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpec(filepath.Join("testdata", name+".bpf.o"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(spec)
	}
	maps.DeleteFunc(spec.Programs, func(program string, _ *ebpf.ProgramSpec) bool {
		return len(programs) > 0 && !slices.Contains(programs, program)
	})
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%s: %+v", name, refused)
		}
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(coll.Close)
	return newMachine(t, coll)
}

// newMachine maps the script of programs that are loaded.
func newMachine(t testing.TB, coll *ebpf.Collection) *machine {
	t.Helper()
	m := &machine{t: t, coll: coll}
	raw, err := unix.Mmap(coll.Maps["script"].FD(), 0, maxSteps*int(unsafe.Sizeof(step{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(raw); err != nil {
			t.Error(err)
		}
	})
	m.steps = unsafe.Slice((*step)(unsafe.Pointer(&raw[0])), maxSteps)
	return m
}

// span runs the steps from first on, count of them, by the program of this name.
func (m *machine) span(program string, first, count int) {
	m.t.Helper()
	if err := m.trySpan(program, first, count); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) trySpan(program string, first, count int) error {
	frame := make([]byte, 64)
	binary.NativeEndian.PutUint32(frame, uint32(first))
	binary.NativeEndian.PutUint32(frame[4:], uint32(count))
	for {
		ret, err := m.coll.Programs[program].Run(&ebpf.RunOptions{Data: frame})
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ret != 2: // XDP_PASS
			return errors.New(program + ": not every step was run")
		default:
			return nil
		}
	}
}

// run does the steps and returns them with what each gave.
func (m *machine) run(program string, steps []step) []step {
	m.t.Helper()
	for at := 0; at < len(steps); at += maxSteps {
		part := steps[at:min(at+maxSteps, len(steps))]
		copy(m.steps, part)
		m.span(program, 0, len(part))
		copy(part, m.steps)
	}
	return steps
}

// compare does random operations on the structure and on its twin. next makes up a step and says what the twin answers to it (any, if
// the second value is false).
func (m *machine) compare(program string, next func(r *rand.Rand) (s step, want uint64, exact bool)) {
	m.t.Helper()
	r := rand.New(rand.NewPCG(*seed, 1))
	want := make([]uint64, maxSteps)
	exact := make([]bool, maxSteps)
	for done := 0; done < *operations; done += maxSteps {
		for i := range m.steps {
			m.steps[i], want[i], exact[i] = next(r)
		}
		asked := append([]step(nil), m.steps...)
		m.span(program, 0, maxSteps)
		for i, s := range m.steps {
			if exact[i] && s.Out != want[i] {
				s.Out = asked[i].Out
				m.t.Fatalf("operation %d (seed %d): %+v gave %#x, the twin %#x", done+i, *seed, s, m.steps[i].Out, want[i])
			}
		}
	}
}

// bothCPUs runs f(0) and f(1) at the same time, each on a CPU of its own where there are two.
func bothCPUs(f func(cpu int) error) error {
	failed := make(chan error, 2)
	var arrived atomic.Int32
	for cpu := range 2 {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
			var set unix.CPUSet
			set.Set(cpu % runtime.NumCPU())
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				arrived.Add(1)
				failed <- err
				return
			}
			// Who is first waits awake: a program takes less time than a thread to start.
			for arrived.Add(1); arrived.Load() < 2; {
				runtime.Gosched()
			}
			failed <- f(cpu)
		}()
	}
	return errors.Join(<-failed, <-failed)
}
