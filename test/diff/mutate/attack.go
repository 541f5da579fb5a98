// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+/\S+|TestGenerated|TestConversations|TestOnto|TestRoutedStreams|TestPeers)`)

// overrun is what the rig says when shunt did not answer in time.
var overrun = regexp.MustCompile(`context deadline exceeded|is not ready after|has not come to rest`)

// aTest says whether a name is one of a whole test, not of a case.
func aTest(name string) bool { return strings.HasPrefix(name, "Test") && !strings.Contains(name, "/") }

// first are the cases that a file's mutants meet before all others, which are likely to notice them, the hooks at which its code runs, and the only tier
// of programs that it is in.
var first = []struct{ prefix, hooks, cases, tier string }{
	{"internal/datapath/generic", "xdp,tc", "^(plain|change_.*)$", "generic"},
	{"bpf/include/port", "xdp,tc", "^(plain|change_.*)$", "generic"},
	{"internal/graph/netfilter", "tc", "^(nft|ip.*tables.*|plain)", ""},
	{"internal/graph/hooks", "xdp,tc", "^(plain|priority.*|tbf.*|clsact|ingress_qdisc|packet_socket.*|lldp.*|nft_netdev.*|nft_inet.*|change_socket|change_qdisc)$", ""},
	{"internal/graph/special", "tc", "^(mtu.*|realms|multipath-policy.*|nexthop-res.*|nexthop-mtu|encap)$", ""},
	{"internal/graph/family", "xdp", "^(plain|forward.*|multipath-use-neigh|disable.*|xfrm.*|seg6|proxy-ndp|path-mtu|rp-filter-mark|accepted.*|stacked.*)$", ""},
	{"internal/graph/tunnel", "tc", "^overlay_(oversize.*|metadata|group_policy|sizes)$", ""},
	{"internal/kstate/nftables", "tc", "^rules_(nft_.*|slow_for_some_.*|all_matches|edge_(written_down|short_headers|grown_set).*)$", ""},
	{"internal/kstate/xtables", "tc", "^rules_(.*legacy|all_matches|slow_for_some_.*|edge_(written_down|short_headers).*)$", ""},
	{"internal/kstate/vxlan", "tc", "^overlay_(oversize.*|metadata|group_policy)$", ""},
	{"bpf/node/tunnel", "tc", "^overlay_into_another.*$", ""},
	{"internal/graph/egress", "xdp,tc", "^(plain|overlay_into_another.*|tbf.*|carrier|mtu6.*|nft_netdev.*|packet_socket|stacked.*|change_link|accepted-redirect|redirect-one-switch)$", ""},
	{"internal/graph/rules", "tc", "^(plain|rule.*|broadcast-source|rp-filter-rules)$", ""},
	{"internal/graph/nodes", "xdp", "^(plain|rp-filter.*|no-address|local-source|broadcast-source|mtu|realms|multipath.*)$", ""},
	{"internal/graph/choose", "xdp,tc", "^(plain|tbf.*|forwarding-per.*|change_link|change_qdisc|carrier)$", ""},
	{"internal/synth", "xdp,tc", "^(plain|overlay_into_another|at_once|mtu|multipath-policy-1|rp-filter_1.*|local-source|partial.*|jumbo|neighbour-moves.*|rule_ipproto_udp|rule[46]-ports|forwarding.*|frozen.*|watchdog)$", ""},
	{"bpf/node/bridge_vlan", "xdp,tc", "^bridge_vlans.*$", ""},
	{"bpf/node/bridge", "xdp,tc", "^bridge_(learning|moves|entries|frozen|isolated|hairpin|mtu|floods|locked|states|backup|own|shown_(frames|by|mtu|offloads)|in_use).*$", ""},
	{"bpf/node/shown", "xdp,tc", "^bridge_shown.*", ""},
	{"bpf/node/onto", "tc", "^bridge_(routes|shown_to_the_router).*$", ""},
	{"bpf/node/turn", "tc", "^nat_hairpin.*$", ""},
	{"bpf/node/peer", "tc", "^bridge_(routes|entries).*$", ""},
	{"bpf/node/rule", "xdp,tc", "^rules_(100_rules_nft|user_chains_legacy|nested_.*|nft_chains|mangle_nft|mark_by_map|nft_sets|dynamic_set|ipset|change_at_once|change_among_many.*|long|emptied_chain_nft|netdev_(counters|jumps)|edge_(route_back_nft|device_groups|overlapping_map)|mark_tc|tos_inet|notrack_inet|live_ipset_legacy)$", ""},
	{"bpf/node/ipset", "tc", "^rules_live_ipset_.*$", ""},
	{"bpf/node/dsfield", "xdp,tc", "^rules_(mangle_.*|tos_.*)$", ""},
	{"internal/rules", "tc", "^rules_(100_rules_.*|disjoint_.*|slow_for_some_.*|user_chains_.*|nft_.*|dynamic_set|ipset|change_.*|edge_.*|netdev_.*|mark_tc|tos_.*|notrack_.*|live_ipset_legacy|emptied_chain_.*)$", ""},
	{"bpf/node/conntrack", "tc", "^(conntrack_.*|nat_(masquerade|udp)|bridge_shown_connection.*)$", ""},
	{"bpf/node/nat", "xdp,tc", "^nat_.*$", ""},
	{"bpf/node/rpf", "xdp", "^(plain|rp-filter.*|local-source|broadcast-source|rule.*|change_rp.*)$", ""},
	{"bpf/node/route_cache", "xdp", "^(plain|change_route|change_rp.*|neighbour.*|at_once|tos-route|mtu.*|change_egress-mac|change_mtu|rule[46]-ports|nexthop-objects|streams|frozen|frozen-nexthops)$", ""},
	{"bpf/node/guard", "xdp", "^(plain|at_once|frozen.*|watchdog|change_rule|change_nft.*|change_address)$", ""},
	{"bpf/node/fib", "xdp", "^(plain|rule_.*|same-interface|blackhole|unreachable|prohibit|no-route|encap|mtu-device|neighbour-silent|tos-route|multipath)$", ""},
	{"bpf/node/special", "xdp", "^(mtu.*|realms|multipath-policy.*|encap)$", ""},
	{"bpf/node/vlan", "xdp,tc", "^(plain|foreign-macs|vlan-tags|runts|ethertypes)$", ""},
	{"bpf/node/ip6", "xdp", "^(plain|ttl|martians|runts|lengths|short-messages|protocols|extension.*|icmp.*|rule_ipproto_udp|rule6-ports)$", ""},
	{"bpf/node/ip4", "xdp", "^(plain|ttl|checksum|martians|options|fragments|runts|lengths|short-messages|protocols|icmp.*|rule_ipproto_udp.*|rule_dport.*)$", ""},
	{"bpf/node/ttl", "xdp", "^(plain|checksum)$", ""},
	{"bpf/node/egress_tc", "tc", "^(plain|overlay_into_another.*|local-offloads|streams|lengths|tbf|via-inet6|priority.*|neighbour.*|nft_netdev_egress|short-messages)$", ""},
	{"bpf/node/pipeline", "xdp", "^(plain|rp-filter_1.*|rp-filter-rules|rule-from-to|at_once|local-source|martians|ethertypes|mtu|tos-route)$", ""},
	{"bpf/hook/tc", "tc", "^(plain|local-offloads|mtu-locked-gso|streams|foreign-macs|lengths|runts|jumbo)$", ""},
	{"bpf/include/ctx_skb", "tc", "^(plain|foreign-macs|lengths|jumbo)$", ""},
	{"bpf/node/egress_xdp", "xdp", "^(plain|lengths|tbf.*|jumbo|neighbour.*|via-inet6)$", ""},
	{"bpf/node/local", "xdp", "^(plain|martians|local-source|sources|change_own.*)$", ""},
	{"", "xdp", "^(plain|partial.*|lengths|jumbo|martians|mtu|local-source|blackhole|unreachable|prohibit|no-route|same-interface|neighbour.*|on-device)$", ""},
}

