// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

const rtaFlowLabel = 31 // Linux 6.14; older ones leave it out

// way is a route as Linux tells it.
type way struct {
	Type  int // RTN_*
	Gw    net.IP
	Link  int
	Table int
	MTU   int
}

// ask is Linux's own answer where a packet that a device receives would go: what its routes and policy rules say of it as it came in, with the mark that it has by then. It takes no other
// protocols than these (inet_rtm_getroute()); a packet of one that policy rules would have to be asked for does not come to a lookup. It must be called in the namespace.
func ask(link *model.Link, p *rules.Packet) (*way, error) {
	family, bits := uint8(unix.AF_INET6), uint8(128)
	if p.Dst.Is4() {
		family, bits = unix.AF_INET, 32
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_REQUEST)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Dst_len: bits, Src_len: bits, Tos: p.DSField &^ 3, Flags: unix.RTM_F_LOOKUP_TABLE}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, p.Dst.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_SRC, p.Src.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_IIF, nl.Uint32Attr(uint32(link.Index))))
	if p.Mark != 0 {
		req.AddData(nl.NewRtAttr(unix.RTA_MARK, nl.Uint32Attr(p.Mark)))
	}
	if p.FlowLabel != 0 {
		req.AddData(nl.NewRtAttr(rtaFlowLabel, binary.BigEndian.AppendUint32(nil, p.FlowLabel)))
	}
	switch {
	case p.Proto == unix.IPPROTO_TCP, p.Proto == unix.IPPROTO_UDP:
		req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{p.Proto}))
		req.AddData(nl.NewRtAttr(unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, p.SPort)))
		req.AddData(nl.NewRtAttr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, p.DPort)))
	case p.Proto == unix.IPPROTO_ICMP && p.Dst.Is4(), p.Proto == unix.IPPROTO_ICMPV6 && p.Dst.Is6():
		req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{p.Proto}))
	}
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	return decodeWay(msgs[0])
}

func decodeWay(msg []byte) (*way, error) {
	if len(msg) < unix.SizeofRtMsg {
		return nil, fmt.Errorf("an answer of %d bytes", len(msg))
	}
	head := nl.DeserializeRtMsg(msg)
	w := &way{Type: int(head.Type), Table: int(head.Table)}
	attrs, err := nl.ParseRouteAttr(msg[unix.SizeofRtMsg:])
	if err != nil {
		return nil, err
	}
	for _, a := range attrs {
		switch v := a.Value; {
		case a.Attr.Type == unix.RTA_GATEWAY:
			w.Gw = v
		case a.Attr.Type == unix.RTA_VIA && len(v) > 2: // of the other family, behind its number
			w.Gw = v[2:]
		case a.Attr.Type == unix.RTA_OIF && len(v) == 4:
			w.Link = int(binary.NativeEndian.Uint32(v))
		case a.Attr.Type == unix.RTA_TABLE && len(v) == 4:
			w.Table = int(binary.NativeEndian.Uint32(v))
		case a.Attr.Type == unix.RTA_METRICS:
			metrics, err := nl.ParseRouteAttr(v)
			if err != nil {
				return nil, err
			}
			for _, m := range metrics {
				if m.Attr.Type == unix.RTAX_MTU && len(m.Value) == 4 {
					w.MTU = int(binary.NativeEndian.Uint32(m.Value))
				}
			}
		}
	}
	return w, nil
}

// way asks Linux for the way of the explained packet.
func (x *explainer) way(link *model.Link, p *rules.Packet) (*way, error) {
	family := model.IP6
	if p.Dst.Is4() {
		family = model.IP4
	}
	asked := *p
	if slices.ContainsFunc(x.state.Network.Rules, func(r model.Rule) bool { return r.Family == family && r.Mark }) {
		asked.Mark = x.routeMark(link, p)
	}
	return ask(link, &asked)
}

// routeMark is the mark that rules have given the packet when Linux looks its route up, as far as it comes without them leaving it to the kernel.
func (x *explainer) routeMark(link *model.Link, p *rules.Packet) uint32 {
	rs := x.filter()
	code, known := reason.Parse(x.out.Reason)
	if rs == nil || !known {
		return p.Mark
	}
	in, begun := rules.NewInterpreter(rs), *p
	begun.IIF = ruleDevice(link)
	x.connection(in, &begun, code)
	return in.RouteMark(begun)
}
