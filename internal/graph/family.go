// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// namespaceReasons fills what holds for a family on every interface.
func (b *builder) namespaceReasons() {
	n := b.net
	var both []Why
	for _, f := range n.Faults {
		both = append(both, because(reason.Unreadable, "%s: %s", f.Part, f.Err))
	}
	for _, u := range n.Unknown {
		both = append(both, because(reason.Unreadable, "%s: %s not understood", u.Where, u.What))
	}
	b.wide = both
	x := n.XFRM
	if x.Policies > 0 || x.States > 0 || x.Interfaces > 0 || x.DefaultBlock {
		detail := fmt.Sprintf("%d policies, %d states, %d interfaces", x.Policies, x.States, x.Interfaces)
		if x.DefaultBlock {
			detail += ", default block"
		}
		both = append(both, Why{reason.XFRM, detail})
	}
	if n.Sockets.Transparent {
		both = append(both, because(reason.TransparentSocket, "a connected socket with IP_TRANSPARENT exists"))
	}
	ip4, ip6 := b.netfilterReasons()
	for _, u := range n.Sysctl.Changed {
		why := because(reason.SysctlUnmodelled, "%s", strings.TrimSpace(u.Where+" "+u.What))
		ip6 = append(ip6, why)
		if !strings.Contains(u.Where+u.What, "net.ipv6.") {
			ip4 = append(ip4, why)
		}
	}
	// With forwarding that trusts learned path MTUs, bpf_fib_lookup and Linux disagree about which of metric and exception wins.
	if n.Sysctl.ForwardUsePMTU {
		ip4 = append(ip4, because(reason.SysctlUnmodelled, "net.ipv4.ip_forward_use_pmtu = 1"))
	}
	if Crowded(n) {
		ip4 = append(ip4, because(reason.Unreadable, "this host has more than %d IPv4 addresses, which are all that the fast path can tell as senders", mostAddresses))
	}
	b.wide4 = join(both, ip4, b.rules4.why)
	b.wide6 = join(both, ip6, b.rules6.why)
}

// mostAddresses is how many IPv4 addresses of this host are kept at most (local4): half of what that has room for, since those that come are written before those go that have left.
const mostAddresses = 1 << 15

// Crowded says whether this host has more IPv4 addresses than programs can be told.
func Crowded(n *model.Network) bool {
	all := len(n.Left)
	for _, a := range n.Addrs {
		if a.Prefix.Addr().Is4() {
			all++
		}
	}
	return all > mostAddresses
}

// path4 gives the reasons that keep IPv4 at a logical interface with Linux. In a VRF Linux looks at the master's switches
// and bpf_fib_lookup at the slave's: both have to agree.
func (b *builder) path4(l, vrf *model.Link) []Why {
	why := b.wide4
	for _, d := range []*model.Link{l, vrf} {
		switch {
		case d == nil:
		case !d.Conf4.Present:
			why = join(why, []Why{because(reason.ForwardingOff, "%s has no IPv4", d.Name)})
		case !d.Conf4.Forwarding:
			why = join(why, []Why{because(reason.ForwardingOff, "net.ipv4.conf.%s.forwarding = 0", d.Name)})
		}
	}
	return join(why, b.vrfRules(l, vrf, model.IP4, b.rules4), b.trackedVRF(l, vrf, model.IP4), b.graph.Filter4.inVRF(model.IP4, vrf))
}

// path6 is the same for IPv6, where Linux asks conf.all (or force_forwarding) and bpf_fib_lookup the device. Switches about extension headers (seg6_enabled, rpl_seg_enabled,
// ioam6_enabled) say nothing of packets without any, and proxy_ndp nothing of those that are not neighbour discovery (ip6_forward_proxy_check()): others are not fast.
func (b *builder) path6(l, vrf *model.Link) []Why {
	why := b.wide6
	for _, d := range []*model.Link{l, vrf} {
		switch {
		case d == nil:
		case !d.Conf6.Present:
			why = join(why, []Why{because(reason.ForwardingOff, "%s has no IPv6", d.Name)})
		case d.Conf6.Disabled:
			why = join(why, []Why{because(reason.ForwardingOff, "net.ipv6.conf.%s.disable_ipv6 = 1", d.Name)})
		case !d.Conf6.Forwarding:
			why = join(why, []Why{because(reason.ForwardingOff, "net.ipv6.conf.%s.forwarding = 0", d.Name)})
		}
	}
	if !b.net.Sysctl.All6.Forwarding && !l.Conf6.ForceForwarding {
		why = join(why, []Why{because(reason.ForwardingOff, "net.ipv6.conf.all.forwarding = 0")})
	}
	return join(why, b.vrfRules(l, vrf, model.IP6, b.rules6), b.trackedVRF(l, vrf, model.IP6), b.graph.Filter6.inVRF(model.IP6, vrf))
}

// vrfRules gives the reasons in rules that name an interface of a VRF: Linux looks them up with the VRF as ingress,
// bpf_fib_lookup with the slave, and kernels differ in whether either name then matches.
func (b *builder) vrfRules(l, vrf *model.Link, family model.Family, rules ruleFacts) []Why {
	if vrf == nil {
		return nil
	}
	var why []Why
	for _, d := range []*model.Link{l, vrf} {
		if rules.iif[d.Name] {
			why = append(why, because(reason.RuleUnknown, "%s rule with iif %s in a VRF", family, d.Name))
		}
	}
	if family == model.IP4 && len(rules.iif) > 0 && b.reverseMode(l) != "" {
		why = append(why, because(reason.RuleUnknown, "%s rules with iif and a reverse path check in a VRF", family))
	}
	return why
}
