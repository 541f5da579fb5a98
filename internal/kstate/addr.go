// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Attributes of an address that do not matter to forwarded packets: label, lifetimes, the route's metric, who made it.
var addrIgnored = setOf(unix.IFA_LABEL, unix.IFA_CACHEINFO, unix.IFA_RT_PRIORITY, ifaProto, unix.IFA_TARGET_NETNSID)

const ifaProto = 11 // who made the address

func decodeAddr(b []byte) (a model.Addr, un []model.Unknown, err error) {
	if len(b) < unix.SizeofIfAddrmsg {
		return a, nil, errors.New("address message too short")
	}
	family, bits, flags := b[0], b[1], uint32(b[2])
	a.Index = int(get32(b, 4))
	var local, addr netip.Addr
	types, err := attrs(b[unix.SizeofIfAddrmsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case unix.IFA_ADDRESS:
			addr = address(raw(ad))
		case unix.IFA_LOCAL:
			local = address(raw(ad))
		case unix.IFA_BROADCAST:
			a.Broadcast = address(raw(ad))
		case unix.IFA_ANYCAST:
			addr, a.Anycast = address(raw(ad)), true
		case unix.IFA_MULTICAST:
			addr = address(raw(ad))
		case unix.IFA_FLAGS:
			flags = ad.Uint32()
		default:
			return addrIgnored[ad.Type()]
		}
		return true
	})
	// On a point-to-point address IFA_ADDRESS is the other end and IFA_LOCAL ours.
	if !local.IsValid() {
		local = addr
	}
	a.Prefix = prefix(local, bits)
	a.Tentative = flags&unix.IFA_F_TENTATIVE != 0
	u := unknowns{where: "address " + a.Prefix.String()}
	u.attributes("address", types)
	if family != unix.AF_INET && family != unix.AF_INET6 || !a.Prefix.IsValid() {
		u.add("family %d prefix %d", family, bits)
	}
	return a, u.list, err
}

// readAddrs reads the addresses of both families, of all devices or of those in only.
func (r *Reader) readAddrs(n *model.Network, only map[int]bool) {
	type target struct {
		typ    uint16
		family byte
		index  int
	}
	var targets []target
	add := func(index int) {
		targets = append(targets, target{unix.RTM_GETADDR, unix.AF_INET, index}, target{unix.RTM_GETADDR, unix.AF_INET6, index},
			target{unix.RTM_GETANYCAST, unix.AF_INET6, index})
	}
	var out []model.Addr
	if only == nil {
		add(0)
	} else {
		for _, a := range n.Addrs {
			if !only[a.Index] {
				out = append(out, a)
			}
		}
		for index := range only {
			add(index)
		}
	}
	var un []model.Unknown
	for _, t := range targets {
		from, unFrom := len(out), len(un)
		fixed := make([]byte, unix.SizeofIfAddrmsg)
		fixed[0] = t.family
		put32(fixed, 4, uint32(t.index))
		err := r.ask("addresses", func() error {
			out, un = out[:from], un[:unFrom]
			return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: t.typ, dump: true, body: fixed}, func(_ uint16, b []byte) error {
				a, u, err := decodeAddr(b)
				if err != nil {
					return err
				}
				// A kernel without IPv6 answers for all families that it has; anycast dumps are not filtered by device.
				if len(b) > 0 && b[0] == t.family && (t.index == 0 || a.Index == t.index) {
					out, un = append(out, a), append(un, u...)
				}
				return nil
			})
		})
		switch {
		case errors.Is(err, unix.ENODEV): // the device is gone, and its addresses with it
		case t.family == unix.AF_INET6 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)):
		case err != nil:
			r.fault(Addrs, fmt.Sprintf("addresses of family %d", t.family), err)
		}
	}
	slices.SortFunc(out, func(a, b model.Addr) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	n.Left = left(n.Left, n.Addrs, out)
	n.Addrs = out
	r.unknown[Addrs] = un
}

// leftLimit bounds the addresses that are remembered after they have left.
const leftLimit = 1024

// left gives the addresses that left, those of before among them, as long as they have not come back.
func left(before []netip.Addr, was, now []model.Addr) []netip.Addr {
	own := make(map[netip.Addr]bool, len(now))
	for _, a := range now {
		own[a.Prefix.Addr()] = true
	}
	var out []netip.Addr
	add := func(a netip.Addr) {
		if a.Is4() && !own[a] {
			own[a], out = true, append(out, a) // once
		}
	}
	for _, a := range before {
		add(a)
	}
	for _, a := range was {
		add(a.Prefix.Addr())
	}
	return out[max(0, len(out)-leftLimit):]
}
