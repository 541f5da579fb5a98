// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestOrderOnDevices: of two chains of one priority it is known who is called first if every device that calls both says the same.
func TestOrderOnDevices(t *testing.T) {
	listed := func(device string, chains ...string) (out []rawHook) {
		for _, c := range chains {
			out = append(out, rawHook{NFHook: model.NFHook{Family: model.Netdev, Hook: "ingress", Device: device, Kind: model.NFTables, Table: "t", Chain: c}, table: nfNetdev})
		}
		return out
	}
	for _, c := range []struct {
		what   string
		a, b   []string // devices
		prio   int32    // of b
		hooks  []rawHook
		unsure bool
	}{
		{"apart", []string{"e0"}, []string{"e1"}, 0, nil, false},
		{"together, unlisted", []string{"e0", "e1"}, []string{"e1"}, 0, nil, true},
		{"by a pattern", []string{"e*"}, []string{"e1"}, 0, nil, true},
		{"another priority", []string{"e0"}, []string{"e0"}, 1, nil, false},
		{"together, listed", []string{"e0"}, []string{"e0"}, 0, listed("e0", "b", "a"), false},
		{"the same on both", []string{"e0", "e1"}, []string{"e0", "e1"}, 0, slices.Concat(listed("e0", "b", "a"), listed("e1", "b", "a")), false},
		{"different", []string{"e0", "e1"}, []string{"e0", "e1"}, 0, slices.Concat(listed("e0", "b", "a"), listed("e1", "a", "b")), true},
	} {
		base := func(devices []string, priority int32) *ruleset.Base {
			return &ruleset.Base{Hook: ruleset.Ingress, Priority: priority, Type: "filter", Devices: devices}
		}
		rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Dialect: ruleset.NFT, Family: ruleset.Netdev, Name: "t", Chains: []ruleset.Chain{{Name: "a", Base: base(c.a, 0)}, {Name: "b", Base: base(c.b, c.prio)}}}}}
		orderChains(rs, c.hooks)
		orderOnDevices(rs, c.hooks)
		for _, chain := range rs.Tables[0].Chains {
			if got := len(chain.Base.Unknown) > 0; got != c.unsure {
				t.Errorf("%s: chain %s: %v", c.what, chain.Name, chain.Base.Unknown)
			}
		}
	}
}

// TestDevicesOfChains: what the model says of the devices of a chain is what the kernel says after devices were made, renamed and removed.
func TestDevicesOfChains(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link add e0 type veth peer name e1
nft 'table netdev n { chain c { type filter hook ingress devices = { e0, e1 } priority 0; ip saddr 192.0.2.1 drop; }; }'`)
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	devices := func(rs *ruleset.Ruleset) []string { return rs.Tables[0].Chains[0].Base.Devices }
	for _, script := range []string{"ip link set e0 name z0", "ip link add e0 type veth peer name y0", "ip link set e1 name x1; ip link set z0 name e1", "ip link del y0", "ip link add e0 type veth peer name y0"} {
		ns.run(t, script)
		n := waitFor(t, script, r, Links)
		for range 3 { // events of both ends
			if p, err := r.Wait(0); err != nil {
				t.Fatal(err)
			} else if n, err = r.Read(p); err != nil {
				t.Fatal(err)
			}
		}
		if want := devices(&readAll(t).Ruleset); !slices.Equal(devices(n.Filter), want) {
			t.Errorf("after %q: devices %v, the kernel says %v", script, devices(n.Filter), want)
		}
		var hooked []string
		for _, h := range n.Netfilter {
			if h.Family == model.Netdev {
				hooked = append(hooked, h.Device)
			}
		}
		if want := devices(n.Filter); !slices.Equal(hooked, want) {
			t.Errorf("after %q: hooks on %v, chains on %v", script, hooked, want)
		}
	}
}
