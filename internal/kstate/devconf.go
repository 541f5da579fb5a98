// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Indexes into IFLA_INET_CONF, less one: enum IPV4_DEVCONF_* of linux/ip.h. The array has every conf/IFACE value, so that a
// link dump replaces some twenty files per device.
const (
	conf4Forwarding      = 0
	conf4ProxyARP        = 2
	conf4AcceptRedirects = 3
	conf4SendRedirects   = 5
	conf4RPFilter        = 7
	conf4NoXFRM          = 14
	conf4NoPolicy        = 15
	conf4AcceptLocal     = 22
	conf4SrcValidMark    = 23
	conf4ProxyARPPVLAN   = 24
	conf4RouteLocalnet   = 25
	conf4IgnoreLinkdown  = 28
	conf4BCForwarding    = 31
	conf4Known           = 33 // number of values that this list was made from
)

// Indexes into IFLA_INET6_CONF: enum DEVCONF_* of linux/ipv6.h.
const (
	conf6Forwarding        = 0
	conf6MTU               = 2
	conf6ProxyNDP          = 22
	conf6AcceptSourceRoute = 24
	conf6Disable           = 26
	conf6IgnoreLinkdown    = 39
	conf6Seg6              = 44
	conf6NoPolicy          = 48
	conf6IOAM6             = 53
	conf6ForceForwarding   = 59
	conf6Known             = 60
)

func decodeAFSpec(ad *netlink.AttributeDecoder, l *rawLink, un *unknowns) bool {
	switch ad.Type() {
	case unix.AF_INET:
		return nested(ad, "inet", un, func(ad *netlink.AttributeDecoder) bool {
			if ad.Type() != unix.IFLA_INET_CONF {
				return false
			}
			decodeConf4(raw(ad), l, un)
			return true
		})
	case unix.AF_INET6:
		return nested(ad, "inet6", un, func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case unix.IFLA_INET6_CONF:
				decodeConf6(raw(ad), l, un)
			case unix.IFLA_INET6_FLAGS, unix.IFLA_INET6_STATS, unix.IFLA_INET6_ICMP6STATS, unix.IFLA_INET6_CACHEINFO,
				unix.IFLA_INET6_TOKEN, unix.IFLA_INET6_ADDR_GEN_MODE, unix.IFLA_INET6_RA_MTU, unix.IFLA_INET6_MCAST:
				// autoconfiguration and counters
			default:
				return false
			}
			return true
		})
	case unix.AF_MCTP: // not IP
	default:
		return false
	}
	return true
}

// conf reads one value of a conf array; 0 where the kernel's array is shorter.
func conf(b []byte, i int) int {
	if 4*i+4 > len(b) {
		return 0
	}
	return int(int32(get32(b, 4*i)))
}

// newerConf reports values of a conf array that are newer than this program and set.
func newerConf(b []byte, name string, known int, un *unknowns) {
	for i := known; 4*i+4 <= len(b); i++ {
		if v := conf(b, i); v != 0 {
			un.add("%s conf %d = %d", name, i, v)
		}
	}
}

func decodeConf4(b []byte, l *rawLink, un *unknowns) {
	is := func(i int) bool { return conf(b, i) != 0 }
	l.Conf4 = model.Conf4{
		Present:         true,
		Forwarding:      is(conf4Forwarding),
		RPFilter:        uint8(conf(b, conf4RPFilter)),
		AcceptLocal:     is(conf4AcceptLocal),
		SrcValidMark:    is(conf4SrcValidMark),
		SendRedirects:   is(conf4SendRedirects),
		AcceptRedirects: is(conf4AcceptRedirects),
		RouteLocalnet:   is(conf4RouteLocalnet),
		BCForwarding:    is(conf4BCForwarding),
		ProxyARP:        is(conf4ProxyARP) || is(conf4ProxyARPPVLAN),
		IgnoreLinkdown:  is(conf4IgnoreLinkdown),
		DisablePolicy:   is(conf4NoPolicy),
		DisableXFRM:     is(conf4NoXFRM),
	}
	newerConf(b, "ipv4", conf4Known, un)
}

func decodeConf6(b []byte, l *rawLink, un *unknowns) {
	is := func(i int) bool { return conf(b, i) != 0 }
	l.MTU6 = conf(b, conf6MTU)
	l.Conf6 = model.Conf6{
		Present:           true,
		Disabled:          is(conf6Disable),
		Forwarding:        is(conf6Forwarding),
		ForceForwarding:   is(conf6ForceForwarding),
		ProxyNDP:          is(conf6ProxyNDP),
		AcceptSourceRoute: conf(b, conf6AcceptSourceRoute),
		Seg6Enabled:       is(conf6Seg6),
		IOAM6Enabled:      is(conf6IOAM6),
		DisablePolicy:     is(conf6NoPolicy),
		IgnoreLinkdown:    is(conf6IgnoreLinkdown),
	}
	newerConf(b, "ipv6", conf6Known, un)
}