// attacker runs the rig against mutants, one at a time.
type attacker struct {
	rig, base string          // binaries: the rig's, and shunt without a mutant
	sound     map[string]bool // cases that passed without a mutant, with the hooks
}

// stage is some of the rig's cases.
type stage struct {
	name string
	args []string
}

// withStreams are files whose code is met with hosts behind veths, which only whole tests have.
var withStreams = regexp.MustCompile(`^bpf/node/(onto|peer|neighbour)`)

// withTalks are files whose code only connections meet.
var withTalks = regexp.MustCompile(`^bpf/node/(conntrack|nat|rewrite)`)

// aboutHook is the one of a file's hooks at which the cases about one bug are run.
func aboutHook(hooks string) string {
	if strings.Contains(hooks, "tc") {
		return "tc"
	}
	return hooks
}

func stages(m mutant, whole bool) []stage {
	var out []stage
	for _, f := range first {
		if strings.HasPrefix(m.File, f.prefix) {
			if cases := aboutIt(m); aTest(cases) {
				out = append(out, stage{"about", []string{"-test.run", "^" + cases + "$"}})
			} else if cases != "" {
				out = append(out, stage{"about", []string{"-test.run", "^TestHand$/^(" + cases + ")$", "-hooks", aboutHook(f.hooks), "-tier", cmp.Or(f.tier, "specialised")}})
			}
			if *aboutFlag {
				return out
			}
			out = append(out,
				stage{"plain", []string{"-test.run", "^TestHand$/^plain$", "-hooks", f.hooks, "-tier", f.tier}},
				stage{"likely", []string{"-test.run", "^TestHand$/" + f.cases, "-hooks", f.hooks, "-tier", f.tier}},
				stage{"generated", []string{"-test.run", "^TestGenerated$", "-tier", f.tier}})
			if withTalks.MatchString(m.File) {
				out = append(out, stage{"conversations", []string{"-test.run", "^TestConversations$", "-talks", "16"}})
			}
			if withStreams.MatchString(m.File) {
				out = append(out, stage{"streams", []string{"-test.run", "^(TestOnto|TestRoutedStreams|TestPeers)$"}})
			}
			break
		}
	}
	if whole {
		out = append(out, stage{"whole", []string{"-test.run", "^(TestRegress|TestHand)$"}})
	}
	return out
}

