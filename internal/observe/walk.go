// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

// rules follows the packet through Linux's rules, if there are any and it comes to them: other packets leave the fast path at a check of
// their header or address, and whether Linux forwards them is not known here. What is routed from a bridge came by a port of it, which br_netfilter may have noted.
func (x *explainer) rules(link, port *model.Link) *api.RuleWalk {
	rs, p, code, ok := x.comes(link)
	if !ok {
		return nil
	}
	if port != nil && x.shown(port.Index) {
		p.PhysIn = ruleDevice(port)
	}
	out := x.state.Network.LinkCalled(x.out.Egress)
	if out == nil {
		out = x.route(link, &p)
	}
	if code == reason.Fast || code == reason.RuleDrop {
		p.Back = rules.BackSame // what the program found; others do not come to rules that ask for it
	}
	var assumed []string
	if out != nil {
		p.OIF = ruleDevice(out)
	} else {
		assumed = append(assumed, "no way out, since there is no route")
	}
	in := rules.NewInterpreter(rs)
	assumed = append(assumed, x.connection(in, &p, code)...)
	assumed = append(assumed, x.unread(rs)...)
	res, met := in.Follow(p)
	return walked(code, res, met, assumed)
}

// comes gives the packet and the rules that it comes to, by the reason that the program gave; not ok where there are none, or it does not come to them.
func (x *explainer) comes(link *model.Link) (rs *ruleset.Ruleset, p rules.Packet, code reason.Code, ok bool) {
	rs = x.filter()
	code, known := reason.Parse(x.out.Reason)
	if rs == nil || !known || !asksRules(code) {
		return nil, p, code, false
	}
	p, ok = rulePacket(x.frame)
	p.IIF = ruleDevice(link)
	return rs, p, code, ok
}

// connection gives the packet the connection that it probably belongs to where connections are tracked, and says what of it is taken for granted.
func (x *explainer) connection(in *rules.Interpreter, p *rules.Packet, code reason.Code) []string {
	if !x.tracked(p.Src) {
		return nil
	}
	state, what := uint8(ruleset.CTNew), "that it begins a connection"
	if established(code, p) {
		state, what = ruleset.CTEstablished, "that its connection is established and not translated"
	}
	p.CT = &rules.Connection{State: state, First: &rules.Ends{Src: p.Src, Dst: p.Dst, SPort: p.SPort, DPort: p.DPort, Proto: p.Proto}}
	if q, ok := rulePacket(x.left); ok && (q.Src != p.Src || q.Dst != p.Dst || q.SPort != p.SPort || q.DPort != p.DPort) {
		what = fmt.Sprintf("that its connection is established; it is translated to %s port %d > %s port %d", q.Src, q.SPort, q.Dst, q.DPort)
		p.Translated = &rules.Destination{Addr: q.Dst, Port: q.DPort}
	}
	if zone := in.Zone(*p); zone.Dir != 0 { // its packets say no other: one for one direction may be another's in the other
		p.CT.Zone = zone.Zone
		what += fmt.Sprintf(" (in ct %szone %d)", zone.Dir, zone.Zone)
	}
	return []string{what}
}

// established says whether a packet rather belongs to a connection than begins one: those that the rules were asked for, which others do not come to, and of those
// that only Linux's connection tracking can judge all but the first of TCP.
func established(code reason.Code, p *rules.Packet) bool {
	const syn, ack = 0x02, 0x10
	return code == reason.Fast || code == reason.RuleDrop || code == reason.ConntrackFlags && p.TCPFlags&(syn|ack) != syn
}

// walked puts a way through the rules in words; nil for one that meets none.
func walked(code reason.Code, res rules.Result, met []rules.Ref, assumed []string) *api.RuleWalk {
	if len(met) == 0 && res.Outcome == rules.Accepted {
		return nil
	}
	walk := &api.RuleWalk{Met: []api.RuleMatch{}, Outcome: res.Outcome.String(), Assumed: strings.Join(assumed, ", and ")}
	hook := ""
	for _, m := range met {
		if m.Chain.Base != nil {
			hook = m.Chain.Base.Hook.String()
		}
		row := api.RuleMatch{Hook: hook, Rule: m.String()}
		if m.Rule != nil {
			row.Text = m.Rule.Text
		}
		walk.Met = append(walk.Met, row)
	}
	if res.Outcome != rules.Accepted {
		walk.By, walk.Why = res.By.String(), res.Why
	}
	switch {
	case res.Why == rules.TooFar:
		walk.Outcome = "unknown"
	case len(assumed) == 0:
		walk.Disagree = disagreement(code, res)
	}
	return walk
}

// filter is the rule set that the packet meets, with what is in its ipsets at this moment: the Network has none of their elements. It must be
// called in the namespace.
func (x *explainer) filter() *ruleset.Ruleset {
	rs := x.state.Network.Filter
	if rs == nil || !slices.ContainsFunc(rs.Sets, func(s ruleset.Set) bool { return s.Live && s.Unknown == "" }) {
		return rs
	}
	read := kstate.ReadRules(nil)
	if len(read.Faults) > 0 {
		return rs
	}
	return &read.Ruleset
}

