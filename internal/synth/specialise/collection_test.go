// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Collection specialises every program of spec, in place, for the values that its constants have now, and takes away the maps and
// variables that no program refers to any more. The result is ready to be loaded; its remaining constants must not be set again. It
// returns the statistics per program. Callers that need a map for another reason put it back.
func Collection(spec *ebpf.CollectionSpec) (map[string]Stats, error) {
	readOnly, err := ReadOnly(spec)
	if err != nil {
		return nil, err
	}
	all := map[string]Stats{}
	used := map[string]bool{}
	for name, prog := range spec.Programs {
		out, stats, err := Run(prog.Instructions, readOnly)
		if err != nil {
			return nil, err
		}
		prog.Instructions, all[name] = out, stats
		for _, m := range Maps(out) {
			used[m] = true
		}
	}
	for name := range spec.Maps {
		if !used[name] {
			delete(spec.Maps, name)
		}
	}
	for name, v := range spec.Variables {
		if spec.Maps[v.SectionName] == nil {
			delete(spec.Variables, name)
		}
	}
	return all, nil
}

// ReadOnly returns the contents that the read-only data maps of spec will be loaded with: what the object holds, overlaid by the
// variables that were set. Only .rodata sections count: cilium/ebpf freezes these, so that user space cannot change them either.
func ReadOnly(spec *ebpf.CollectionSpec) (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".rodata") || m.Type != ebpf.Array || m.MaxEntries != 1 || m.Flags&unix.BPF_F_RDONLY_PROG == 0 || len(m.Contents) != 1 {
			continue
		}
		initial, ok := m.Contents[0].Value.([]byte)
		if !ok {
			continue
		}
		data := make([]byte, m.ValueSize)
		if copy(data, initial) != len(initial) {
			return nil, fmt.Errorf("reading constants of map %s: contents are longer than the value of %d bytes", name, m.ValueSize)
		}
		for _, v := range spec.Variables {
			if v.SectionName != name {
				continue
			}
			if uint64(v.Offset)+uint64(len(v.Value)) > uint64(len(data)) {
				return nil, fmt.Errorf("reading constants of map %s: variable %s exceeds it", name, v.Name)
			}
			copy(data[v.Offset:], v.Value)
		}
		out[name] = data
	}
	return out, nil
}
