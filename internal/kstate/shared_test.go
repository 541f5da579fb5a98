// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"testing"
	"time"
)

// TestSharedPrefixes: whether an IPv6 prefix has several routes, of which two lookups may choose differently, is known after a full read and after events.
func TestSharedPrefixes(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	for _, c := range []struct {
		script string
		want   bool
	}{
		{"true", false},
		{"ip -6 route add fd20::/64 via fd01::2", false},
		{"ip -6 route add fd20::/64 via fd02::2 metric 7", true},
		{"ip -6 route del fd20::/64 via fd02::2 metric 7", false},
		{"ip -6 route replace fd20::/64 via fd02::2", false},
		{"ip -6 route add fd21::/64 nexthop via fd01::2 nexthop via fd02::2", true},
	} {
		ns.run(t, c.script)
		if _, err := r.Wait(200 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		n, err := r.Read(Routes)
		if err != nil || n.Routes.Shared6 != c.want {
			t.Errorf("events, after %q: %t, want %t (%v)", c.script, n.Routes.Shared6, c.want, err)
		}
		if n, err = open(t, Options{}).Read(Routes); err != nil || n.Routes.Shared6 != c.want {
			t.Errorf("anew, after %q: %t, want %t (%v)", c.script, n.Routes.Shared6, c.want, err)
		}
	}
}

// A route that expires is found by the lookup of rules until it is collected, and by that of packets until it has expired.
func TestExpiringRoutesAreShared(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	ns.run(t, "ip -6 route add fd22::/64 via fd01::2 expires 100")
	if n, err := open(t, Options{}).Read(Routes); err != nil || !n.Routes.Shared6 {
		t.Errorf("a route that expires: %t (%v)", n.Routes.Shared6, err)
	}
}

// TestTypesOfAddresses: routes that make rules see another type of an IPv6 address than a lookup for programs does, and prefixes on links whose first address is anycast.
func TestTypesOfAddresses(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	for _, c := range []struct {
		script string
		odd    bool
		onLink uint8
	}{
		{"true", false, 0},
		{"ip -6 route add fd20::/120 via fd01::2; ip -6 route add local fd21::/100 dev lo; ip -6 route add blackhole fd22::/100; ip -6 route add fd23::/127 dev e0; ip -6 address add fd24::1/128 dev e0", false, 0},
		{"ip -6 route add fd25::/48 dev e0; ip -6 route add fd26::/112 dev e0; ip -6 address add fd27::1/80 dev e0 nodad", false, 112},
		{"ip -6 nexthop add id 7 via fd01::2 dev e0; ip -6 route add fd28::/120 nhid 7", false, 120}, // which may lead elsewhere tomorrow
		{"ip -6 route add fd29::/64 dev e0 table local", true, 120},
		{"ip -6 route del fd29::/64 dev e0 table local; ip -6 route add fd30::/64 from fd31::/64 via fd01::2", true, 120},
	} {
		r := open(t, Options{})
		if _, err := r.Read(Routes); err != nil {
			t.Fatal(err)
		}
		ns.run(t, c.script)
		if _, err := r.Wait(200 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		n, err := r.Read(Routes)
		if err != nil || n.Routes.Odd6 != c.odd || n.Routes.OnLink6 != c.onLink {
			t.Errorf("events, after %q: %t %d (%v)", c.script, n.Routes.Odd6, n.Routes.OnLink6, err)
		}
		if n, err = open(t, Options{}).Read(Routes); err != nil || n.Routes.Odd6 != c.odd || n.Routes.OnLink6 != c.onLink {
			t.Errorf("anew, after %q: %t %d (%v)", c.script, n.Routes.Odd6, n.Routes.OnLink6, err)
		}
	}
}
