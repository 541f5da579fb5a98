// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// linux/xfrm.h. The database info gives counts, where a dump would walk every association of a VPN gateway.
const (
	xfrmGetSADInfo = 0x23
	xfrmGetSPDInfo = 0x25
	xfrmGetDefault = 0x28

	xfrmaSADCount = 1
	xfrmaSPDInfo  = 1 // struct xfrmu_spdinfo: incoming, outgoing and forward policies, then those of sockets

	xfrmBlock = 1

	xfrmGroupSA     = 3
	xfrmGroupPolicy = 4
)

// readXFRM counts IPsec policies and states. Without xfrm_user and af_key nobody can have made any.
func (r *Reader) readXFRM(n *model.Network) {
	var x model.XFRM
	for i := range n.Links {
		if k := n.Links[i].Kind; k == "xfrm" || k == "vti" || k == "vti6" {
			x.Interfaces++
		}
	}
	if r.loaded("xfrm_user") || r.loaded("af_key") {
		r.subscribeXFRM()
		info := func(typ uint16, header int, take func(ad *netlink.AttributeDecoder)) error {
			return r.k.netlink(request{proto: unix.NETLINK_XFRM, typ: typ, body: make([]byte, 4)}, func(_ uint16, b []byte) error {
				if len(b) < header {
					return errors.New("xfrm message too short")
				}
				_, err := attrs(b[header:], func(ad *netlink.AttributeDecoder) bool { take(ad); return true })
				return err
			})
		}
		err := info(xfrmGetSPDInfo, 4, func(ad *netlink.AttributeDecoder) {
			if b := raw(ad); ad.Type() == xfrmaSPDInfo && len(b) >= 12 {
				x.Policies = int(get32(b, 0) + get32(b, 4) + get32(b, 8))
			}
		})
		if err == nil {
			err = info(xfrmGetSADInfo, 4, func(ad *netlink.AttributeDecoder) {
				if ad.Type() == xfrmaSADCount {
					x.States = int(ad.Uint32())
				}
			})
		}
		if err == nil {
			err = r.k.netlink(request{proto: unix.NETLINK_XFRM, typ: xfrmGetDefault, body: make([]byte, 4)}, func(_ uint16, b []byte) error {
				if len(b) < 3 {
					return errors.New("xfrm default message too short")
				}
				x.DefaultBlock = b[0] == xfrmBlock || b[1] == xfrmBlock || b[2] == xfrmBlock
				return nil
			})
			if errors.Is(err, unix.EINVAL) {
				err = nil // before 5.14 the default is to accept
			}
		}
		if err != nil {
			r.fault(XFRM, "xfrm policies", err)
		}
	}
	n.XFRM = x
}
