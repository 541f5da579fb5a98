// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/lib/geo"
)

// FlowsEach is how many packets there are to one that is sampled, on average.
const FlowsEach = 64

// Flow is one of the heaviest flows. Ports are 0 where there are none.
type Flow struct {
	From, To netip.AddrPort
	Protocol uint8
	Packets  uint64 // estimated
}

// StartFlows empties the sketches of flows and lets programs that sample (Config.Flows) begin.
func (d *Datapath) StartFlows() error {
	cpus, err := possibleCPUs()
	if err != nil {
		return err
	}
	values := make([]bpfobj.XDPFlows, cpus)
	gaps := geo.NewTable(1. / FlowsEach)
	var seed [8]byte
	rand.Read(seed[:]) // never fails
	for cpu := range values {
		v := &values[cpu]
		v.Seed = binary.NativeEndian.Uint64(seed[:]) | 1
		v.Sampler.State = v.Seed ^ uint64(cpu)<<32
		for i, e := range gaps {
			at := &v.Gaps.Entry[i]
			at.Keep, at.Alias, at.Self = e.Keep, e.Alias, e.Self
		}
	}
	return d.putFlows(values)
}

// StopFlows ends it and forgets.
func (d *Datapath) StopFlows() error {
	cpus, err := possibleCPUs()
	if err != nil {
		return err
	}
	return d.putFlows(make([]bpfobj.XDPFlows, cpus))
}

func (d *Datapath) putFlows(values []bpfobj.XDPFlows) error {
	if err := d.objects.maps["flows"].Put(uint32(0), values); err != nil {
		return fmt.Errorf("writing the sketches of flows: %w", err)
	}
	return nil
}

// Flows gives the heaviest flows since StartFlows, in no order, and how many packets there were in all; both are estimates. Programs go on
// counting meanwhile.
func (d *Datapath) Flows() (all []Flow, packets uint64, err error) {
	var values []bpfobj.XDPFlows
	if err := d.objects.maps["flows"].Lookup(uint32(0), &values); err != nil {
		return nil, 0, fmt.Errorf("reading the sketches of flows: %w", err)
	}
	all, packets = mergeFlows(values)
	return all, packets, nil
}

// mergeFlows adds up what each CPU counted.
func mergeFlows(values []bpfobj.XDPFlows) (all []Flow, packets uint64) {
	at := map[Flow]int{}
	for _, v := range values {
		packets += v.Sampled * FlowsEach
		for i, n := range v.Top.Count {
			if n == 0 {
				continue
			}
			k := &v.Top.Key[i]
			f := Flow{From: flowEnd(k.From, k.FromPort), To: flowEnd(k.To, k.ToPort), Protocol: k.Protocol}
			place, known := at[f]
			if !known {
				place = len(all)
				at[f] = place
				all = append(all, f)
			}
			all[place].Packets += uint64(n) * FlowsEach
		}
	}
	return all, packets
}

func flowEnd(addr [16]byte, port uint16) netip.AddrPort {
	var raw [2]byte
	binary.NativeEndian.PutUint16(raw[:], port)
	return netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), binary.BigEndian.Uint16(raw[:]))
}
