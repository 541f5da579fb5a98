// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// named are bugs that anybody could make, each tested besides the sample: what must never be missed.
var named = []struct{ what, file, line, with string }{
	{"TTL not decremented", "bpf/node/ttl.h", `ip->ttl--;`, ``},
	{"hop limit not decremented", "bpf/node/egress_xdp.h", `ip->hop_limit--;`, ``},
	{"TTL of 1 forwarded", "bpf/node/ip4.h", `ip->ttl <= 1`, `ip->ttl < 1`},
	{"checksum not updated", "bpf/node/ttl.h", `check \+= bpf_htons\(0x0100\);`, ``},
	{"checksum without its carry", "bpf/node/ttl.h", `check \+ \(check >= 0xffff\)`, `check`},
	{"bad checksums forwarded", "bpf/node/ip4.h", `ip4_sum\(ip\) != 0xffff`, `0`},
	{"strict reverse path taken for loose", "bpf/node/rpf.h", `mode == SHUNT_RPF_STRICT && rev.ifindex != p->in->ifindex`, `0`},
	{"no reverse path check", "bpf/node/rpf.h", `mode == SHUNT_RPF_NONE`, `1`},
	{"next hops not reported for refreshing: stale MAC addresses", "internal/synth/plan.go", `c.NeighUse = 1`, `c.NeighUse = 0`},
	{"remembered next hops outlive the daemon's knowledge", "bpf/node/route_cache.h", ` \+ \(__u32\)live.epoch`, ``},
	{"remembered next hops outlive routes", "bpf/node/route_cache.h", `n->genid == p->genid && len <= n->max_len`, `len <= n->max_len`},
	{"route mtu ignored", "bpf/node/special.h", `mtu_len\(p\) > s->mtu`, `0`},
	{"device mtu ignored", "bpf/node/fib.h", `p->fib->tot_len = fib_len\(p\);`, `p->fib->tot_len = 0;`},
	{"wrong egress", "bpf/node/egress_xdp.h", `bpf_redirect_map\(&tx_xdp, p->out, XDP_PASS\) == XDP_REDIRECT \? NEXT`, `bpf_redirect_map(&tx_xdp, p->out ^ 1, XDP_PASS) == XDP_REDIRECT ? NEXT`},
	{"wrong egress at tc", "bpf/node/egress_tc.h", `bpf_redirect_neigh\(p->out,`, `bpf_redirect_neigh(p->out ^ 1,`},
	{"one family guarded by the other's words", "bpf/node/guard.h", `unchanged6\(p\) : unchanged4\(p\)`, `unchanged4(p) : unchanged6(p)`},
	{"source MAC address left as it came", "bpf/node/egress_xdp.h", `frame\[2\] = p->macs\[2\];`, `;`},
	{"foreign MAC addresses taken", "bpf/node/vlan.h", `return LEAVE\(SHUNT_R_DST_MAC\);`, `;`},
	{"fragments forwarded", "bpf/node/ip4.h", `ip->frag & IP4_FRAG_MASK`, `0`},
	{"own addresses as sources forwarded", "bpf/node/local.h", `return SHUNT_R_LOCAL_SOURCE;`, `;`},
	{"guards not compared", "bpf/node/guard.h", `live.stale = 1;`, `return NEXT;`},
	{"the generic program keeps an old configuration", "internal/datapath/generic.go", `g.numbers.WriteAt\(b\[:\], at\)`, `if was := g.old; len(was) == 0 { g.numbers.WriteAt(b[:], at) }`},
	{"the generic program meets another port's configuration", "bpf/include/port.h", `__u64 number = current \? \*current : 0;`, `__u64 number = current ? *current - 1 : 0;`},
	{"padding left behind the packet", "bpf/node/egress_xdp.h", `return pad && bpf_xdp_adjust_tail`, `return 0 && bpf_xdp_adjust_tail`},
	{"a bridge learns nothing from fast frames", "bpf/node/bridge.h", `if \(flags & BR_LEARNING\) \{`, `if (0) {`},
	{"stations that have moved stay where they were", "bpf/node/bridge.h", `BRIDGE8\(m, entry, fdb_port\) != port \|\|`, `0 ||`},
	{"stations in use age and are forgotten", "bpf/node/bridge.h", `>= \(__s64\)most\)`, `>= (__s64)ageing * 1000)`},
	{"entries that have expired are used", "bpf/node/bridge.h", `if \(!\(flags & \(FDB_STATIC`, `if (0 && !(flags & (FDB_STATIC`},
	{"every port reflects", "bpf/node/bridge.h", `to == port \|\| `, ``},
	{"isolated ports reach each other", "bpf/node/bridge.h", `\(flags & flags_to & BR_ISOLATED\)`, `0`},
	{"ports in every state forward", "bpf/node/bridge.h", `BRIDGE1\(m, port, port_state\) == BR_STATE_FORWARDING && `, ``},
	{"locked ports let everybody in", "bpf/node/bridge.h", `!\(flags & ~\(__u64\)BR_PLAIN\) &&`, ``},
	{"backup ports are not asked for", "bpf/node/bridge.h", ` \|\| BRIDGE8\(m, to, port_backup\)`, ``},
	{"entries of the bridge itself are forwarded to", "bpf/node/bridge.h", `\(flags & FDB_LOCAL\) \|\| `, ``},
	{"group addresses forwarded by entries", "bpf/node/bridge.h", `if \(eth->dst\[0\] & 1\)`, `if (0)`},
	{"groups as senders forwarded", "bpf/node/bridge.h", `if \(\(src & 1\) \|\| !src\)`, `if (0)`},
	{"a promiscuous bridge gets nothing", "bpf/node/bridge.h", `if \(BRIDGE4\(m, dev_br, dev_flags\) & IFF_PROMISC\)`, `if (0)`},
	{"a port's mtu ignored", "bpf/node/shown.h", `!is_gso\(p\) && p->len \+ more > mtu`, `0 && p->len + more > mtu`},
	{"br_netfilter's check of the header left out", "bpf/node/bridge.h", `if \(r != NEXT\)$`, `if (0)`},
	{"br_netfilter's mtu left out", "bpf/node/bridge.h", `return len > mtu \? -SHUNT_R_MTU : \(int\)len;`, `return (int)len;`},
	{"padding of bridged packets not cut", "bpf/node/bridge.h", `if \(r == NEXT && p->l3_len\)`, `if (0)`},
	{"a bridge's own switch of br_netfilter ignored", "bpf/node/bridge.h", `if \(how == SHUNT_CALLED_NONE && options\)`, `if (0)`},
	{"bridged packets are not shown to rules", "bpf/node/shown.h", `return \(cfg.shown4 \|\| cfg.shown6\) && p->shown;`, `return 0;`},
	{"fragments shown to rules", "bpf/node/shown.h", `ip->frag & IP4_FRAG_MASK`, `0`},
	{"a bridge takes one off the TTL that rules see", "bpf/node/shown.h", `w->value\[SHUNT_V_TTL\]\+\+;`, `;`},
	{"rules behind the route ask for the port", "bpf/node/pipeline.h", `bridged\(p\) \? p->in->ifindex : p->out`, `p->out`},
	{"connections that begin or end are fast", "bpf/node/conntrack.h", `if \(ct->proto.tcp.state != TCP_CONNTRACK_ESTABLISHED`, `if (0 && ct->proto.tcp.state != TCP_CONNTRACK_ESTABLISHED`},
	{"connections are fast without the mark", "bpf/node/conntrack.h", `: unwatched\(p, ct\);`, `: CT_MARKED;`},
	{"what Linux thinks unacknowledged stays so", "bpf/node/conntrack.h", `!\(\(one \| other\) & IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED\)`, `1`},
	{"a FIN is fast", "bpf/node/conntrack.h", `\(TCP_FIN \| TCP_SYN \| TCP_RST \| TCP_ACK\)`, `(TCP_SYN | TCP_RST | TCP_ACK)`},
	{"an RST is fast", "bpf/node/conntrack.h", `\(TCP_FIN \| TCP_SYN \| TCP_RST \| TCP_ACK\)`, `(TCP_FIN | TCP_SYN | TCP_ACK)`},
	{"packets behind an end are fast", "bpf/node/conntrack.h", ` \|\| ct->proto.tcp.last_index != TCP_ACK_SET`, ``},
	{"a call after a reset belongs to the old connection", "bpf/node/conntrack.h", `ct->proto.tcp.last_index == TCP_RST_SET && `, `0 && `},
	{"any call ends the connection of its ports", "bpf/node/conntrack.h", `ct->proto.tcp.last_index == TCP_RST_SET && ct->proto.tcp.last_dir == p->ct_dir &&`, ``},
	{"a mask that leaves nothing leaves all", "internal/kstate/nftables/compare.go", `if isZero\(fieldBits\(s, mask\)\) \{`, `if false {`},
	{"who lacks a field is in no set", "internal/rules/image/lower.go", `if of.Of != nil \|\| `, `if true || of.Of != nil || `},
	{"a tunnel leaves by the device that it names", "internal/graph/tunnel.go", `if l := b.net.Link\(index\); l != nil \{`, `if l := b.net.Link(index); false && l != nil {`},
	{"a rule that replaces another goes on counting", "internal/kstate/nftables/machine.go", `strconv.FormatUint\(m.rule.Print, 36\)`, `strconv.FormatUint(m.rule.Print&0, 36)`},
	{"timeouts are not extended", "bpf/node/conntrack.h", `bpf_ct_change_timeout\(ct, ms\);`, `;`},
	{"timeouts of the other protocol", "bpf/node/conntrack.h", `proto == PROTO_TCP \? established : stream`, `proto == PROTO_TCP ? stream : established`},
	{"datagrams are fast before they are assured", "bpf/node/conntrack.h", `\(status & \(IPS_SETTLED \| IPS_SPECIAL\)\) != IPS_SETTLED`, `0`},
	{"a connection is looked up in zone 0", "bpf/node/conntrack.h", `by.opts.zone_id = rules_zone\(p\);`, `;`},
	{"a zone for one direction is for both", "bpf/node/conntrack.h", `by.opts.zone_dir = rules_zone\(p\) >> 16;`, `;`},
	{"the mark goes to the connection in zone 0", "bpf/node/conntrack.h", `conn.zone = zone;`, `;`},
	{"the last zone counts", "bpf/node/rule_step.h", `if \(!\(w->value\[SHUNT_V_CT_STATE\] & rule4\(at \+ 12\)\)\)`, `if (0)`},
	{"what hangs on a connection is ignored", "bpf/node/conntrack.h", `if \(status & \(IPS_SEQ_ADJUST \| IPS_HELPER\) \|\| extended\(ct, &h\)\)`, `if (0)`},
	{"checksums of connections are not looked at", "bpf/node/conntrack.h", `if \(!in_flowtable\(status\) && \(peek\(cfg.ct_checksum, 4\) & 0xff\) && must_sum`, `if (0 && must_sum`},
	{"translated as the other side is", "bpf/node/nat.h", `if \(p->ct_dir\)`, `if (!p->ct_dir)`},
	{"a masqueraded connection leaves by any device", "bpf/node/nat.h", `\(t->only && t->only != p->out\)`, `0`},
	{"rules see the old destination port", "bpf/node/nat.h", `w->value\[SHUNT_V_DPORT\] = bpf_ntohs\(t->dport\);`, `;`},
	{"routes are looked up for the old destination", "bpf/node/nat.h", `p->dst = t->dst\[0\];`, `;`},
	{"a checksum of none becomes one", "bpf/node/nat.h", `if \(t->udp && !sum\)`, `if (0)`},
	{"a source port is not translated", "bpf/node/nat.h", `port\[0\] = t->sport;`, `;`},
	{"the transport's checksum forgets the addresses", "bpf/node/nat.h", `recheck\(sum, t->addrs \+ t->ports\)`, `recheck(sum, t->ports)`},
	{"blocked ports routed to", "bpf/node/onto.h", `!port_plain\(m, to, BRIDGE8\(m, to, port_flags\)\) \|\| `, ``},
	{"a promiscuous bridge routed past", "bpf/node/onto.h", ` \|\| \(BRIDGE4\(m, dev, dev_flags\) & IFF_PROMISC\)`, ``},
	{"listeners on a bridge routed past", "bpf/node/onto.h", ` && BRIDGE8\(m, dev, dev_taps\) == BRIDGE\(dev, dev_taps\)`, ``},
	{"a port's mtu ignored when routed to", "bpf/node/onto.h", `return len > BRIDGE4\(m, dev, dev_mtu\) .* \? 0 : dev;`, `return dev;`},
	{"routed to the wrong port", "bpf/node/onto.h", `port = BRIDGE4\(m, dev, dev_ifindex\)`, `port = (BRIDGE4(m, dev, dev_ifindex) ^ 1)`},
	{"neighbours behind a bridge not kept alive", "bpf/node/onto.h", `note_neighbour\(p\);`, `;`},
	{"back by the same port without hairpin mode", "bpf/node/turn.h", `if \(to == port && !\(flags & BR_HAIRPIN_MODE\)\)`, `if (0)`},
	{"between isolated ports by translation", "bpf/node/turn.h", ` \|\| \(BRIDGE8\(m, port, port_flags\) & flags & BR_ISOLATED\)`, ``},
	{"what is sent back into a bridge keeps its receiver's address", "bpf/node/egress_tc.h", `\*\(__u32 \*\)eth->dst = p->macs\[0\];`, `;`},
	{"bridged to another receiver where the frame went", "bpf/node/nat.h", `return p->dst == t->dst\[0\] \? NEXT : SHUNT_R_CONNTRACK_NAT;`, `return NEXT;`},
	{"another mark for a connection is not saved", "bpf/node/rule_step.h", `!= x\)$`, `!= x && 0)`},
	{"the other end of a veth has another address", "bpf/node/peer.h", `return memory8\(m, BRIDGE8\(m, peer, dev_addr\), 0\) << 16 == mac << 16;`, `return 1;`},
	{"the other end of a veth is smaller", "bpf/node/peer.h", `if \(len > BRIDGE4\(m, peer, dev_mtu\)`, `if (0 && len > BRIDGE4(m, peer, dev_mtu)`},
	{"a tunnel takes orders from another's outer header", "bpf/node/egress_tc.h", `if \(cfg.tunnel && into_tunnel\(out\) && from_tunnel\(p->ctx\)\)`, `if (0)`},
	{"a bridged frame takes orders from another tunnel's outer header", "bpf/node/egress_tc.h", `if \(cfg.tunnel && \(way & SHUNT_INTO_TUNNEL\) && from_tunnel\(p->ctx\)\)`, `if (0)`},
	{"what an outer header of IPv4 said is not found", "bpf/node/tunnel.h", `return r == 0 \|\| r == -EPROTO;`, `return r == -EPROTO;`},
	{"what an outer header of IPv6 said is not found", "bpf/node/tunnel.h", ` \|\| r == -EPROTO`, ``},
	{"no port is between two tunnels", "internal/synth/plan.go", `flag\(tunnel && s.tunnels.than\(port.Index\)\)`, `flag(false)`},
	{"no way is marked as one into a tunnel", "internal/graph/egress.go", `e.Tunnel = port.Kind == kindVXLAN`, `e.Tunnel = false`},
	{"a tunnel's mtu taken at its word", "internal/graph/tunnel.go", `l.MTU\+head > room`, `l.MTU > room`},
	{"a tunnel's mtu may be one byte more than its underlay carries", "internal/graph/tunnel.go", `l.MTU\+head > room`, `l.MTU+head > room+1`},
	{"a tunnel over IPv6 has the headers of IPv4", "internal/graph/tunnel.go", `if v.IP6 \{`, `if false {`},
	{"what a tunnel's device is told to do besides is ignored", "internal/graph/tunnel.go", `range l.VXLAN.On \{`, `range l.VXLAN.On[:0] {`},
	{"group policy not known", "internal/kstate/vxlan.go", `23: "gbp", `, ``},
	{"metadata devices not known", "internal/kstate/vxlan.go", `25: "external", `, ``},
	{"rules in front of a jump's target are asked again", "bpf/node/rule_step.h", `word &= ~0ULL << \(w->from & 63\);`, `;`},
	{"a chain comes back to the outermost caller", "bpf/node/rule_step.h", `w->back\[depth & \(RULE_DEPTH - 1\)\]\);`, `w->back[0]);`},
	{"a chain that was called does not come back", "bpf/node/rule_step.h", `w->depth = depth \+ 1;`, `w->depth = depth;`},
	{"an accept in a chain that was called is a return", "bpf/node/rule_step.h", `return rule_go\(w, w->end\);`, `return rule_go(w, w->back[0]);`},
	{"a field that is missing is 0", "bpf/node/rule_step.h", `!\(w->have >> v & 1\) \|\| x < rule4`, `x < rule4`},
	{"marks are set whole", "bpf/node/rule_step.h", `\(w->value\[v\] & rule4\(at \+ 16\)\) \^ rule4\(at \+ 20\);$`, `rule4(at + 20);`},
	{"sets that do not have the packet match", "bpf/node/rule_step.h", `if \(x != SET_IN\)`, `if (0)`},
	{"a tree's entries behind one that was found are lost", "bpf/node/rule_tree.h", `if \(w->from < w->past_from\) \{`, `if (0) {`},
	{"what everyone satisfies is not found by trees", "bpf/node/rule_tree.h", `w->best = rule4\(w->nexts \+ 4 \* w->from\);`, `w->best = 0xfffe;`},
	{"a record's source is not compared", "bpf/node/rule_tree.h", `\(of >> 32\) - \(__u32\)\(w->value\[SHUNT_V_SRC\] - \(__u32\)of\);`, `0;`},
	{"a record's destination port is not compared", "bpf/node/rule_tree.h", `\(of >> 48\) - \(__u16\)\(w->value\[SHUNT_V_DPORT\] - \(of >> 32\)\);`, `0;`},
	{"records are not asked for their devices", "bpf/node/rule_tree.h", `out \|= !\(of & w->row\[SHUNT_D_IIF\]\);`, `;`},
	{"a node has half as many parts", "bpf/node/rule_tree.h", `>> \(node >> 32 & 31\);`, `>> ((node >> 32 & 31) + 1);`},
	{"a range that covers half of a region covers all of it", "internal/rules/image/tree.go", `if !b.at\[c\].has\(r\) \{`, `if b.at[c].lo > r.hi || r.lo > b.at[c].hi {`},
	{"senders of another network are remembered as the same", "bpf/node/verdicts.h", `\(e->addr6\[0\] \^ w->src\[0\]\) \| `, ``},
	{"marks are no part of what verdicts are remembered by", "bpf/node/verdicts.h", `differs \|= e->marks \^ marks;`, `;`},
	{"types of ICMP are no part of what verdicts are remembered by", "bpf/node/verdicts.h", `differs \|= e->icmp \^ icmp;`, `;`},
	{"what asks for the TTL is remembered", "bpf/node/verdicts.h", `& ~VERDICT_VALUES\);`, `& 0);`},
	{"what changes packets is remembered", "bpf/node/rule_step.h", `w->acts \|= RULE_ACTS >> \(head & 31\) & 1;`, `;`},
	{"remembered verdicts count nothing", "bpf/node/verdicts.h", `w->n = n;`, `;`},
	{"changed rules have the number of the old ones", "internal/datapath/rulestore.go", `s.number = max\(s.number\+1, 1\)`, `s.number = 1 + uint32(i)`},
	{"what newer rules decide is decided by the older ones too", "bpf/node/rules.h", `if \(v == RULE_ACCEPT\) \{`, `if (v) {`},
	{"devices that rules tell from others are like those", "bpf/node/rule_step.h", `rule4\(at\) == index \? rule4\(at \+ 4\) : rule4\(base \+ table \+ 4\);`, `rule4(base + table + 4);`},
	{"short transport headers come to rules", "bpf/node/rules.h", `if \(len < header \+ \(proto`, `if (0 && len < header + (proto`},
	{"counters at ingress forget the padding", "bpf/node/rules.h", `== 1 \? padded : p->l3_len`, `== 1 ? p->l3_len : p->l3_len`},
	{"the sender's route may lead anywhere", "bpf/node/rules.h", ` && back != p->in->ifindex`, ` && 0`},
	{"exceptions in sets are elements", "bpf/node/ipset.h", `return last & S\(nomatch\) \? SET_EXCEPT : SET_IN;`, `return SET_IN;`},
	{"elements of sets do not expire", "bpf/node/ipset.h", `return end && \(__s64\)\(end - s->now\) < 0;`, `return 0;`},
	{"an exception in one set of a list ends the list", "bpf/node/ipset.h", `\(answer == SET_OUT \|\| answer == SET_EXCEPT\) && s->head`, `answer == SET_OUT && s->head`},
	{"sets of the other family are asked", "bpf/node/ipset.h", `\(s->family && s->family != \(six \? AF_INET6 : AF_INET\)\) \|\| `, ``},
	{"messages have port 0 in sets", "bpf/node/ipset.h", `port = w->value\[SHUNT_V_ICMP\];`, `port = 0;`},
	{"rules that write into sets do nothing", "internal/kstate/nftables/action.go", `m\.slow\("set "\+op, text\+" }"\)`, `m.words.add(text + " }")`},
	{"targets that write into ipsets do nothing", "internal/kstate/xtables/target.go", `^\t\treturn \[\]rs.Step\{rs.Slow\{Name: strings.ToLower\(e.Name\)`, `		if e.Name == "SET" { return nil, text }; return []rs.Step{rs.Slow{Name: strings.ToLower(e.Name)`},
	{"a negated lookup in a set is a plain one", "internal/rules/image/condition.go", `cond\{set: set, not: s.Not\}`, `cond{set: set}`},
}

