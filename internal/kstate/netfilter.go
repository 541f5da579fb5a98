// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Hook numbers of the families, as nf_tables, legacy tables and nfnetlink_hook use them.
var (
	inetHooks   = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	arpHooks    = []string{"input", "output", "forward"}
	netdevHooks = []string{"ingress", "egress"}
)

func hookName(family model.Family, num uint32) string {
	names := inetHooks
	switch family {
	case model.ARP:
		names = arpHooks
	case model.Netdev:
		names = netdevHooks
	}
	if int(num) < len(names) {
		return names[num]
	}
	return "unknown"
}

// Netfilter's family numbers (NFPROTO_*).
const (
	nfInet   = 1
	nfIP4    = 2
	nfARP    = 3
	nfNetdev = 5
	nfBridge = 7
	nfIP6    = 10
)

func nfFamily(pf byte) (model.Family, bool) {
	switch pf {
	case nfIP4:
		return model.IP4, true
	case nfIP6:
		return model.IP6, true
	case nfARP:
		return model.ARP, true
	case nfBridge:
		return model.BridgeFamily, true
	case nfNetdev:
		return model.Netdev, true
	}
	return 0, false
}

// readNetfilter reads the rule set, and joins three views for the list of hooks. The tables say what their chains hold; the list of registered hooks (nfnetlink_hook) says
// whether anything hooks in that no table explains. NAT chains are only in the tables: the list shows the NAT core instead.
func (r *Reader) readNetfilter(n *model.Network) {
	var hooks []model.NFHook
	nft, err := r.readNFT()
	if err != nil {
		r.fault(Netfilter, "nf_tables", err)
		nft = &nftTables{dump: &nftables.Dump{}}
	}
	for _, h := range nft.hooks {
		hooks = append(hooks, onEachDevice(h, n.Links)...)
	}
	legacy, changed := r.readLegacy()
	tracked := map[model.Family]bool{}
	for _, t := range legacy {
		hooks = append(hooks, t.hooks...)
		tracked[t.family] = tracked[t.family] || t.tracks
	}
	var devices []string
	if nft.devices { // nothing but nf_tables registers hooks on devices
		for i := range n.Links {
			devices = append(devices, n.Links[i].Name)
		}
	}
	bridges := slices.ContainsFunc(n.Links, func(l *model.Link) bool { return l.Kind == kindBridge })
	registered, err := r.readHooks(devices)
	order := registered
	if errors.Is(err, errNoHookList) {
		registered, err = r.walkHooks(bridges)
		if order = registered; err != nil {
			maps.Copy(tracked, nft.tracked)
			registered, err = r.deriveHooks(tracked, bridges)
		}
	}
	if err != nil {
		// The tables alone cannot exclude a hook that is in none of them.
		r.fault(Netfilter, "netfilter hooks", err)
	}
	n.Filter = r.readFilter(nft, legacy, changed, order)
	hooks = append(hooks, unexplained(registered, hooks)...)
	slices.SortStableFunc(hooks, func(a, b model.NFHook) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(slices.Index(inetHooks, a.Hook), slices.Index(inetHooks, b.Hook)),
			cmp.Compare(a.Device, b.Device), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Chain, b.Chain))
	})
	n.Netfilter = hooks
}

// onEachDevice gives a hook on "eth*" once for each device that the pattern means.
func onEachDevice(h model.NFHook, links []*model.Link) (out []model.NFHook) {
	prefix, pattern := strings.CutSuffix(h.Device, "*")
	if !pattern {
		return []model.NFHook{h}
	}
	for i := range links {
		if strings.HasPrefix(links[i].Name, prefix) {
			h.Device = links[i].Name
			out = append(out, h)
		}
	}
	return out
}

// unexplained are the registered hooks that are not the entry of a chain, flow table or legacy table in known. Each of those explains one
// hook on a device or in a family.
func unexplained(registered []rawHook, known []model.NFHook) (out []model.NFHook) {
	used := make([]bool, len(known))
	explains := func(k model.NFHook, h rawHook) bool {
		if k.Family != h.Family || k.Hook != h.Hook || k.Device != "" && k.Device != h.Device || k.Kind != h.Kind {
			return false
		}
		if h.Chain != "" { // named by the kernel; a walk gives only the priority
			return k.Table == h.Table && k.Chain == h.Chain
		}
		return k.Priority == h.Priority
	}
	for _, h := range registered {
		if h.Kind == model.NFTables || h.Kind == model.Legacy || h.Kind == model.Flowtable {
			explained := false
			for i := range known {
				if explained = !used[i] && explains(known[i], h); explained {
					used[i] = true
					break
				}
			}
			if explained {
				continue
			}
			// Registered after the tables were read, or by a table that could not be read: its rules are not known.
			h.Kind = model.NFOther
			h.Function = strings.TrimSpace(h.Function + " " + h.Table + " " + h.Chain)
		}
		out = append(out, h.NFHook)
	}
	return out
}

// classify says what a hook function belongs to, by its symbol.
func classify(function string) model.NFKind {
	for _, c := range []struct {
		prefix string
		kind   model.NFKind
	}{
		{"ipt_do_table", model.Legacy}, {"ip6t_do_table", model.Legacy}, {"arpt_do_table", model.Legacy},
		{"iptable_", model.Legacy}, {"ip6table_", model.Legacy}, {"arptable_", model.Legacy},
		{"ebt_", model.Legacy}, {"ebtable_", model.Legacy},
		{"nft_do_chain", model.NFTables},
		{"ipv4_conntrack_", model.Conntrack}, {"ipv6_conntrack_", model.Conntrack}, {"ipv6_defrag", model.Conntrack},
		{"ipv4_helper", model.Conntrack}, {"ipv6_helper", model.Conntrack}, {"ipv4_confirm", model.Conntrack},
		{"ipv6_confirm", model.Conntrack}, {"nf_confirm", model.Conntrack}, {"nf_nat_", model.Conntrack}, {"nf_ct_bridge_", model.Conntrack},
		{"nf_flow_offload_", model.Flowtable},
		{"nf_hook_run_bpf", model.NFBPF}, {"nf_is_valid_access", model.NFBPF},
		// br_netfilter: these act only on packets that came through a bridge.
		{"br_nf_", model.BridgeNF}, {"ip_sabotage_in", model.BridgeNF},
		// AppArmor checks marked packets against the label of their socket; a forwarded packet has none, and passes.
		{"apparmor_ip_postroute", model.NFLocal},
	} {
		if strings.HasPrefix(function, c.prefix) {
			return c.kind
		}
	}
	return model.NFOther
}

// asked is the netlink question to a subsystem of nfnetlink.
func asked(subsys, msg uint16, family byte, dump bool, attributes []byte) request {
	return request{proto: unix.NETLINK_NETFILTER, typ: subsys<<8 | msg, dump: dump, body: append([]byte{family, 0, 0, 0}, attributes...)}
}
