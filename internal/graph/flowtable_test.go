// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// The place of a flow table is taken only where nothing lets a packet past it and all connections are looked up.
func TestFlowtableAtIngress(t *testing.T) {
	table := model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth0", Kind: model.Flowtable, Table: "t", Chain: "ft", PolicyAccept: true, Extra: []string{"flowtable ft"}}
	hardware, chain := table, table
	hardware.Extra = append(hardware.Extra[:1:1], "hardware offload")
	chain.Kind, chain.Rules, chain.Extra = model.NFTables, 1, nil
	raw := nfChain(model.IP4, "prerouting", 1)
	raw.Priority = -300
	both := map[model.Family]tracking{model.IP4: {on: true}, model.IP6: {on: true}}
	for _, c := range []struct {
		name     string
		hook     model.NFHook
		also     []change
		tracking map[model.Family]tracking
		kernel   bool
		want     bool
	}{
		{"a flow table", table, nil, both, true, true},
		{"a kernel that cannot find its entries", table, nil, both, false, false},
		{"one that the card knows", hardware, nil, both, true, false},
		{"a chain beside it", table, []change{nf(chain)}, both, true, false},
		{"rules before connection tracking", table, []change{nf(raw)}, both, true, false},
		{"a family without connections", table, nil, map[model.Family]tracking{model.IP4: {on: true}}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, p := router(append(c.also, nf(c.hook))...)
			p.Kernel.Flowtable = c.kernel
			b := &builder{net: n, policy: p}
			b.tracking = c.tracking
			if got := b.entersFlowtable(c.hook); got != c.want {
				t.Errorf("its place is taken: %v, want %v", got, c.want)
			}
		})
	}
}
