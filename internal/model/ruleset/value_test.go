// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"net/netip"
	"testing"
)

func TestPrefixIsARangeOfAddresses(t *testing.T) {
	for _, c := range []struct{ prefix, first, last, outside string }{
		{"10.1.0.0/16", "10.1.0.0", "10.1.255.255", "10.2.0.0"},
		{"10.1.2.3/24", "10.1.2.0", "10.1.2.255", "10.1.1.255"},
		{"192.0.2.1/32", "192.0.2.1", "192.0.2.1", "192.0.2.2"},
		{"0.0.0.0/1", "0.0.0.0", "127.255.255.255", "128.0.0.0"},
		{"2001:db8::/33", "2001:db8::", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", "2001:db8:8000::"},
		{"2001:db8::/64", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::"},
		{"2001:db8::8/125", "2001:db8::8", "2001:db8::f", "2001:db8::7"},
	} {
		r := Prefix(netip.MustParsePrefix(c.prefix))
		if r.Lo != Addr(netip.MustParseAddr(c.first)) || r.Hi != Addr(netip.MustParseAddr(c.last)) {
			t.Errorf("%s is %x", c.prefix, r)
		}
		if !r.Has(r.Lo) || !r.Has(r.Hi) || r.Has(Addr(netip.MustParseAddr(c.outside))) {
			t.Errorf("%s: bounds are inside and %s outside", c.prefix, c.outside)
		}
	}
}

func TestNamesThatBeginSo(t *testing.T) {
	eth := Names("eth")
	for name, want := range map[string]bool{"eth": true, "eth0": true, "ethernet0": true, "et": false, "Eth0": false, "eti": false, "": false} {
		if eth.Has(Name(name)) != want {
			t.Errorf("eth* has %q: %v", name, !want)
		}
	}
	if all := Names(""); !all.Has(Name("")) || !all.Has(Name("wlan0")) {
		t.Error("* has every name")
	}
	if long := Names("fifteen-letters"); long.Lo != Name("fifteen-letters") || !long.Has(Name("fifteen-lettersX")) {
		t.Error("a prefix of 15 bytes leaves one byte open")
	}
}

func TestNextAndPrevCarry(t *testing.T) {
	v := Value{0, ^uint64(0)}
	if v.Next() != (Value{1, 0}) || v.Next().Prev() != v {
		t.Errorf("next of %x is %x", v, v.Next())
	}
	if Max(128).Next() != (Value{}) || (Value{}).Prev() != Max(128) {
		t.Error("128 bits wrap")
	}
	for _, w := range []int{1, 16, 63, 64, 65, 127, 128} {
		m := Max(w)
		if m.And(m.Next()) != (Value{}) || m.Prev().Or(Num(1)) != m {
			t.Errorf("%x is not %d ones", m, w)
		}
	}
}

func TestEveryFieldHasNameAndWidth(t *testing.T) {
	for f := NoField + 1; f < numFields; f++ {
		if f.String() == "" || f.Width() < 1 || f.Width() > 128 {
			t.Errorf("field %d: name %q, %d bits", f, f, f.Width())
		}
	}
}