// namedElsewhere are bugs of bridges that filter by VLAN and of ipsets of two networks, which not every kernel has: `-all` tests them too.
var namedElsewhere = []struct{ what, file, line, with string }{
	{"frames of a VLAN that a port is not in", "bpf/node/bridge_vlan.h", `return entry && BRIDGE1\(m, entry, vlan_state\) == VLAN_FORWARDING \? \(int\)id : -SHUNT_R_BRIDGE_MEMBER;`, `return (int)id;`},
	{"another VLAN given to untagged frames", "bpf/node/bridge_vlan.h", `id = BRIDGE2\(m, group, group_pvid\);`, `id = 1;`},
	{"the state of the PVID ignored", "bpf/node/bridge_vlan.h", `&& BRIDGE1\(m, group, group_pvid_state\) == VLAN_FORWARDING `, ``},
	{"a VLAN's state at the way out ignored", "bpf/node/bridge_vlan.h", `BRIDGE1\(m, entry, vlan_state\) != VLAN_FORWARDING \|\|`, `0 ||`},
	{"every frame leaves tagged", "bpf/node/bridge_vlan.h", `\(flags & VLAN_UNTAGGED\) \? 0 : TAGGED_OUT`, `TAGGED_OUT`},
	{"stations known in every VLAN alike", "bpf/node/bridge.h", `dst \|= \(__u64\)p->vlan_id << 48;`, `dst |= 1ULL << 48;`},
	{"tags of another protocol taken", "bpf/node/bridge_vlan.h", `tag >> 16 != BRIDGE2\(m, br, br_vlan_proto\)`, `0`},
	{"exceptions of two networks are elements", "bpf/node/ipset.h", `last = both & S\(except\) \? S\(nomatch\) : 0;`, `last = 0;`},
	{"pairs of prefix lengths beyond the bound are taken for none", "bpf/node/ipset.h", `if \(!S\(lengths\)\)\t/\* more pairs`, `if (0)	/* more pairs`},
	{"the second network's prefix lengths are tried for the first's longest alone", "bpf/node/ipset.h", `S\(net\) = S\(nets\);`, `return 0;`},
}

// namedMutants finds the lines of the named bugs; one that matches no line is an error, or it would silently not be tested.
func namedMutants() ([]mutant, error) {
	list := named
	if *allFlag {
		list = slices.Concat(named, namedElsewhere)
	}
	var out []mutant
	var errs []error
	for _, n := range list {
		text, err := os.ReadFile(n.file)
		if err != nil {
			return nil, err
		}
		re, found := regexp.MustCompile(n.line), false
		for i, line := range strings.Split(string(text), "\n") {
			if re.MatchString(line) && !found {
				found = true
				out = append(out, mutant{n.file, i + 1, "named (" + n.what + ")", line, re.ReplaceAllString(line, strings.ReplaceAll(n.with, "$", "$$")), 0})
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%q: no line of %s matches %s any more", n.what, n.file, n.line))
		}
	}
	return out, errors.Join(errs...)
}
