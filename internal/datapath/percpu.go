// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// possibleCPUs is how many CPUs there can be, and so how many values a key of a per-CPU map has.
func possibleCPUs() (int, error) {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, fmt.Errorf("counting CPUs: %w", err)
	}
	return n, nil
}

// readPerCPU reads a per-CPU array by one system call, up to the number of keys that there is room for, and gives how many there were. The values of a key lie
// one behind the other, one for each possible CPU.
func readPerCPU[V any](m *ebpf.Map, keys []uint32, values []V) (n int, err error) {
	var cursor ebpf.MapBatchCursor
	n, err = m.BatchLookup(&cursor, keys, values, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) { // these were the last
		err = nil
	}
	return n, err
}

// sum adds up what each CPU counted.
func sum(values []bpfobj.Count) (out bpfobj.Count) {
	for _, c := range values {
		out.Packets += c.Packets
		out.Bytes += c.Bytes
	}
	return out
}
