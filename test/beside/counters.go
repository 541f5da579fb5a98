// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
)

// Count is what a rule or policy counted.
type Count struct{ Packets, Bytes uint64 }

// ReadCounters takes what `iptables-save -c` says of a table, by table, chain and place: what Linux counted.
func ReadCounters(out map[string]Count, table, saved string) {
	number := map[string]int{}
	for line := range strings.Lines(saved) {
		var packets, bytes uint64
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, ":") && len(f) == 3:
			fmt.Sscanf(f[2], "[%d:%d]", &packets, &bytes)
			out[table+" "+f[0][1:]+" policy"] = Count{packets, bytes}
		case strings.HasPrefix(line, "[") && len(f) > 2:
			fmt.Sscanf(f[0], "[%d:%d]", &packets, &bytes)
			number[f[2]]++
			out[fmt.Sprintf("%s %s %d", table, f[2], number[f[2]])] = Count{packets, bytes}
		}
	}
}

// ReadNftCounters takes what `nft -j list table` says, by table, chain and place, of rules that count.
func ReadNftCounters(out map[string]Count, listed string) error {
	var said struct {
		Nftables []struct {
			Rule *struct {
				Table, Chain string
				Expr         []struct{ Counter *Count }
			}
		}
	}
	if err := json.Unmarshal([]byte(listed), &said); err != nil {
		return fmt.Errorf("understanding what nft listed: %w", err)
	}
	number := map[string]int{}
	for _, o := range said.Nftables {
		if o.Rule == nil {
			continue
		}
		number[o.Rule.Chain]++
		for _, e := range o.Rule.Expr {
			if e.Counter != nil {
				out[fmt.Sprintf("%s %s %d", o.Rule.Table, o.Rule.Chain, number[o.Rule.Chain])] = *e.Counter
			}
		}
	}
	return nil
}

// AddCounters adds what shunt has counted and Linux was not told.
func (d *Daemon) AddCounters(out map[string]Count) {
	d.Helper()
	var rules api.Rules
	d.JSON(&rules, "show", "rules")
	add := func(key string, fast *api.Fast) {
		if fast != nil {
			c := out[key]
			out[key] = Count{c.Packets + fast.Packets, c.Bytes + fast.Bytes}
		}
	}
	for _, t := range rules.Tables {
		for _, c := range t.Chains {
			if t.Family != "ip" {
				continue
			}
			add(t.Name+" "+c.Name+" policy", c.Fast)
			for _, r := range c.Rules {
				add(fmt.Sprintf("%s %s %d", t.Name, c.Name, r.Number), r.Fast)
			}
		}
	}
}

// Since gives what was counted between two readings, as text to compare.
func Since(before, after map[string]Count) map[string]string {
	out := map[string]string{}
	for key, c := range after {
		if d := (Count{c.Packets - before[key].Packets, c.Bytes - before[key].Bytes}); d != (Count{}) {
			out[key] = fmt.Sprintf("%d packets, %d bytes", d.Packets, d.Bytes)
		}
	}
	return out
}

// Differences compares what two hosts said.
func Differences(linux, beside map[string]string) (out []string) {
	for key, want := range linux {
		if got, ok := beside[key]; !ok {
			out = append(out, fmt.Sprintf("%s: Linux says %q, with shunt nothing", key, want))
		} else if got != want {
			out = append(out, fmt.Sprintf("%s: Linux says %q, with shunt %q", key, want, got))
		}
	}
	for key, got := range beside {
		if _, ok := linux[key]; !ok {
			out = append(out, fmt.Sprintf("%s: Linux says nothing, with shunt %q", key, got))
		}
	}
	slices.Sort(out)
	return out
}
