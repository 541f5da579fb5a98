// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// message makes the data of a netlink message.
func crafted(t *testing.T, fixed []byte, fill func(ae *netlink.AttributeEncoder)) []byte {
	t.Helper()
	return body(fixed, fill)
}

func whats(un []model.Unknown) string {
	var out []string
	for _, u := range un {
		out = append(out, u.Where+": "+u.What)
	}
	return strings.Join(out, "; ")
}

// TestUnknownAttributes: what a newer kernel says beyond this program's knowledge must come out as Unknown, wherever it is.
func TestUnknownAttributes(t *testing.T) {
	link := func(fill func(ae *netlink.AttributeEncoder)) string {
		l, err := decodeLink(crafted(t, make([]byte, unix.SizeofIfInfomsg), func(ae *netlink.AttributeEncoder) {
			ae.String(unix.IFLA_IFNAME, "e0")
			fill(ae)
		}))
		if err != nil {
			t.Fatal(err)
		}
		return whats(l.Unknown)
	}
	words := func(n int, at int, v uint32) []byte {
		b := make([]byte, 4*n)
		binary.NativeEndian.PutUint32(b[4*at:], v)
		return b
	}
	nest := func(typs ...uint16) func(ae *netlink.AttributeEncoder) {
		last := typs[len(typs)-1]
		fill := func(ae *netlink.AttributeEncoder) { ae.Uint32(last, 1) }
		for i := len(typs) - 2; i >= 0; i-- {
			typ, inner := typs[i], fill
			fill = func(ae *netlink.AttributeEncoder) {
				ae.Nested(typ, func(ae *netlink.AttributeEncoder) error { inner(ae); return nil })
			}
		}
		return fill
	}
	kind := func(kind string, attr uint16) func(ae *netlink.AttributeEncoder) {
		return func(ae *netlink.AttributeEncoder) {
			ae.Nested(unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) error {
				ae.String(unix.IFLA_INFO_KIND, kind)
				ae.Nested(unix.IFLA_INFO_DATA, func(ae *netlink.AttributeEncoder) error { ae.Uint32(attr, 5); return nil })
				return nil
			})
		}
	}
	conf := func(family, attr uint16, b []byte) func(ae *netlink.AttributeEncoder) {
		return func(ae *netlink.AttributeEncoder) {
			ae.Nested(unix.IFLA_AF_SPEC, func(ae *netlink.AttributeEncoder) error {
				ae.Nested(family, func(ae *netlink.AttributeEncoder) error { ae.Bytes(attr, b); return nil })
				return nil
			})
		}
	}
	rule := func(fill func(ae *netlink.AttributeEncoder)) string {
		r, err := decodeRule(crafted(t, append([]byte{unix.AF_INET}, make([]byte, ruleHeader-1)...), fill))
		if err != nil {
			t.Fatal(err)
		}
		if r.Default {
			t.Error("a rule that is not understood is taken for one of the kernel's own")
		}
		return whats(r.Unknown)
	}
	route := func(fixed []byte, fill func(ae *netlink.AttributeEncoder)) string {
		var rt rawRoute
		if err := decodeRoute(crafted(t, fixed, fill), &rt); err != nil {
			t.Fatal(err)
		}
		if rt.Unknown != nil && !rt.notable() {
			t.Error("a route that is not understood is not notable")
		}
		return whats(rt.Unknown)
	}
	inet := func(typ byte) []byte {
		b := make([]byte, unix.SizeofRtMsg)
		b[0], b[7] = unix.AF_INET, typ
		return b
	}
	hop := append([]byte{16, 0, 0, 0, 1, 0, 0, 0}, 8, 0, 200, 0, 1, 0, 0, 0)
	binary.NativeEndian.PutUint16(hop, 16)
	for _, c := range []struct{ name, got, want string }{
		{"link", link(nest(200)), "link e0: link attribute 200"},
		{"link, known", link(nest(unix.IFLA_TXQLEN)), ""},
		{"linkinfo", link(nest(unix.IFLA_LINKINFO, 77)), "link e0: linkinfo attribute 77"},
		{"vlan", link(kind("vlan", 99)), "link e0: vlan attribute 99"},
		{"vrf", link(kind("vrf", 9)), "link e0: vrf attribute 9"},
		{"bond", link(kind("bond", 200)), "link e0: bond attribute 200"},
		{"bond, known", link(kind("bond", 3)), ""},
		{"xdp", link(nest(unix.IFLA_XDP, 60)), "link e0: xdp attribute 60"},
		{"address family", link(nest(unix.IFLA_AF_SPEC, 33, 1)), "link e0: af_spec attribute 33"},
		{"inet", link(nest(unix.IFLA_AF_SPEC, unix.AF_INET, 9)), "link e0: inet attribute 9"},
		{"inet6", link(nest(unix.IFLA_AF_SPEC, unix.AF_INET6, 50)), "link e0: inet6 attribute 50"},
		{"conf, newer and set", link(conf(unix.AF_INET, unix.IFLA_INET_CONF, words(40, 38, 2))), "link e0: ipv4 conf 38 = 2"},
		{"conf, newer and not set", link(conf(unix.AF_INET, unix.IFLA_INET_CONF, words(40, 3, 2))), ""},
		{"conf6, newer and set", link(conf(unix.AF_INET6, unix.IFLA_INET6_CONF, words(70, 65, 1))), "link e0: ipv6 conf 65 = 1"},
		{"rule", rule(nest(66)), "rule 0 ip4: rule attribute 66"},
		{"route", route(inet(unix.RTN_UNICAST), nest(90)), "route 0.0.0.0/0 table 0: route attribute 90"},
		{"route metric", route(inet(unix.RTN_UNICAST), nest(unix.RTA_METRICS, 40)), "route 0.0.0.0/0 table 0: metrics attribute 40"},
		{"route type", route(inet(50), nest(unix.RTA_OIF)), "route 0.0.0.0/0 table 0: type 50"},
		{"next hop in a route", route(inet(unix.RTN_UNICAST), func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.RTA_MULTIPATH, hop) }),
			"route 0.0.0.0/0 table 0: route attribute 9"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}

	_, un, err := decodeAddr(crafted(t, []byte{unix.AF_INET, 24, 0, 0, 1, 0, 0, 0}, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, []byte{10, 0, 0, 1})
		ae.Uint32(99, 1)
	}))
	if got, want := whats(un), "address 10.0.0.1/24: address attribute 99"; got != want || err != nil {
		t.Errorf("address: %q, want %q (%v)", got, want, err)
	}
	id, h, err := decodeNexthop(crafted(t, make([]byte, nhMsg), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(nhaID, 7)
		ae.Uint32(99, 1)
	}))
	if got, want := whats(h.unknown), "nexthop 7: nexthop attribute 99"; got != want || id != 7 || err != nil {
		t.Errorf("nexthop %d: %q, want %q (%v)", id, got, want, err)
	}
	_, h, err = decodeNexthop(crafted(t, make([]byte, nhMsg), func(ae *netlink.AttributeEncoder) { ae.Uint16(nhaGroupType, 9) }))
	if err != nil || h.unknown == nil {
		t.Errorf("a next-hop group of unknown type: %+v, %v", h, err)
	}
	hook, err := decodeHook(crafted(t, make([]byte, nfHeader), func(ae *netlink.AttributeEncoder) {
		ae.String(hookFunction, "ipv4_conntrack_in")
		ae.Uint32(99, 1)
	}), model.IP4)
	if err != nil || hook.Kind != model.NFOther || len(hook.Extra) != 1 {
		t.Errorf("hook with an unknown attribute: %+v, %v", hook, err)
	}
}