// attack returns the case that killed a mutant, "" if none did, and the last stage that was run to its end. A case kills when it
// fails, which for a difference means that a second run showed it again, and passes without the mutant.
func (a *attacker) attack(bin string, m mutant, after string, whole bool) (by, reached string, err error) {
	var unsteady []string
	skip := after != ""
	for _, s := range stages(m, whole) {
		if skip {
			skip = s.name != after
			continue
		}
		for {
			by, err := a.run(bin, unsteady, s.args...)
			if err != nil {
				return "", reached, err
			}
			if by == "" {
				break
			}
			sure, err := a.sure(by, s)
			if err != nil || sure {
				return by, s.name, err
			}
			if aTest(by) {
				break
			}
			unsteady = append(unsteady, by)
		}
		reached = s.name
	}
	return "", reached, nil
}

// sure runs a case that failed without the mutant.
func (a *attacker) sure(by string, s stage) (bool, error) {
	args := s.args
	if !aTest(by) {
		test, name := "TestHand", by
		if rest, ok := strings.CutPrefix(by, "TestRegress/"); ok {
			test, name = "TestRegress", rest
		}
		args = append([]string{"-test.run", "^" + test + "$/^" + regexp.QuoteMeta(name) + "$"}, s.args[2:]...)
	}
	key := strings.Join(args, " ")
	if !a.sound[key] {
		without, err := a.run(a.base, nil, args...)
		if err != nil || without != "" {
			return false, err
		}
		a.sound[key] = true
	}
	return true, nil
}

var errLimit = errors.New("not decided within the limit")

// run is one run of the rig's binary: the case that failed first, or "".
func (a *attacker) run(bin string, skip []string, extra ...string) (string, error) {
	args := []string{"-test.failfast", "-test.parallel", fmt.Sprint(*parallelFlag), "-test.timeout", limitFlag.String(), "-shunt", bin, "-configs", "4", "-seed", "77", "-shrink", "0", "-uncovered"}
	args = append(args, extra...)
	skip = slices.Clone(skip)
	for i, name := range skip {
		skip[i] = "^TestHand$/^" + regexp.QuoteMeta(name) + "$"
	}
	if *skipFlag != "" {
		skip = append(skip, *skipFlag)
	}
	if len(skip) > 0 {
		args = append(args, "-test.skip", strings.Join(skip, "|"))
	}
	cmd := exec.Command(a.rig, args...)
	cmd.Dir = filepath.Join(filepath.Dir(a.rig), "test/diff")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return "", nil
	}
	if overrun.Match(out.Bytes()) { // a busy machine kills no mutant
		return "", errLimit
	}
	if m := failed.FindStringSubmatch(out.String()); m != nil {
		return strings.TrimPrefix(m[1], "TestHand/"), nil
	}
	if strings.Contains(out.String(), "panic: test timed out") {
		return "", errLimit
	}
	return "", fmt.Errorf("the rig failed: %w: %s", err, out.String()[:min(2000, out.Len())])
}
