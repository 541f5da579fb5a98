// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"sort"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Reasons is the closed list with how often each was taken.
func Reasons(s *control.State, d *datapath.Datapath) ([]api.ReasonRow, error) {
	rows := make([]api.ReasonRow, reason.Count)
	for code := range rows {
		info := reason.Code(code).Describe()
		rows[code] = api.ReasonRow{Reason: info.Name, Class: info.Class.String(), Doc: info.Doc}
	}
	for i := range s.Graph.Ports {
		p := s.Graph.Ports[i]
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			c, _, err := d.Counters(p.Index, hook)
			if err != nil {
				return nil, err
			}
			for code, n := range c {
				if n.Packets == 0 {
					continue
				}
				row := &rows[code]
				row.Packets += n.Packets
				row.Bytes += n.Bytes
				if row.By == nil {
					row.By = map[string]uint64{}
				}
				row.By[p.Name+" "+string(hook)] += n.Packets
			}
		}
	}
	return rows, nil
}

// Programs lists what is loaded, by interface and hook.
func Programs(s *control.State, d *datapath.Datapath) ([]api.ProgramRow, error) {
	var errs []error
	rows := []api.ProgramRow{}
	d.Programs(func(index int, hook graph.Hook, prog *ebpf.Program) {
		row := api.ProgramRow{Interface: name(s, index), Ifindex: index, Hook: string(hook), Tier: string(d.Tier(index, hook))}
		if prog != nil {
			errs = append(errs, program(prog, &row))
		}
		rows = append(rows, row)
	})
	sort.Slice(rows, func(i, j int) bool {
		return rows[i].Ifindex < rows[j].Ifindex || rows[i].Ifindex == rows[j].Ifindex && rows[i].Hook > rows[j].Hook
	})
	return rows, errors.Join(errs...)
}

// program fills in what the kernel says of a program; fields that it keeps to itself stay zero.
func program(prog *ebpf.Program, row *api.ProgramRow) error {
	info, err := prog.Info()
	if err != nil {
		return fmt.Errorf("reading about the program of %s: %w", row.Interface, err)
	}
	id, _ := info.ID()
	row.ID, row.Name, row.Tag = uint32(id), info.Name, info.Tag
	if size, err := info.TranslatedSize(); err == nil {
		row.Instructions = size / 8
	}
	row.Verified, _ = info.VerifiedInstructions()
	if size, err := info.JitedSize(); err == nil {
		row.JITed = int(size)
	}
	row.Memory, _ = info.Memlock()
	return nil
}

// name of a device, or its ifindex where it is gone.
func name(s *control.State, index int) string {
	if l := s.Network.Link(index); l != nil {
		return model.PrintableName(l.Name)
	}
	return fmt.Sprintf("ifindex %d", index)
}