// TestHooksAreClassified: a hook by its symbol, one of a table by its description.
func TestHooksAreClassified(t *testing.T) {
	for function, want := range map[string]model.NFKind{
		"ipv4_conntrack_in": model.Conntrack, "nf_nat_ipv4_out": model.Conntrack, "ipv6_defrag": model.Conntrack, "nf_confirm": model.Conntrack,
		"ipt_do_table": model.Legacy, "ip6table_mangle_hook": model.Legacy, "nft_do_chain_inet": model.NFTables, "nf_hook_run_bpf": model.NFBPF,
		"br_nf_pre_routing": model.BridgeNF, "ip_sabotage_in": model.BridgeNF, "nf_flow_offload_ip_hook": model.Flowtable,
		"apparmor_ip_postroute": model.NFLocal,
		"selinux_ip_forward":    model.NFOther, "ip_vs_in_hook": model.NFOther, "my_module_hook": model.NFOther, "": model.NFOther,
	} {
		if got := classify(function); got != want {
			t.Errorf("%q is %s, want %s", function, got, want)
		}
	}
	known := []model.NFHook{{Family: model.IP4, Hook: "forward", Kind: model.NFTables, Table: "t", Chain: "c", Rules: 3}, {Family: model.IP4, Hook: "forward", Kind: model.Legacy, Table: "filter"}}
	hook := func(h model.NFHook) rawHook { h.Family, h.Hook = model.IP4, "forward"; return rawHook{NFHook: h} }
	left := unexplained([]rawHook{
		hook(model.NFHook{Kind: model.NFTables, Table: "t", Chain: "c"}),
		hook(model.NFHook{Kind: model.Legacy, Function: "ipt_do_table"}),
		hook(model.NFHook{Kind: model.Legacy, Function: "ipt_do_table", Priority: -300}),
		hook(model.NFHook{Kind: model.NFTables, Table: "t", Chain: "later"}),
		hook(model.NFHook{Kind: model.Conntrack, Function: "nf_confirm"}),
	}, known)
	var got []string
	for _, h := range left {
		got = append(got, string(h.Kind)+" "+h.Function)
	}
	if s, want := strings.Join(got, ", "), "other ipt_do_table, other t later, conntrack nf_confirm"; s != want {
		t.Errorf("unexplained: %s, want %s", s, want)
	}
}

