// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// linkInfo is a link message with a kind, and the data of it or of its part in a master.
func linkInfo(kind, master string, data func(ae *netlink.AttributeEncoder)) []byte {
	return body(make([]byte, unix.SizeofIfInfomsg), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, "e0")
		ae.Nested(unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) error {
			ae.String(unix.IFLA_INFO_KIND, kind)
			typ := uint16(unix.IFLA_INFO_DATA)
			if master != "" {
				ae.String(unix.IFLA_INFO_SLAVE_KIND, master)
				typ = unix.IFLA_INFO_SLAVE_DATA
			}
			ae.Nested(typ, func(ae *netlink.AttributeEncoder) error { data(ae); return nil })
			return nil
		})
	})
}

func TestBridgeOptions(t *testing.T) {
	for _, c := range []struct {
		what    string
		data    func(ae *netlink.AttributeEncoder)
		want    model.Bridge
		unknown string
	}{
		{"plain", func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 30000); ae.Uint32(5, 1); ae.Uint8(23, 1) }, model.Bridge{Ageing: 30000}, ""},
		{"VLANs", func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 1); ae.Uint8(7, 1) }, model.Bridge{Ageing: 1, VLANFiltering: true}, ""},
		{"br_netfilter", func(ae *netlink.AttributeEncoder) { ae.Uint8(36, 1); ae.Uint8(37, 0); ae.Uint8(38, 1) },
			model.Bridge{NFCall: []string{"nf_call_iptables", "nf_call_arptables"}}, ""},
		{"switches", func(ae *netlink.AttributeEncoder) { ae.Bytes(46, boolopt(1|1<<2)) }, model.Bridge{On: []string{"mst_enabled"}}, ""},
		{"a switch of later", func(ae *netlink.AttributeEncoder) { ae.Bytes(46, boolopt(1<<9)) }, model.Bridge{}, "link e0: bridge attribute 46"},
		{"an attribute of later", func(ae *netlink.AttributeEncoder) { ae.Uint8(51, 1) }, model.Bridge{}, "link e0: bridge attribute 51"},
	} {
		l, err := decodeLink(linkInfo("bridge", "", c.data))
		if err != nil || !reflect.DeepEqual(l.Bridge, &c.want) || whats(l.Unknown) != c.unknown {
			t.Errorf("%s: %+v, %q, %v; want %+v, %q", c.what, l.Bridge, whats(l.Unknown), err, c.want, c.unknown)
		}
	}
}

func TestVXLANOptions(t *testing.T) {
	for _, c := range []struct {
		what    string
		data    func(ae *netlink.AttributeEncoder)
		want    model.VXLAN
		unknown string
	}{
		{"plain", func(ae *netlink.AttributeEncoder) { ae.Uint32(1, 5); ae.Uint8(7, 1); ae.Uint8(25, 0); ae.Uint8(18, 1) }, model.VXLAN{}, ""},
		{"underlay", func(ae *netlink.AttributeEncoder) { ae.Uint32(3, 7); ae.Bytes(17, make([]byte, 16)) }, model.VXLAN{Lower: 7, IP6: true}, ""},
		{"metadata", func(ae *netlink.AttributeEncoder) { ae.Uint8(25, 1); ae.Uint8(30, 1) }, model.VXLAN{On: []string{"external", "vnifilter"}}, ""},
		{"flags", func(ae *netlink.AttributeEncoder) { ae.Flag(23, true); ae.Flag(27, true) }, model.VXLAN{On: []string{"gbp", "gpe"}}, ""},
		{"checksums", func(ae *netlink.AttributeEncoder) { ae.Uint8(21, 1); ae.Uint8(22, 1) }, model.VXLAN{On: []string{"remcsumtx", "remcsumrx"}}, ""},
		{"an attribute of later", func(ae *netlink.AttributeEncoder) { ae.Uint8(35, 1) }, model.VXLAN{}, "link e0: vxlan attribute 35"},
	} {
		l, err := decodeLink(linkInfo("vxlan", "", c.data))
		if err != nil || !reflect.DeepEqual(l.VXLAN, &c.want) || whats(l.Unknown) != c.unknown {
			t.Errorf("%s: %+v, %q, %v; want %+v, %q", c.what, l.VXLAN, whats(l.Unknown), err, c.want, c.unknown)
		}
	}
}

func boolopt(on uint32) []byte {
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, on), 0xffff)
}

func TestBridgePortOptions(t *testing.T) {
	for _, c := range []struct {
		what    string
		data    func(ae *netlink.AttributeEncoder)
		want    model.BridgePort
		unknown string
	}{
		{"plain", func(ae *netlink.AttributeEncoder) { ae.Uint8(1, 3); ae.Uint8(8, 1); ae.Uint8(10, 0); ae.Uint8(33, 0) }, model.BridgePort{}, ""},
		{"isolated", func(ae *netlink.AttributeEncoder) { ae.Uint8(33, 1) }, model.BridgePort{Isolated: true}, ""},
		{"locked, with a backup", func(ae *netlink.AttributeEncoder) { ae.Uint8(39, 1); ae.Uint32(34, 0x500) }, model.BridgePort{On: []string{"locked", "backup_port"}}, ""},
		{"an attribute of later", func(ae *netlink.AttributeEncoder) { ae.Uint8(46, 1) }, model.BridgePort{}, "link e0: bridge port attribute 46"},
	} {
		l, err := decodeLink(linkInfo("veth", "bridge", c.data))
		if err != nil || !reflect.DeepEqual(l.Port, &c.want) || whats(l.Unknown) != c.unknown {
			t.Errorf("%s: %+v, %q, %v; want %+v, %q", c.what, l.Port, whats(l.Unknown), err, c.want, c.unknown)
		}
	}
}