// unread says that an ipset is taken for empty which programs can ask, but of which not every element was understood.
func (x *explainer) unread(rs *ruleset.Ruleset) []string {
	for i := range rs.Sets {
		s := &rs.Sets[i]
		asked := func(n ruleset.Set) bool { return n.Live && n.Name == s.Name && n.Unknown == "" }
		if s.Dialect == ruleset.IPSet && !s.Live && s.Unknown != "" && slices.ContainsFunc(x.state.Network.Filter.Sets, asked) {
			return []string{"nothing of ipset " + s.Name + ", which programs ask but `explain` cannot read"}
		}
	}
	return nil
}

// disagreement says how a program's answer is none that the rules allow. It may always leave a packet to Linux.
func disagreement(code reason.Code, res rules.Result) string {
	switch {
	case code == reason.Fast && res.Outcome == rules.Dropped:
		return "the program forwards what " + res.By.String() + " drops"
	case code == reason.Fast && res.Outcome == rules.IsSlow:
		return "the program forwards what only Linux can decide (" + res.By.String() + ")"
	case code == reason.RuleDrop && res.Outcome != rules.Dropped:
		return "the program drops what the rules do not drop"
	}
	return ""
}

// asksRules says whether a packet that leaves by this reason came to the rules, or would have if its family were fast, its connection known or of a
// protocol that the fast path follows, its next hop's address there, or its sender's entry young: Linux forwards it, unless they say otherwise.
func asksRules(code reason.Code) bool {
	switch code {
	case reason.NetfilterRule, reason.NetfilterLong, reason.ConntrackNew, reason.ConntrackFlags, reason.ConntrackProtocol, reason.NoNeighbour, reason.BridgeRefresh:
		return true
	}
	class := code.Describe().Class
	return class == reason.Forwarded || class == reason.Config || class == reason.Dropped
}

func ruleDevice(l *model.Link) rules.Device {
	return rules.Device{Name: l.Name, Index: l.Index, Group: l.Group, Type: l.Type}
}

// tracked says whether connection tracking sees the packets of a family.
func (x *explainer) tracked(a netip.Addr) bool {
	family := model.IP6
	if a.Is4() {
		family = model.IP4
	}
	for _, h := range x.state.Network.Netfilter {
		if h.Kind == model.Conntrack && h.Family == family && h.Hook == "prerouting" {
			return true
		}
	}
	return false
}

// route asks Linux where the packet would go; nil if nowhere. It must be called in the namespace.
func (x *explainer) route(link *model.Link, p *rules.Packet) *model.Link {
	r, err := x.way(link, p)
	if err != nil || r == nil {
		return nil
	}
	return x.state.Network.Link(r.Link)
}

// rulePacket is a frame without tags as rules see it; false for what is no IP, and for what leaves by its header before it comes to rules.
func rulePacket(frame []byte) (p rules.Packet, ok bool) {
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	eth, ok := decoded.LinkLayer().(*layers.Ethernet)
	if !ok {
		return p, false
	}
	p.EtherSrc, p.EtherDst = ruleset.Bytes(eth.SrcMAC).Lo, ruleset.Bytes(eth.DstMAC).Lo
	switch ip := decoded.NetworkLayer().(type) {
	case *layers.IPv4:
		p.Src, _ = netip.AddrFromSlice(ip.SrcIP.To4())
		p.Dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		p.Proto, p.DSField, p.TTL, p.Length, p.ID = uint8(ip.Protocol), ip.TOS, ip.TTL, ip.Length, ip.Id
		p.FragOffset = uint16(ip.Flags)<<13 | ip.FragOffset
	case *layers.IPv6:
		p.Src, _ = netip.AddrFromSlice(ip.SrcIP)
		p.Dst, _ = netip.AddrFromSlice(ip.DstIP)
		p.Proto, p.DSField, p.TTL, p.Length, p.FlowLabel = uint8(ip.NextHeader), ip.TrafficClass, ip.HopLimit, ip.Length+40, ip.FlowLabel
	default:
		return p, false
	}
	p.EtherPadding = max(0, len(frame)-14-int(p.Length))
	body := decoded.NetworkLayer().LayerPayload()
	switch p.Proto {
	case 6, 17, 33, 132, 136:
		if len(body) >= 4 {
			p.SPort, p.DPort = uint16(body[0])<<8|uint16(body[1]), uint16(body[2])<<8|uint16(body[3])
		}
		if p.Proto == 6 && len(body) >= 14 {
			p.TCPFlags = body[13]
		}
	case 1, 58:
		if len(body) >= 2 {
			p.ICMPType = uint16(body[0])<<8 | uint16(body[1])
		}
	}
	return p, p.Src.IsValid() && p.Dst.IsValid()
}
