// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/model"
)

// TestUnderlays has tunnels whose hosts are behind devices by routes of every kind.
func TestUnderlays(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link set lo up
		for i in 0 1 2; do ip link add u$i type veth peer name x$i; ip link set u$i up; ip link set x$i up; ip address add 10.9.$i.1/24 dev u$i; done
		ip route add 10.20.0.0/16 via 10.9.1.2 mtu 1400
		ip route add 10.30.0.0/16 nexthop via 10.9.0.2 nexthop via 10.9.2.2
		ip route add unreachable 10.40.0.0/16
		for i in 1 2 3 4 5 6; do ip link add v$i type vxlan id $i local 10.9.0.1 dstport $((5000 + i)) nolearning; done
		bridge fdb append 02:00:00:00:00:01 dev v1 dst 10.9.0.7
		bridge fdb append 02:00:00:00:00:02 dev v1 dst 10.20.0.7
		bridge fdb append 02:00:00:00:00:03 dev v1 dst 10.40.0.7
		bridge fdb append 02:00:00:00:00:01 dev v2 dst 10.30.0.7
		bridge fdb append 02:00:00:00:00:01 dev v3 dst 10.9.0.7 via u2
		bridge fdb append 02:00:00:00:00:01 dev v4 dst 10.99.0.7
		bridge fdb append 02:00:00:00:00:01 dev v5 dst 239.1.1.1 via u1
		ip link add v7 type vxlan id 7 group 239.1.1.1 dev u2 dstport 5007
		ip link set v6 up`)
	r := open(t, Options{})
	net, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	index := func(name string) int { return net.LinkByName(name).Index }
	have := map[int]model.Underlay{}
	for _, u := range net.Routes.Underlays {
		have[u.Tunnel] = u
	}
	for _, c := range []struct {
		tunnel  string
		devices []string
		mtu     int
	}{{"v1", []string{"u0", "u1"}, 1400}, {"v2", []string{"u0", "u2"}, 0}, {"v3", []string{"u2"}, 0}, {"v4", nil, 0}, {"v5", []string{"u1"}, 0}, {"v7", []string{"u2"}, 0}} {
		var want []int
		for _, d := range c.devices {
			want = append(want, index(d))
		}
		u, known := have[index(c.tunnel)]
		if !known || fmt.Sprint(u.Devices) != fmt.Sprint(want) || u.MTU != c.mtu {
			t.Errorf("%s: %+v (known: %v), want %v = %v and %d", c.tunnel, u, known, c.devices, want, c.mtu)
		}
	}
	if u, known := have[index("v6")]; known {
		t.Errorf("a tunnel without hosts: %+v", u)
	}

	// Of what changes there is no event that asks for anything; the look once a second finds it.
	devicesOf := func(tunnel string) (out []string) {
		for _, u := range net.Routes.Underlays {
			for _, d := range u.Devices {
				if u.Tunnel == index(tunnel) {
					out = append(out, net.Link(d).Name)
				}
			}
		}
		return out
	}
	quiet(t, r)
	r.Learned() // what there was to learn
	for _, c := range []struct {
		change, tunnel string
		want           []string
	}{
		{"ip route replace 10.20.0.0/16 via 10.9.2.2 mtu 1400", "v1", []string{"u0", "u2"}}, {"bridge fdb append 02:00:00:00:00:09 dev v2 dst 10.9.1.9", "v2", []string{"u0", "u1", "u2"}}, {"bridge fdb append 02:00:00:00:00:09 dev v6 dst 10.9.1.9", "v6", []string{"u1"}},
	} {
		ns.run(t, c.change)
		quiet(t, r)
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if _, again := r.Learned(); again&Routes != 0 {
				if net, err = r.Read(again); err != nil {
					t.Fatal(err)
				}
			}
			if slices.Equal(devicesOf(c.tunnel), c.want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after %q %s leaves by %v, want %v", c.change, c.tunnel, devicesOf(c.tunnel), c.want)
			}
		}
		if _, again := r.Learned(); again&Routes != 0 {
			t.Errorf("after %q, read and nothing new, there is something to read", c.change)
		}
	}
}
