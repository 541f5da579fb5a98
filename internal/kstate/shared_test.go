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
