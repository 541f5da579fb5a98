// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// FR_ACT_* that bpf_fib_lookup evaluates as the kernel's forwarding does: table, goto, nop, blackhole, unreachable, prohibit.
var liveActions = map[uint8]bool{1: true, 2: true, 3: true, 6: true, 7: true, 8: true}

// localTable is RT_TABLE_LOCAL.
const localTable = 255

// defaultRules4 is the number of IPv4 rules that the kernel makes by itself: local, main, default.
const defaultRules4 = 3

// ruleFacts is what a family's policy rules mean for every interface. The rules themselves are evaluated live by
// bpf_fib_lookup, with the packet's addresses, ingress interface, TOS or flow label, and, where a rule needs them, its protocol
// and ports, and the mark that rules have set (Linux 6.10); what comes with a mark goes up.
type ruleFacts struct {
	why    []Why
	ports  bool            // a rule looks at the protocol or at ports
	marks  bool            // a rule looks at the mark
	custom bool            // there are rules beside the kernel's own, or some of those are gone
	iif    map[string]bool // interfaces that rules name as ingress
	// localFirst: the router's own addresses are asked for before all else. Never said of IPv6, where what rules ask for is the result of a whole lookup with
	// less of the packet than forwarding gives it (net/ipv6/netfilter/nft_fib_ipv6.c, xt_addrtype.c: match_lookup_rt6): types6.
	localFirst bool
}

func readRules(rules []model.Rule, family model.Family) ruleFacts {
	f := ruleFacts{iif: map[string]bool{}}
	own := 0
	var first *model.Rule
	for i, r := range rules {
		if r.Family != family {
			continue
		}
		if first == nil || r.Priority < first.Priority {
			first = &rules[i]
		}
		if r.Default {
			own++
		} else {
			f.custom = true
		}
		f.ports = f.ports || r.Ports
		f.marks = f.marks || r.Mark
		if r.IIF != "" {
			f.iif[r.IIF] = true
		}
		f.why = append(f.why, ruleReasons(r)...)
	}
	if family == model.IP4 && own > 0 && own < defaultRules4 {
		f.custom = true
	}
	f.localFirst = family == model.IP4 && first != nil && first.Default && first.Table == localTable
	return f
}

// ruleReasons lists what in a rule the live lookup cannot evaluate as Linux would.
func ruleReasons(r model.Rule) []Why {
	var missing []string
	if r.TunID {
		missing = append(missing, "tun_id")
	}
	if r.UIDRange {
		missing = append(missing, "uidrange")
	}
	if r.Realms {
		missing = append(missing, "realms")
	}
	// What fib6_rule_suppress() judges is filled in by Linux's lookup alone (rt6 of struct fib6_result): to that for programs no IPv6 route is suppressed.
	if r.Family == model.IP6 && (r.SuppressPrefix || r.SuppressGroup) {
		missing = append(missing, "suppress_prefixlength or suppress_ifgroup")
	}
	if !liveActions[r.Action] {
		missing = append(missing, fmt.Sprintf("action %d", r.Action))
	}
	for _, u := range r.Unknown {
		missing = append(missing, u.What)
	}
	if len(missing) == 0 {
		return nil
	}
	return []Why{because(reason.RuleUnknown, "%s rule %d: %s", r.Family, r.Priority, strings.Join(missing, ", "))}
}