// FuzzDecoders: no message, however broken, may crash a decoder.
func FuzzDecoders(f *testing.F) {
	f.Add([]byte{2, 24, 0, 0, 1, 0, 0, 0, 8, 0, 1, 0, 10, 0, 0, 1})
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeLink(b)
		decodeAddr(b)
		decodeRule(b)
		decodeRoute(b, &rawRoute{})
		decodeNexthop(b)
		decodeHook(b, model.IP4)
		decodeQdisc(b)
		decodePacketSocket(b)
		decodeLegacy(b, "filter", model.IP4, entry4)
		decodeLegacy(b, "nat", model.IP6, entry6)
		filterHarmless(b, 3, 3, routedPackets)
		filterHarmless(b, 3, 3, bridgedPackets)
		messages(b, func(header, []byte) error { return nil })
		r := newReader(Options{}, nil)
		r.routes.valid = true
		rtEvents(r, header{typ: unix.RTM_NEWLINK}, b)
		rtEvents(r, header{typ: unix.RTM_NEWNETCONF}, b)
		netdevEvents(r, header{}, b)
	})
}

// TestLeft: an IPv4 address that is gone from every device is told until it comes back, and no more than so many are.
func TestLeft(t *testing.T) {
	addrs := func(list ...string) (out []model.Addr) {
		for _, a := range list {
			out = append(out, model.Addr{Prefix: netip.MustParsePrefix(a)})
		}
		return out
	}
	gone := left(nil, addrs("10.0.0.1/24", "10.0.0.2/24", "10.0.0.2/32", "2001:db8::1/64"), addrs("10.0.0.1/24"))
	if got := fmt.Sprint(gone); got != "[10.0.0.2]" {
		t.Errorf("after two of three addresses have left: %s", got)
	}
	if got := fmt.Sprint(left(gone, addrs("10.0.0.1/24"), addrs("10.0.0.2/16"))); got != "[10.0.0.1]" {
		t.Errorf("after one came back and the other left: %s", got)
	}
	var many []model.Addr
	for i := range leftLimit + 5 {
		many = append(many, model.Addr{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)})
	}
	if gone = left(gone, many, nil); len(gone) != leftLimit || gone[len(gone)-1] != many[len(many)-1].Prefix.Addr() {
		t.Errorf("%d addresses are kept, the last is %s", len(gone), gone[len(gone)-1])
	}
}
