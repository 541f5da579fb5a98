// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	"golang.org/x/sys/unix"
)

// xt is a match or target of iptables-nft, or ebtables. Those of the bridge and ARP families have structs of their own.
func (m *machine) xt(e *XT) {
	if m.rule.Family == familyBridge && !e.Target {
		steps, text := xtables.BridgeMatch(xtables.Extension{Name: e.Name, Revision: uint8(e.Revision), Info: e.Info})
		m.steps = append(m.steps, steps...)
		m.words.add(text)
		return
	}
	if m.rule.Family != familyIP4 && m.rule.Family != familyIP6 {
		m.unknown("xt "+kindOfXT(e)+" "+e.Name, fmt.Sprintf("xt %s %q rev %d", kindOfXT(e), e.Name, e.Revision))
		return
	}
	c := m.t.xt
	c.Six = m.rule.Family == familyIP6
	run := xtables.Match
	if e.Target {
		run = xtables.Target
	}
	steps, text := run(&c, xtables.Extension{Name: e.Name, Revision: uint8(e.Revision), Info: e.Info})
	if !e.Target && !m.ofProtocol(e.Name) {
		m.unknown("xt match "+e.Name, text+" (behind no test of its protocol)")
		return
	}
	m.steps = append(m.steps, steps...)
	m.words.add(text)
}

// protocolsOf are those whose headers matches read. Who adds a rule has to name one (NFTA_RULE_COMPAT), but that is neither told nor asked of packets: the match reads whatever header comes if
// no test of the rule is in front of it. iptables-nft always writes one.
var protocolsOf = map[string][]int{"tcp": {unix.IPPROTO_TCP}, "udp": {unix.IPPROTO_UDP}, "udplite": {unix.IPPROTO_UDPLITE}, "icmp": {unix.IPPROTO_ICMP}, "icmp6": {unix.IPPROTO_ICMPV6},
	"multiport": {unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_DCCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE}}

// ofProtocol says whether the packets that come to a match are of a protocol that it is for.
func (m *machine) ofProtocol(match string) bool {
	of := protocolsOf[match]
	return of == nil || slices.Contains(of, m.facts.l4) && (m.rule.Compat == nil || int(m.rule.Compat.Proto) == m.facts.l4)
}

func kindOfXT(e *XT) string {
	if e.Target {
		return "target"
	}
	return "match"
}
