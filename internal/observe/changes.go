// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// changes lists what a round made different, one sentence each; old is nil for the first.
func changes(old, s *control.State) (out []string) {
	out = []string{}
	if old == nil {
		for i := range s.Graph.Ports {
			if face := describe(s, s.Graph.Ports[i]); face.Hook != "none" {
				out = append(out, fmt.Sprintf("%s: attached at %s, %s%s", face.Name, face.Hook, face.State, because(face)))
			}
		}
		return append(out, tables(&synth.Tables{}, &s.Plan.Tables)...)
	}
	for i := range s.Graph.Ports {
		p := s.Graph.Ports[i]
		was := port(old, p.Index)
		if was == nil {
			out = append(out, "new interface "+p.Name+because(describe(s, p)))
			continue
		}
		out = append(out, portChanges(old, s, was, p)...)
	}
	for i := range old.Graph.Ports {
		if p := old.Graph.Ports[i]; port(s, p.Index) == nil {
			out = append(out, "interface "+p.Name+" is gone")
		}
	}
	return append(out, tables(&old.Plan.Tables, &s.Plan.Tables)...)
}

func portChanges(old, s *control.State, was, p *graph.Port) (out []string) {
	if was == p && p.Via == 0 && len(old.Failures)+len(s.Failures) == 0 && old.Network.Link(p.Index) == s.Network.Link(p.Index) && old.Plan.Port(p.Index) == s.Plan.Port(p.Index) {
		return nil // all that is told of it follows from these; there may be a thousand
	}
	a, b := describe(old, was), describe(s, p)
	if a.Name != b.Name {
		out = append(out, fmt.Sprintf("interface %s is now called %s", a.Name, b.Name))
	}
	if a.Hook != b.Hook {
		out = append(out, fmt.Sprintf("%s: programs at %s → %s", b.Name, a.Hook, b.Hook))
	}
	switch {
	case a.State != b.State:
		out = append(out, fmt.Sprintf("%s: %s → %s%s", b.Name, a.State, b.State, because(b)))
	case a.IP4 != b.IP4 || a.IP6 != b.IP6 || !slices.Equal(a.Reasons, b.Reasons):
		out = append(out, fmt.Sprintf("%s: still %s%s", b.Name, b.State, because(b)))
	}
	pa, pb := programs(old.Plan, p.Index), programs(s.Plan, p.Index)
	for hook, prog := range pb {
		if before, had := pa[hook]; had && before.Config != prog.Config {
			out = append(out, fmt.Sprintf("%s: new %s program", b.Name, hook))
		}
	}
	return out
}

func programs(p *synth.Plan, index int) map[graph.Hook]synth.Program {
	out := map[graph.Hook]synth.Program{}
	if port := p.Port(index); port != nil {
		for _, prog := range port.Programs {
			out[prog.Hook] = prog
		}
	}
	return out
}

// because is the list of distinct reasons in brackets.
func because(face api.Interface) string {
	var names []string
	for _, r := range face.Reasons {
		n := r.Reason
		if r.Family != "" && !strings.Contains(n, r.Family) {
			n = r.Family + " " + n
		}
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// tables says which shared tables differ and by how much.
func tables(a, b *synth.Tables) (out []string) {
	return slices.Concat(
		tableChange("egress by XDP", a.TxXDP, b.TxXDP), tableChange("egress by TC", a.TxTC, b.TxTC), tableChange("egress tags", a.Tags, b.Tags),
		tableChange("tagged inputs", a.VLANs, b.VLANs), tableChange("local addresses", a.Local4, b.Local4),
		tableChange("IPv4 notable routes", a.Special4, b.Special4), tableChange("IPv6 notable routes", a.Special6, b.Special6),
	)
}

func tableChange[K, V comparable](what string, a, b map[K]V) []string {
	if maps.Equal(a, b) {
		return nil
	}
	added, removed, changed := 0, 0, 0
	for k, v := range b {
		if old, had := a[k]; !had {
			added++
		} else if old != v {
			changed++
		}
	}
	for k := range a {
		if _, has := b[k]; !has {
			removed++
		}
	}
	var parts []string
	for _, p := range []struct {
		sign string
		n    int
	}{{"+", added}, {"-", removed}, {"~", changed}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s%d", p.sign, p.n))
		}
	}
	return []string{what + ": " + strings.Join(parts, " ")}
}
