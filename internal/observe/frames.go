// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// frameRules follows a frame between two ports of a bridge through the chains of family bridge, and, where br_netfilter shows it to them, those of IP.
func (x *explainer) frameRules(link, br *model.Link) *api.RuleWalk {
	rs, p, code, ok := x.comes(link)
	if !ok {
		return nil
	}
	var assumed []string
	out := x.state.Network.LinkCalled(x.out.Egress)
	if out == nil {
		out = x.state.Network.Link(station(br, [6]byte(x.frame[:6])))
	}
	if out != nil {
		p.OIF = ruleDevice(out)
	} else {
		assumed = append(assumed, "no way out, since the bridge does not know at which port the station is")
	}
	shown := x.shown(link.Index)
	in := rules.NewInterpreter(rs)
	if shown {
		assumed = append(assumed, x.connection(in, &p, code)...)
	}
	assumed = append(assumed, x.unread(rs)...)
	res, met := in.TraceFrame(rules.Frame{Packet: p, Bridge: ruleDevice(br), Shown: shown, First: x.beforeBridgeNetfilter})
	return walked(code, res, met, assumed)
}

// shown says whether br_netfilter shows what is received by a bridge's port to the chains of IP.
func (x *explainer) shown(index int) bool {
	port := port(x.state, index)
	if port == nil || port.Bridge == nil {
		return false
	}
	if familyOf(x.frame) == "ip6" {
		return port.Bridge.Call6.By != ""
	}
	return port.Bridge.Call4.By != ""
}

// beforeBridgeNetfilter says whether a chain of family bridge is called before br_netfilter at its hook, in the order that the kernel tells.
func (x *explainer) beforeBridgeNetfilter(t *ruleset.Table, c *ruleset.Chain) bool {
	of := slices.DeleteFunc(slices.Clone(x.state.Network.Netfilter), func(h model.NFHook) bool {
		return h.Family != model.BridgeFamily || h.Hook != c.Base.Hook.String()
	})
	shown := slices.IndexFunc(of, func(h model.NFHook) bool { return h.Kind == model.BridgeNF })
	return shown < 0 || slices.IndexFunc(of, func(h model.NFHook) bool { return h.Table == t.Name && h.Chain == c.Name }) < shown
}

// station asks a bridge for the port at which it knows a station; 0 for none. It must be called in the namespace.
func station(br *model.Link, mac [6]byte) int {
	ask := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	head := make([]byte, unix.SizeofNdMsg)
	head[0] = unix.AF_BRIDGE
	ask.AddRawData(slices.Concat(head, attribute(unix.NDA_LLADDR, mac[:]), attribute(unix.NDA_MASTER, binary.NativeEndian.AppendUint32(nil, uint32(br.Index)))))
	answers, err := ask.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil || len(answers) != 1 || len(answers[0]) < unix.SizeofNdMsg {
		return 0
	}
	return int(binary.NativeEndian.Uint32(answers[0][4:]))
}

func attribute(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
