// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Generic netlink: header and the two families that describe devices.
const (
	genlHeader   = 4
	genlCtrl     = 0x10
	ctrlGet      = 3
	ctrlID       = 1
	ctrlName     = 2
	ctrlGroups   = 7
	ctrlGroup    = 1 // inside an entry of ctrlGroups
	ctrlGroupID  = 2
	netdevGet    = 1 // NETDEV_CMD_DEV_GET
	netdevIndex  = 1
	netdevXDP    = 3
	ethFeatures  = 11 // ETHTOOL_MSG_FEATURES_GET
	ethStrings   = 1  // ETHTOOL_MSG_STRSET_GET
	ethHeader    = 1
	ethHdrIndex  = 1
	ethHdrFlags  = 3
	ethActive    = 4
	ethCompact   = 1 // ETHTOOL_FLAG_COMPACT_BITSETS
	bitsetValue  = 4
	strsetSets   = 2
	strsetID     = 1
	strsetList   = 3
	strFeatures  = 4 // ETH_SS_FEATURES
	devMgmtGroup = "mgmt"
)

// genl are the numbers that the kernel gave to the families; 0 where it has none.
type genl struct {
	netdev, ethtool uint16
	netdevMgmt      int            // multicast group of device changes
	features        map[string]int // bit numbers of ethtool's feature names
	ila             bool           // identifier-locator addressing is there, which translates IPv6 in a netfilter hook
}

// findGenl lists all families: asking for one by name would make the kernel look for a module.
func findGenl(k kernel) (g genl, err error) {
	err = k.netlink(request{proto: unix.NETLINK_GENERIC, typ: genlCtrl, dump: true, body: []byte{ctrlGet, 2, 0, 0}}, func(_ uint16, b []byte) error {
		if len(b) < genlHeader {
			return errors.New("generic netlink message too short")
		}
		var id uint16
		var name string
		groups := map[string]int{}
		_, err := attrs(b[genlHeader:], func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case ctrlID:
				id = ad.Uint16()
			case ctrlName:
				name = ad.String()
			case ctrlGroups:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						ad.Nested(func(ad *netlink.AttributeDecoder) error {
							var group string
							var gid uint32
							for ad.Next() {
								switch ad.Type() {
								case ctrlGroup:
									group = ad.String()
								case ctrlGroupID:
									gid = ad.Uint32()
								}
							}
							groups[group] = int(gid)
							return nil
						})
					}
					return nil
				})
			}
			return true
		})
		switch name {
		case "netdev":
			g.netdev, g.netdevMgmt = id, groups[devMgmtGroup]
		case "ila":
			g.ila = true
		case "ethtool":
			g.ethtool = id
		}
		return err
	})
	if err == nil && g.ethtool != 0 {
		g.features, err = findFeatures(k, g.ethtool)
	}
	return g, err
}

// findFeatures reads the kernel's list of feature names, by which the bits of its compact answers are found.
func findFeatures(k kernel, family uint16) (map[string]int, error) {
	out := map[string]int{}
	one := func(typ uint16, fill func(ae *netlink.AttributeEncoder)) func(ae *netlink.AttributeEncoder) {
		return func(ae *netlink.AttributeEncoder) {
			ae.Nested(typ, func(ae *netlink.AttributeEncoder) error { fill(ae); return nil })
		}
	}
	set := one(strsetSets, one(1, func(ae *netlink.AttributeEncoder) { ae.Uint32(strsetID, strFeatures) }))
	fill := func(ae *netlink.AttributeEncoder) {
		ae.Nested(ethHeader, func(ae *netlink.AttributeEncoder) error { ae.Uint32(ethHdrFlags, 0); return nil })
		set(ae)
	}
	err := k.netlink(request{proto: unix.NETLINK_GENERIC, typ: family, body: body([]byte{ethStrings, 1, 0, 0}, fill)}, func(_ uint16, b []byte) error {
		if len(b) < genlHeader {
			return errors.New("ethtool message too short")
		}
		ad, err := netlink.NewAttributeDecoder(b[genlHeader:])
		if err != nil {
			return err
		}
		// STRINGSETS / STRINGSET / STRINGS / STRING / (number, name)
		within(ad, strsetSets, func(ad *netlink.AttributeDecoder) {
			within(ad, 1, func(ad *netlink.AttributeDecoder) {
				within(ad, strsetList, func(ad *netlink.AttributeDecoder) {
					within(ad, 1, func(ad *netlink.AttributeDecoder) {
						index := 0
						for ad.Next() {
							switch ad.Type() {
							case 1:
								index = int(ad.Uint32())
							case 2:
								out[ad.String()] = index
							}
						}
					})
				})
			})
		})
		return ad.Err()
	})
	return out, err
}

// within visits the attributes inside each attribute of a type.
func within(ad *netlink.AttributeDecoder, typ uint16, visit func(ad *netlink.AttributeDecoder)) {
	for ad.Next() {
		if ad.Type() == typ {
			ad.Nested(func(ad *netlink.AttributeDecoder) error { visit(ad); return nil })
		}
	}
}

