// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// struct fib_rule_hdr and what x/sys/unix lacks of linux/fib_rules.h.
const (
	ruleHeader = 12

	fibRuleInvert = 0x2

	fraGoto          = 4
	fraFlow          = 11
	fraSuppressGroup = 13
	fraSuppressLen   = 14
	fraPad           = 18
	fraL3MDev        = 19
	fraUIDRange      = 20
	fraProtocol      = 21
	fraIPProto       = 22
	fraSport         = 23
	fraDport         = 24
	fraDSCP          = 25
	fraFlowLabel     = 26
	fraFlowLabelMask = 27
	fraSportMask     = 28
	fraDportMask     = 29
	fraDSCPMask      = 30
)

func decodeRule(b []byte) (rule model.Rule, err error) {
	if len(b) < ruleHeader {
		return rule, errors.New("rule message too short")
	}
	dstLen, srcLen := b[1], b[2]
	switch b[0] {
	case unix.AF_INET:
		rule.Family = model.IP4
	case unix.AF_INET6:
		rule.Family = model.IP6
	}
	rule.TOS = b[3] != 0
	rule.Table = uint32(b[4])
	rule.Action = b[7]
	flags := get32(b, 8)
	rule.Invert = flags&fibRuleInvert != 0
	var src, dst netip.Addr
	kernel := false
	types, err := attrs(b[ruleHeader:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case unix.FRA_DST:
			dst = address(raw(ad))
		case unix.FRA_SRC:
			src = address(raw(ad))
		case unix.FRA_IIFNAME:
			rule.IIF = ad.String()
		case unix.FRA_OIFNAME:
			rule.OIF = ad.String()
		case unix.FRA_PRIORITY:
			rule.Priority = ad.Uint32()
		case unix.FRA_FWMARK, unix.FRA_FWMASK:
			rule.Mark = rule.Mark || ad.Uint32() != 0 && ad.Type() == unix.FRA_FWMARK
			// A mask is shown with every mark; alone (mark 0) it selects packets without that mark.
			rule.Mark = rule.Mark || ad.Type() == unix.FRA_FWMASK && ad.Uint32() != 0
		case unix.FRA_TABLE:
			rule.Table = ad.Uint32()
		case fraFlow:
			rule.Realms = true
		case unix.FRA_TUN_ID:
			rule.TunID = true
		case fraSuppressGroup:
			rule.SuppressGroup = int32(ad.Uint32()) != -1
		case fraSuppressLen: // always present, -1 when not set
			rule.SuppressPrefix = int32(ad.Uint32()) != -1
		case fraL3MDev:
			rule.L3MDev = ad.Uint8() != 0
		case fraUIDRange:
			rule.UIDRange = true
		case fraIPProto, fraSport, fraDport, fraSportMask, fraDportMask:
			rule.Ports = true
		case fraDSCP, fraDSCPMask:
			rule.TOS = true
		case fraFlowLabel, fraFlowLabelMask:
			rule.FlowLabel = true
		case fraProtocol:
			kernel = ad.Uint8() == unix.RTPROT_KERNEL
		case fraGoto, fraPad: // the action says goto
		default:
			return false
		}
		return true
	})
	rule.Src, rule.Dst = prefix(src, srcLen), prefix(dst, dstLen)
	un := unknowns{where: fmt.Sprintf("rule %d %s", rule.Priority, rule.Family)}
	un.attributes("rule", types)
	rule.Unknown = un.list
	rule.Default = kernel && isDefaultRule(rule)
	return rule, err
}

// isDefaultRule says whether a rule is one of those that the kernel makes for each namespace.
func isDefaultRule(r model.Rule) bool {
	plain := model.Rule{Family: r.Family, Priority: r.Priority, Action: unix.FR_ACT_TO_TBL, Table: r.Table}
	if r.Unknown != nil || r.Priority != plain.Priority {
		return false
	}
	r.Unknown = nil
	same := r.Action == plain.Action && !r.Src.IsValid() && !r.Dst.IsValid() && r.IIF == "" && r.OIF == "" &&
		!(r.TOS || r.Mark || r.Ports || r.TunID || r.Invert || r.L3MDev || r.SuppressPrefix || r.SuppressGroup || r.UIDRange || r.FlowLabel || r.Realms)
	switch r.Priority {
	case 0:
		return same && r.Table == unix.RT_TABLE_LOCAL
	case 32766:
		return same && r.Table == unix.RT_TABLE_MAIN
	case 32767:
		return same && r.Table == unix.RT_TABLE_DEFAULT
	}
	return false
}

// readRules reads the rules of both families in the order in which the kernel evaluates them.
func (r *Reader) readRules(n *model.Network) {
	var out []model.Rule
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		from := len(out)
		fixed := make([]byte, ruleHeader)
		fixed[0] = family
		err := r.ask("rules", func() error {
			out = out[:from]
			return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETRULE, dump: true, body: fixed}, func(_ uint16, b []byte) error {
				rule, err := decodeRule(b)
				if err != nil {
					return err
				}
				if b[0] == family { // a kernel without the family answers for all that it has
					out = append(out, rule)
				}
				return nil
			})
		})
		if err != nil && !noFamily(family, err) {
			r.fault(Rules, fmt.Sprintf("rules of family %d", family), err)
		}
	}
	n.Rules = out
}

// noFamily says whether an error only means that the kernel has no IPv6.
func noFamily(family byte, err error) bool {
	return family == unix.AF_INET6 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT))
}
