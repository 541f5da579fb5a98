// SPDX-License-Identifier: Apache-2.0

package kstate

import "testing"

// TestRoutesAreReadForAnotherMTU6: a message about IPv6 on a device has all routes read where it tells of another MTU, as a router's advertisement does, and not whenever a device comes.
func TestRoutesAreReadForAnotherMTU6(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "ip link add name e0 type veth peer name e1; ip link set e0 up; ip link set e1 up; ip -6 route add 2001:db8::/64 dev e0")
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	for _, c := range []struct {
		run  string
		read bool
	}{
		{"ip link add name e2 type veth peer name e3; ip link set e2 up; ip link set e3 up", false},
		{"ip link set e2 down; ip link set e2 up", false},
		{"echo 1300 >/proc/sys/net/ipv6/conf/e0/mtu", true},
		{"ip link set e2 mtu 1400", true},
		{"ip link del e2", false},
		{"ip link add name e2 type veth peer name e3; ip link set e2 up; ip link set e3 up; echo 1300 >/proc/sys/net/ipv6/conf/e2/mtu", true},
	} {
		before := r.routes.read
		ns.run(t, c.run)
		quiet(t, r)
		if read := !r.routes.read.Equal(before); read != c.read {
			t.Errorf("%s: all routes are read anew: %v", c.run, read)
		}
		same(t, c.run, r)
	}
}
