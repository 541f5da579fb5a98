// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/model"
)

// What is asked of linux/netfilter/nf_tables.h.
const (
	nftTableDormant = 0x1
	nftChainOffload = 0x2
	nftFlowOffload  = 0x1
	nfAccept        = 1
)

type nftName struct {
	family      byte
	table, name string
}

// nftChain is a chain with what its rules say of others.
type nftChain struct {
	*nftables.Chain
	problems []string
	nftTraits
}

// nftTraits are what the rules of a chain have to do with things beyond the chain.
type nftTraits struct {
	jumps   []string // chains of the same table
	anyJump bool     // a verdict map may lead to any chain
	sets    bool     // ipsets are asked
	tracks  bool     // connection tracking may be turned on
}

// describe fills in what the dump means for the list of hooks.
func (t *nftTables) describe() {
	t.chains = make([]*nftChain, len(t.dump.Chains))
	for i := range t.dump.Chains {
		t.chains[i] = &nftChain{Chain: &t.dump.Chains[i], problems: t.dump.ChainProblems[i]}
		t.chains[i].survey()
	}
	t.conclude()
}

// survey looks at the rules of a chain.
func (c *nftChain) survey() {
	c.nftTraits = nftTraits{}
	for _, r := range c.Rules {
		c.note(r)
	}
}

// note takes in what a rule has to do with things beyond its chain.
func (t *nftTraits) note(r *nftables.Rule) {
	for _, e := range r.Exprs {
		t.follow(e)
		if xt, ok := e.(*nftables.XT); ok && isSet(xt.Name) {
			t.sets = true
		}
		t.tracks = t.tracks || tracks(e)
	}
}

// conclude joins what the chains are like.
func (t *nftTables) conclude() {
	d := t.dump
	t.hooks, t.tracked, t.sets, t.devices = nil, map[model.Family]bool{}, false, false
	dormant := map[nftName]bool{}
	for _, in := range d.Tables {
		dormant[nftName{in.Family, in.Name, ""}] = in.Flags&nftTableDormant != 0
	}
	chains := map[nftName]*nftChain{}
	for _, c := range t.chains {
		chains[nftName{c.Family, c.Table, c.Name}] = c
		if c.Type == "nat" || c.tracks {
			t.track(c.Family)
		}
		t.sets = t.sets || c.sets
	}
	for _, c := range t.chains {
		if c.Base && !dormant[nftName{c.Family, c.Table, ""}] {
			t.hooks = append(t.hooks, c.model(reachable(c, chains))...)
		}
	}
	for i := range d.Flowtables {
		t.hooks = append(t.hooks, flowtable(&d.Flowtables[i])...)
	}
	for _, h := range t.hooks {
		t.devices = t.devices || h.Family == model.Netdev
	}
}

func (t *nftTables) track(family byte) {
	if f, ok := nfFamily(family); ok {
		t.tracked[f] = true
	}
	if family == nfInet || family == nfBridge {
		t.tracked[model.IP4], t.tracked[model.IP6] = true, true
	}
}

// follow notes where an expression can lead. Jumps are immediate verdicts; a lookup into the verdict register is a verdict map.
func (t *nftTraits) follow(e nftables.Expr) {
	switch e := e.(type) {
	case *nftables.Immediate:
		if v := e.Data.Verdict; v != nil && v.Chain != "" && !slices.Contains(t.jumps, v.Chain) {
			t.jumps = append(t.jumps, v.Chain)
		}
	case *nftables.Lookup, *nftables.Opaque:
		t.anyJump = true
	}
}

// untracked are the expressions that are not understood and leave connection tracking alone.
var untracked = setOfNames("bitwise byteorder cmp counter dup dynset exthdr fib fwd hash immediate inner last limit log lookup meta numgen " +
	"osf payload queue quota range reject rt xfrm")

// tracks says whether an expression's mere presence may turn connection tracking or defragmentation on.
func tracks(e nftables.Expr) bool {
	switch e := e.(type) {
	case *nftables.CT, *nftables.NoTrack, *nftables.NAT, *nftables.ConnLimit, *nftables.FlowOffload, *nftables.XT, *nftables.ObjRef, *nftables.Socket:
		return true
	case *nftables.Opaque:
		return !untracked[e.Name]
	}
	return false
}

// isSet says whether a match or target of iptables looks into ipsets.
func isSet(name string) bool { return name == "set" || name == "SET" }

// reachable counts the rules that a packet entering base could evaluate.
func reachable(base *nftChain, chains map[nftName]*nftChain) int {
	seen := map[*nftChain]bool{base: true}
	queue := []*nftChain{base}
	for i := 0; i < len(queue); i++ {
		c := queue[i]
		visit := func(t *nftChain) {
			if t != nil && !seen[t] {
				seen[t] = true
				queue = append(queue, t)
			}
		}
		for _, j := range c.jumps {
			visit(chains[nftName{c.Family, c.Table, j}])
		}
		if c.anyJump {
			for _, t := range chains {
				if t.Family == c.Family && t.Table == c.Table && !t.Base {
					visit(t)
				}
			}
		}
	}
	n := 0
	for _, c := range queue {
		n += len(c.Rules)
	}
	return n
}

// model gives the hooks of a base chain: one, two for the inet family, or one for each device.
func (c *nftChain) model(rules int) (out []model.NFHook) {
	h := model.NFHook{Priority: int(c.Priority), Kind: model.NFTables, Table: c.Table, Chain: c.Name, Rules: rules, NAT: c.Type == "nat", PolicyAccept: c.Policy == nfAccept}
	h.Extra = append(h.Extra, c.problems...)
	if c.Flags&nftChainOffload != 0 {
		h.Extra = append(h.Extra, "hardware offload")
	}
	switch c.Type {
	case "", "filter", "nat", "route":
	default:
		h.Extra = append(h.Extra, fmt.Sprintf("chain type %q", c.Type))
	}
	onDevices := func(hook string) {
		h.Family, h.Hook = model.Netdev, hook
		for _, d := range slices.Compact(slices.Clone(c.Devices)) {
			h.Device = d
			out = append(out, h)
		}
	}
	switch {
	case c.Family == nfInet && c.Hook == 5:
		onDevices("ingress")
	case c.Family == nfNetdev:
		onDevices(hookName(model.Netdev, c.Hook))
	case c.Family == nfInet:
		for _, f := range []model.Family{model.IP4, model.IP6} {
			h.Family, h.Hook = f, hookName(f, c.Hook)
			out = append(out, h)
		}
	default:
		f, known := nfFamily(c.Family)
		if !known {
			h.Extra = append(h.Extra, fmt.Sprintf("family %d", c.Family))
		}
		h.Family, h.Hook = f, hookName(f, c.Hook)
		out = append(out, h)
	}
	return out
}

func flowtable(f *nftables.Flowtable) (out []model.NFHook) {
	h := model.NFHook{Family: model.Netdev, Hook: "ingress", Kind: model.Flowtable, PolicyAccept: true, Table: f.Table, Chain: f.Name,
		Priority: int(f.Priority), Extra: []string{"flowtable " + f.Name}}
	if f.Flags&nftFlowOffload != 0 {
		h.Extra = append(h.Extra, "hardware offload")
	}
	devices := slices.Clone(f.Devices) // the kernel's order changes with the devices
	slices.Sort(devices)
	for _, d := range slices.Compact(devices) {
		h.Device = d
		out = append(out, h)
	}
	return out
}

func setOfNames(names string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(names) {
		out[n] = true
	}
	return out
}
