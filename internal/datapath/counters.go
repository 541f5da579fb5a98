// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

// Counts are packets and bytes by reason.
type Counts [reason.Count]bpfobj.Count

func (c *Counts) add(o *Counts) {
	for i := range o {
		c[i].Packets += o[i].Packets
		c[i].Bytes += o[i].Bytes
	}
}

// Counters are a device's counters at one hook since it was first attached to; ok is false when it never was. They go on over a detachment
// in between, and end with the device.
func (d *Datapath) Counters(index int, hook graph.Hook) (c Counts, ok bool, err error) {
	key := hookKey{index, hook}
	c, ok = d.retired[key]
	if a := d.ports[key]; a != nil {
		ok = true
		now, err := a.counts()
		if err != nil {
			return c, ok, err
		}
		c.add(&now)
	}
	return c, ok, nil
}

// retire keeps the counters of an attachment that goes while its device stays.
func (d *Datapath) retire(key hookKey, a *attachment) {
	last, err := a.counts()
	if err != nil {
		d.log.Warn("reading the last counters of a device", "ifindex", key.index, "hook", key.hook, "err", err)
		return
	}
	sum := d.retired[key]
	sum.add(&last)
	d.retired[key] = sum
}

// counts are an attachment's counters without what Explain added.
func (a *attachment) counts() (Counts, error) {
	c, err := readStats(a.stats)
	for i, e := range a.explained {
		c[i].Packets -= min(c[i].Packets, e.Packets)
		c[i].Bytes -= min(c[i].Bytes, e.Bytes)
	}
	return c, err
}

// readStats sums a port's counters over the CPUs.
func readStats(m *ebpf.Map) (out Counts, err error) {
	cpus, err := possibleCPUs()
	if err != nil {
		return out, err
	}
	keys := make([]uint32, reason.Count)
	values := make([]bpfobj.Count, len(keys)*cpus)
	n, err := readPerCPU(m, keys, values)
	if err != nil {
		return out, fmt.Errorf("reading counters: %w", err)
	}
	for i, key := range keys[:n] {
		out[key] = sum(values[i*cpus : (i+1)*cpus])
	}
	return out, nil
}
