// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

const twoOrders = "devices differ in the order of the chains of this priority, or the kernel does not tell it"

// named says whether chains or flow tables name a device. What they name is, from Linux 6.16 on, whatever device has that name; before, the devices that
// were put there, by the names that they have now, less those that are gone: the kernel changes what it tells when they do, in no transaction.
func (t *nftTables) named(device string) bool {
	for i := range t.dump.Chains {
		if slices.Contains(t.dump.Chains[i].Devices, device) {
			return true
		}
	}
	return slices.ContainsFunc(t.dump.Flowtables, func(f nftables.Flowtable) bool { return slices.Contains(f.Devices, device) })
}

// noteDevice takes in that a device is new or has another name.
func (r *Reader) noteDevice(names ...string) {
	if !r.nft.devices {
		return
	}
	r.stale |= Netfilter
	if slices.ContainsFunc(names, r.nft.named) {
		r.nft.valid = false
	}
}

// orderOnDevices marks chains at ingress, and at egress, of which it is not known who is called first: a chain may have been put on one device before another chain and
// on a second device behind it.
func orderOnDevices(rules *ruleset.Ruleset, hooks []rawHook) {
	for _, hook := range []ruleset.Hook{ruleset.Ingress, ruleset.Egress} {
		orderAt(hook, rules, hooks)
	}
}

func orderAt(hook ruleset.Hook, rules *ruleset.Ruleset, hooks []rawHook) {
	lists := map[string][]hookID{}
	for i := range hooks {
		if h := &hooks[i]; h.Family == model.Netdev && h.Hook == hook.String() {
			lists[h.Device] = append(lists[h.Device], h.id())
		}
	}
	type chain struct {
		id hookID
		*ruleset.Base
	}
	var chains []chain
	eachAt(hook, rules, func(t *ruleset.Table, c *ruleset.Chain) { chains = append(chains, chain{registered(t, c), c.Base}) })
	for i, a := range chains {
		for _, b := range chains[:i] {
			if a.Priority != b.Priority {
				continue
			}
			together, apart := false, false
			for _, list := range lists {
				if x, y := slices.Index(list, a.id), slices.Index(list, b.id); x >= 0 && y >= 0 {
					together = true
					apart = apart || (x < y) != (a.Order < b.Order)
				}
			}
			unlisted := !together && slices.ContainsFunc(a.Devices, func(d string) bool {
				return slices.ContainsFunc(b.Devices, func(e string) bool { return overlap(d, e) })
			})
			for _, base := range []*ruleset.Base{a.Base, b.Base} {
				if (apart || unlisted) && !slices.Contains(base.Unknown, twoOrders) {
					base.Unknown = append(slices.Clone(base.Unknown), twoOrders)
				}
			}
		}
	}
}

// overlap says whether two names or patterns can mean one device.
func overlap(a, b string) bool {
	x, wildA := strings.CutSuffix(a, "*")
	y, wildB := strings.CutSuffix(b, "*")
	return a == b || wildA && strings.HasPrefix(y, x) || wildB && strings.HasPrefix(x, y)
}

// eachAt calls take for every chain at a hook that is called at all.
func eachAt(hook ruleset.Hook, rules *ruleset.Ruleset, take func(*ruleset.Table, *ruleset.Chain)) {
	for i := range rules.Tables {
		t := &rules.Tables[i]
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base != nil && c.Base.Hook == hook && !t.Dormant {
				take(t, c)
			}
		}
	}
}
