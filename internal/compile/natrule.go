// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// natRule is a rule of a nat chain that is a static mapping: packets at one end are to be at another.
type natRule struct {
	destination bool // theirs is mapped, else their source
	from        end
	to          *ruleset.Mapping
	here        bool // the rule is for packets of this interface
}

// readNATRule reads a rule; its error is why it is no static mapping.
func readNATRule(r *ruleset.Rule, destination bool, iface string) (*natRule, error) {
	n := &natRule{destination: destination, here: true}
	for _, s := range r.Steps {
		if err := n.step(s, iface); err != nil {
			return nil, err
		}
	}
	return n, n.lacks()
}

func (n *natRule) step(s ruleset.Step, iface string) error {
	switch s := s.(type) {
	case ruleset.Count:
		return nil
	case ruleset.Test:
		return n.test(s, iface)
	case ruleset.Slow:
		name := "snat"
		if n.destination {
			name = "dnat"
		}
		if s.Name != name || n.to != nil {
			return errors.New(s.Text)
		}
		n.to = &s.To
		return nil
	case ruleset.Unknown:
		return errors.New(s.Text)
	}
	return errors.New("it does something else")
}

// test takes in a test: of the end that is mapped, or of what is known of all packets of the object.
func (n *natRule) test(t ruleset.Test, iface string) error {
	address, port := ruleset.IP4Src, ruleset.SPort
	if n.destination {
		address, port = ruleset.IP4Dst, ruleset.DPort
	}
	v, one := single(t)
	switch {
	case t.Field == ruleset.NFProto && one && v.Lo == uint64(ruleset.IP4), t.Field == ruleset.EtherType && one && v.Lo == 0x0800:
	case t.Field == ruleset.IIFName && n.destination && iface == "":
		return errors.New("the rule is for one interface; say with --interface which one the object is for")
	case t.Field == ruleset.IIFName && n.destination && t.Mask == (ruleset.Value{}):
		in := slices.ContainsFunc(t.Ranges, func(r ruleset.Range) bool { return r.Has(ruleset.Name(iface)) })
		n.here = n.here && in != t.Not
	case t.Field == port && !one && t.Not && t.Ranges == nil: // "-m tcp" alone
	case !one:
		return fmt.Errorf("%s is not one value", t.Field)
	case t.Field == address:
		n.from.addr = v.Is4()
	case t.Field == ruleset.L4Proto && (v.Lo == 6 || v.Lo == 17):
		n.from.proto = uint8(v.Lo)
	case t.Field == port:
		n.from.port = uint16(v.Lo)
	default:
		return fmt.Errorf("it asks for %s", t.Field)
	}
	return nil
}

// lacks says what keeps a rule that was read from being a mapping of one end to one other.
func (n *natRule) lacks() error {
	to, from := n.to, n.from
	switch {
	case to == nil:
		return errors.New("it maps nothing")
	case !to.Addr.Is4() || to.LastAddr != to.Addr || to.Port != to.LastPort || to.More:
		return errors.New("it does not map to one IPv4 address and port")
	case !from.addr.IsValid():
		return errors.New("it is not for one address")
	case (from.port != 0) != (from.proto != 0):
		return errors.New("it is for a protocol without its port")
	case to.Port != 0 && from.port == 0:
		return errors.New("many ports become one")
	}
	return nil
}

// target is where packets are to be. The port stays where the rule gives none.
func (n *natRule) target() end {
	target := end{n.to.Addr, n.to.Port, n.from.proto}
	if target.port == 0 {
		target.port = n.from.port
	}
	return target
}

// single is the one value that a test allows.
func single(t ruleset.Test) (ruleset.Value, bool) {
	if t.Not || t.Mask != (ruleset.Value{}) || len(t.Ranges) != 1 || t.Ranges[0].Lo != t.Ranges[0].Hi {
		return ruleset.Value{}, false
	}
	return t.Ranges[0].Lo, true
}