// capability is what drivers say of a device.
type capability struct {
	xdp       *uint64
	stripping bool
	gro, tso  bool
	asIs      bool
}

// What a device does itself of what the kernel else does before it hands a packet over (validate_xmit_skb()), by ethtool's names: all that a veth does, as far as it can come in forwarded packets.
var sendOffloads = []string{"tx-scatter-gather", "tx-scatter-gather-fraglist", "tx-checksum-ip-generic", "tx-checksum-sctp", "tx-tcp-segmentation", "tx-tcp-ecn-segmentation",
	"tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation", "tx-sctp-segmentation", "tx-gso-list", "tx-gre-segmentation", "tx-gre-csum-segmentation",
	"tx-ipxip4-segmentation", "tx-ipxip6-segmentation", "tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"}

// readDevices fills in what the drivers of links say; index is that of the only link, or 0 for all.
func (r *Reader) readDevices(links []*model.Link, index int) {
	caps := map[int]*capability{}
	of := func(i int) *capability {
		if caps[i] == nil {
			caps[i] = &capability{}
		}
		return caps[i]
	}
	if id := r.genl.netdev; id != 0 {
		err := r.ask("xdp features", func() error { return r.k.netlink(xdpFeaturesRequest(id, index), takeXDPFeatures(of)) })
		if err != nil && !errors.Is(err, unix.ENODEV) {
			r.fault(Links, "xdp features", err)
		}
	}
	if id := r.genl.ethtool; id != 0 {
		err := r.ask("offloads", func() error { return r.k.netlink(featuresRequest(id, index), takeFeatures(r.genl.features, of)) })
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) {
			r.fault(Links, "offloads", err)
		}
	}
	for _, l := range links {
		c := of(l.Index)
		l.XDPFeatures, l.GRO, l.TSO, l.SendsAsIs = c.xdp, c.gro, c.tso, c.asIs
		// Only a card strips: a software device (one with a kind) names the offload too, but a frame from a wire keeps its tag.
		l.VLANStripping = c.stripping && l.Kind == ""
		l.Driver = r.driverOf(l)
	}
}

// driverOf keeps driver names by ifindex: they do not change while a device lives.
func (r *Reader) driverOf(l *model.Link) string {
	if d, ok := r.drivers[l.Index]; ok {
		return d
	}
	d, err := r.k.driver(l.Name)
	if err != nil {
		if !errors.Is(err, unix.ENODEV) { // ENODEV: renamed or gone, which its event will tell
			r.fault(Links, fmt.Sprintf("driver of %s", l.Name), err)
		}
		return ""
	}
	r.drivers[l.Index] = d
	return d
}

func xdpFeaturesRequest(family uint16, index int) request {
	return request{proto: unix.NETLINK_GENERIC, typ: family, dump: index == 0, body: body([]byte{netdevGet, 1, 0, 0}, func(ae *netlink.AttributeEncoder) {
		if index != 0 {
			ae.Uint32(netdevIndex, uint32(index))
		}
	})}
}

func takeXDPFeatures(of func(int) *capability) func(uint16, []byte) error {
	return func(_ uint16, b []byte) error {
		if len(b) < genlHeader {
			return errors.New("netdev message too short")
		}
		var index int
		var features *uint64
		_, err := attrs(b[genlHeader:], func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case netdevIndex:
				index = int(ad.Uint32())
			case netdevXDP:
				v := ad.Uint64()
				features = &v
			}
			return true
		})
		of(index).xdp = features
		return err
	}
}

func featuresRequest(family uint16, index int) request {
	return request{proto: unix.NETLINK_GENERIC, typ: family, dump: index == 0, body: body([]byte{ethFeatures, 1, 0, 0}, func(ae *netlink.AttributeEncoder) {
		ae.Nested(ethHeader, func(ae *netlink.AttributeEncoder) error {
			if index != 0 {
				ae.Uint32(ethHdrIndex, uint32(index))
			}
			ae.Uint32(ethHdrFlags, ethCompact)
			return nil
		})
	})}
}

func takeFeatures(bits map[string]int, of func(int) *capability) func(uint16, []byte) error {
	return func(_ uint16, b []byte) error {
		if len(b) < genlHeader {
			return errors.New("ethtool message too short")
		}
		var index int
		var active []byte
		_, err := attrs(b[genlHeader:], func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case ethHeader:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						if ad.Type() == ethHdrIndex {
							index = int(ad.Uint32())
						}
					}
					return nil
				})
			case ethActive:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						if ad.Type() == bitsetValue {
							active = raw(ad)
						}
					}
					return nil
				})
			}
			return true
		})
		c := of(index)
		is := func(feature string) bool {
			bit, known := bits[feature]
			return known && 4*(bit/32)+4 <= len(active) && get32(active, 4*(bit/32))&(1<<(bit%32)) != 0
		}
		c.stripping = is("rx-vlan-hw-parse") || is("rx-vlan-stag-hw-parse")
		c.gro, c.tso = is("rx-gro"), is("tx-tcp-segmentation")
		c.asIs = !slices.ContainsFunc(sendOffloads, func(name string) bool {
			_, known := bits[name]
			return known && !is(name)
		})
		return err
	}
}
