// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// maxRounds bounds the repetition. Every round but the last makes the program smaller, more constant or a way around conditions shorter, so it ends by itself.
const maxRounds = 64

// Stats says what Run did. Before and After count kernel instructions, a 64-bit immediate as two, since loading is paid by these.
type Stats struct {
	Before, After  int
	FoldedLoads    int // loads replaced by their value
	FoldedBranches int // conditional jumps whose outcome was known
	Removed        int // Before - After
	Rounds         int
	// Untouched is the reason for which the program was left as it was, "" if it was not.
	Untouched string
}

// Run specialises one program, as cilium/ebpf's LoadCollectionSpec gives it, for the given contents of its read-only data maps (map name,
// as the instructions refer to it, to the value of its one element). A map that is not given may change and is left alone.
//
// The input is not modified. A program that is not understood comes back as it was, with Stats.Untouched set; an error is a mistake of
// the caller's.
func Run(insns asm.Instructions, readOnly map[string][]byte) (asm.Instructions, Stats, error) {
	stats := Stats{Before: count(insns), After: count(insns)}
	if len(insns) == 0 {
		return nil, stats, errors.New("specialising a program: it has no instructions")
	}
	mem := newMemory(readOnly)
	defer mem.release()
	out, err := run(insns, mem, &stats)
	var reason notUnderstood
	switch {
	case errors.As(err, &reason):
		stats = Stats{Before: stats.Before, After: stats.Before, Untouched: string(reason)}
		return slices.Clone(insns), stats, nil
	case err != nil:
		return nil, stats, fmt.Errorf("specialising program %s: %w", insns.Name(), err)
	}
	stats.After = count(out)
	stats.Removed = stats.Before - stats.After
	return out, stats, nil
}

func run(insns asm.Instructions, mem *memory, stats *Stats) (asm.Instructions, error) {
	p, err := lower(insns)
	if err != nil {
		return nil, err
	}
	for changed := true; changed && stats.Rounds < maxRounds; stats.Rounds++ {
		changed = fold(p, mem, stats)
		for again := true; again; {
			again = reach(p)
			again = thread(p) || again
			again = dead(p) || again
			again = fuse(p) || again
			changed = changed || again
		}
		changed = deadStores(p, mem) || changed
		changed = split(p, mem) || changed
	}
	layout(p)
	return emit(p)
}

// Maps names the maps that insns still refers to, sorted.
func Maps(insns asm.Instructions) []string {
	var names []string
	for i := range insns {
		if name := insns[i].Reference(); name != "" && insns[i].IsLoadFromMap() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func count(insns asm.Instructions) int {
	n := 0
	for i := range insns {
		n += slots(&insns[i])
	}
	return n
}
