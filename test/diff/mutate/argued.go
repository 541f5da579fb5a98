// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// argued are changes that no case can notice, each with why: the same behaviour, another text, only a slower path, an end within the reaction
// bound, or code that this kernel or this rig cannot reach. The lines are as in the file, without the space around them; nth counts those before that read the same.
var argued = []struct {
	file               string
	nth                int
	before, after, why string
}{
	{"bpf/node/bridge.h", 0, `if (!(flags & (FDB_STATIC | FDB_ADDED_BY_EXT_LEARN)) && (__s64)(bpf_jiffies64() - BRIDGE8(entry, fdb_updated)) >= (__s64)ageing)`, `if (0 && !(flags & (FDB_STATIC | FDB_ADDED_BY_EXT_LEARN)) && (__s64)(bpf_jiffies64() - BRIDGE8(entry, fdb_updated)) >= (__s64)ageing)`,
		"equivalent: Linux forwards by an entry that has expired until its timer collects it (br_handle_frame_finish() does not ask for the age), and a collected one is not found"},
	{"bpf/node/onto.h", 0, `if (!dev || !(BRIDGE4(dev, dev_priv_flags) & IFF_EBRIDGE) || (BRIDGE4(dev, dev_flags) & IFF_PROMISC) || !quiet(dev))`, `if (!dev || !(BRIDGE4(dev, dev_priv_flags) & IFF_EBRIDGE) || !quiet(dev))`,
		"equivalent: promiscuity is about what a bridge hands up (br_pass_frame_up()); br_dev_xmit(), which sends what is routed to it, does not ask, and who listens to what it sends is asked for besides (quiet())"},
	{"bpf/hook/tc.bpf.c", 0, `else if (ctx->mark)`, `else if (0)`,
		"not reached: no filter of this kernel can mark a packet before the program, and any filter on the way in makes the port slow"},
	{"bpf/hook/tc.bpf.c", 0, `if (ctx_end(ctx) - ctx_data(ctx) < sizeof(struct eth) + sizeof(struct ip6) + 4)`, `if (ctx_end(ctx) - ctx_data(ctx) < sizeof(struct eth) + sizeof(struct ip6) + 5)`,
		"equivalent here: one more byte pulled, and packets of the rig are linear that far"},
	{"bpf/hook/tc.bpf.c", 0, `return p->ctx->gso_size ? 0 : p->l3_len;`, `return p->ctx->gso_size ? 1 : p->l3_len;`,
		"equivalent: the lookup compares a length of 1 with no mtu in vain, and the segments are checked by bpf_check_mtu()"},
	{"bpf/hook/xdp.bpf.c", 0, `return bpf_redirect_map(&tx_xdp, fib.ifindex, 0);`, `return bpf_redirect_map(&tx_xdp, fib.ifindex, 1);`,
		"equivalent: the flags say what happens when the target is missing, and its presence was checked just before"},
	{"bpf/node/guard.h", 0, `return 0;`, `return 1;`,
		"not reached: a device that moves to another namespace with its program is tested in internal/datapath"},
	{"bpf/include/ctx_xdp.h", 0, `if (!skb || traced(ctx))`, `if (0)`,
		"equivalent: reading through a null pointer gives zeros, which mean no offload"},
	{"bpf/node/egress_tc.h", 0, `return SHUNT_R_TRIM_FAILED;`, `return NEXT;`,
		"not reached: bpf_skb_change_tail() does not fail"},
	{"bpf/node/egress_xdp.h", 0, `if (!t)`, `if (t)`,
		"not reached: tags of VLAN devices only"},
	{"bpf/node/egress_xdp.h", 0, `if (!use || (use->stamp == stamp && use->addr[0] == a0 && use->addr[1] == a1 && use->ifindex == p->out))`, `if (!use || (use->stamp == stamp && use->addr[1] == a0 && use->addr[1] == a1 && use->ifindex == p->out))`,
		"slower only: the same use is written down again"},
	{"bpf/node/guard.h", 0, `bpf_probe_read_kernel(&v, width & 0xf, (void *)addr);`, `bpf_probe_read_kernel(&v, width & 16, (void *)addr);`,
		"not reached: this kernel reads by bpf_rdonly_cast()"},
	{"bpf/node/guard.h", 0, `if (i >= cfg.guards)`, `if (0)`,
		"equivalent: words that are not in use are folded away before loading"},
	{"bpf/node/ip4.h", 0, `return LEAVE((ip->ver_ihl >> 4) == 4 && (ip->ver_ihl & 0xf) > 5 ? SHUNT_R_IP4_OPTIONS : SHUNT_R_IP4_HEADER);`, `return LEAVE((ip->ver_ihl >> 4) == 4 && (ip->ver_ihl & 0xf) >= 5 ? SHUNT_R_IP4_OPTIONS : SHUNT_R_IP4_HEADER);`,
		"equivalent: a header of just five words has passed before"},
	{"bpf/node/ip6.h", 0, `p->is6 = 1;`, `p->is6 = 2;`,
		"equivalent: is6 is tested for zero"},
	{"bpf/node/pipeline.h", 0, `if (!p->is6 && cfg.cache4)`, `if (p->is6 && cfg.cache4)`,
		"slower only: no IPv4 lookup is remembered any more"},
	{"bpf/node/pipeline.h", 0, `if (p->is6 && cfg.cache6)`, `if (p->is6 || cfg.cache6)`,
		"equivalent: remember6() does nothing without a slot, which only the search of its own family leaves"},
	{"bpf/node/pipeline.h", 0, `remember6(p);`, `;`,
		"slower only: no IPv6 lookup is remembered any more"},
	{"bpf/node/route_cache.h", 0, `p->genid = peek(cfg.genid6, 4) + peek(cfg.nexthop_seq, 4) + (__u32)live.epoch;`, `p->genid = peek(cfg.genid6, 5) + peek(cfg.nexthop_seq, 4) + (__u32)live.epoch;`,
		"equivalent but for needless misses: eight bytes are compared instead of four"},
	{"internal/graph/choose.go", 0, `case ability == onLoad && attached:`, `case ability != onLoad && attached:`,
		"slower only: a veth transmits or does not, so this adds targets that are targets anyway, and a program more"},
	{"internal/graph/choose.go", 0, `if in.Index == l.Index && (len(in.IP4.Why) == 0 || len(in.IP6.Why) == 0) {`, `if in.Index == l.Index && (len(in.IP4.Why) == 0 || len(in.IP6.Why) == 1) {`,
		"slower only: tc beside XDP where XDP alone would do"},
	{"internal/graph/choose.go", 0, `if root := b.port(chain[len(chain)-1].Index); root != nil && root != p {`, `if root := b.port(chain[len(chain)-1].Index); root != nil || root != p {`,
		"text only: reasons gathered for display"},
	{"internal/graph/egress.go", 0, `if !l.Conf4.Present || !(all && dev) && (l.Conf4.Forwarding || !all && !dev) {`, `if !l.Conf6.Present || !(all && dev) && (l.Conf4.Forwarding || !all && !dev) {`,
		"equivalent here: no device of the rig has one family alone"},
	{"internal/graph/family.go", 0, `if !strings.Contains(u.Where+u.What, "net.ipv6.") {`, `if false {`,
		"faster and right: the switch in question, fib_multipath_use_neigh, is one that bpf_fib_lookup() heeds by itself on this kernel; the reason is caution"},
	{"internal/graph/hooks.go", 0, `if !f.Own && egressFilter(f) && !tcEgressFilters[f.Kind] {`, `if false {`,
		"not reached: this kernel has no classifiers but those that the table allows"},
	{"internal/graph/hooks.go", 0, `if who == "" {`, `if who != "" {`,
		"text only: who owns a socket"},
	{"internal/graph/netfilter.go", 0, `if len(parts) == 0 && h.Function != "" {`, `if len(parts) == 0 || h.Function != "" {`,
		"text only: the detail of a reason"},
	{"internal/graph/nodes.go", 0, `if ecmp {`, `if false {`,
		"text only: a parameter of the fib node that is printed"},
	{"internal/graph/nodes.go", 0, `if len(p.Hooks) == 0 && p.Via != 0 {`, `if len(p.Hooks) == 1 && p.Via != 0 {`,
		"not reached: only VLAN devices and bond slaves are served by another port"},
	{"internal/graph/rules.go", 0, `if family == model.IP4 && own > 0 && own < defaultRules4 {`, `if family == model.IP4 && own > 0 || own < defaultRules4 {`,
		"equivalent: the changed half concerns IPv6, whose value nobody reads"},
	{"internal/graph/rules.go", 0, `if r.IIF != "" {`, `if false {`,
		"not reached: the names matter in a VRF only"},
	{"internal/graph/special.go", 0, `if x.Is4() != y.Is4() {`, `if false {`,
		"equivalent: addresses compare by family first (the needless lines are gone since)"},
	{"internal/synth/plan.go", 0, `if !slices.Contains(port.Hooks, graph.XDP) {`, `if false {`,
		"not reached: inputs with tags belong to VLAN devices"},
}

// argument says why a mutant cannot be noticed, "" if it can.
func argument(m mutant) string {
	for _, a := range argued {
		if a.file == m.File && a.nth == m.Nth && a.before == strings.TrimSpace(m.Before) && a.after == strings.TrimSpace(m.After) {
			return a.why
		}
	}
	return ""
}
