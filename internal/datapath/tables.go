// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/synth"
)

// devmapVal is struct bpf_devmap_val (include/uapi/linux/bpf.h).
type devmapVal struct{ Ifindex, ProgFD uint32 }

// stricter makes every change that takes something from the fast path: permitting entries go, forbidding ones come.
// relax makes the rest, once the programs that need the strictness are in place.
func (d *Datapath) stricter(want *synth.Tables) error {
	have, was := &d.tables, &d.inForce
	tx := func(v uint32) any { return devmapVal{Ifindex: v} }
	return errors.Join(
		shrink(d, "tx_xdp", have.TxXDP, want.TxXDP, was.TxXDP),
		shrink(d, "tx_tc", have.TxTC, want.TxTC, was.TxTC),
		shrink(d, "tags", have.Tags, want.Tags, was.Tags),
		shrink(d, "vlans", have.VLANs, want.VLANs, was.VLANs),
		grow(d, "local4", have.Local4, want.Local4, was.Local4, same[uint8]),
		grow(d, "special4", have.Special4, want.Special4, was.Special4, same[bpfobj.Special]),
		grow(d, "special6", have.Special6, want.Special6, was.Special6, same[bpfobj.Special]),
		replace(d, "tx_xdp", have.TxXDP, want.TxXDP, was.TxXDP, tx),
		replace(d, "vlans", have.VLANs, want.VLANs, was.VLANs, same[bpfobj.Input]),
		replace(d, "tags", have.Tags, want.Tags, was.Tags, same[bpfobj.Tags]),
	)
}

func (d *Datapath) relax(want *synth.Tables) error {
	have, was := &d.tables, &d.inForce
	return errors.Join(
		shrink(d, "local4", have.Local4, want.Local4, was.Local4),
		shrink(d, "special4", have.Special4, want.Special4, was.Special4),
		shrink(d, "special6", have.Special6, want.Special6, was.Special6),
		grow(d, "vlans", have.VLANs, want.VLANs, was.VLANs, same[bpfobj.Input]),
		grow(d, "tags", have.Tags, want.Tags, was.Tags, same[bpfobj.Tags]),
		grow(d, "tx_xdp", have.TxXDP, want.TxXDP, was.TxXDP, func(v uint32) any { return devmapVal{Ifindex: v} }),
		grow(d, "tx_tc", have.TxTC, want.TxTC, was.TxTC, same[uint32]),
	)
}

func same[V any](v V) any { return v }

// identical says whether a table is the very one that was put in force last, and so has nothing to be looked through for.
func identical[K, V comparable](want, was map[K]V) bool {
	return want != nil && reflect.ValueOf(want).Pointer() == reflect.ValueOf(was).Pointer()
}

// shrink deletes what is no longer wanted. An entry that the kernel removed with its device is as good as deleted.
func shrink[K, V comparable](d *Datapath, name string, have, want, was map[K]V) error {
	if identical(want, was) {
		return nil
	}
	for k := range have {
		if _, keep := want[k]; keep {
			continue
		}
		if err := d.objects.maps[name].Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("deleting %v from %s: %w", k, name, err)
		}
		delete(have, k)
		d.changed = true
	}
	return nil
}

// grow adds what is missing and updates what differs.
func grow[K, V comparable](d *Datapath, name string, have, want, was map[K]V, value func(V) any) error {
	if identical(want, was) {
		return nil
	}
	for k, v := range want {
		if old, ok := have[k]; ok && old == v {
			continue
		}
		if err := d.objects.maps[name].Put(k, value(v)); err != nil {
			return fmt.Errorf("writing %v to %s: %w", k, name, err)
		}
		have[k] = v
		d.changed = true
	}
	return nil
}

// replace updates entries that stay but differ.
func replace[K, V comparable](d *Datapath, name string, have, want, was map[K]V, value func(V) any) error {
	if identical(want, was) {
		return nil
	}
	both := maps.Clone(want)
	maps.DeleteFunc(both, func(k K, _ V) bool { _, ok := have[k]; return !ok })
	return grow(d, name, have, both, nil, value)
}

func emptyTables() synth.Tables {
	return synth.Tables{
		TxXDP: map[uint32]uint32{}, TxTC: map[uint32]uint32{}, Tags: map[uint32]bpfobj.Tags{},
		VLANs: map[bpfobj.VLANKey]bpfobj.Input{}, Local4: map[[4]byte]uint8{},
		Special4: map[bpfobj.Prefix4]bpfobj.Special{}, Special6: map[bpfobj.Prefix6]bpfobj.Special{},
	}
}
