// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/model"
)

// waitFor waits until all of want were reported and read, and gives the last Network.
func waitFor(t *testing.T, what string, r *Reader, want Parts) *model.Network {
	t.Helper()
	var got Parts
	end := time.Now().Add(patience)
	n := &r.last
	for got&want != want {
		p, err := r.Wait(time.Until(end))
		if err != nil {
			t.Fatal(err)
		}
		if p == 0 {
			t.Fatalf("%s: Wait reported %s, want %s", what, got, want)
		}
		got |= p
		if n, err = r.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// quiet takes what is still to come of earlier changes (link-local addresses, duplicate address detection).
func quiet(t *testing.T, r *Reader) {
	t.Helper()
	for end := time.Now().Add(3 * patience); time.Now().Before(end); {
		p, err := r.Wait(100 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if p == 0 {
			return
		}
		if _, err := r.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("events do not end")
}

func hasAddr(n *model.Network, s string) bool {
	for _, a := range n.Addrs {
		if a.Prefix == netip.MustParsePrefix(s) {
			return true
		}
	}
	return false
}

func rules(n *model.Network, family model.Family, kind model.NFKind, hook string) int {
	c := -1
	for _, h := range n.Netfilter {
		if h.Family == family && h.Kind == kind && h.Hook == hook {
			c = max(c, 0) + h.Rules
		}
	}
	return c
}

func notable(n *model.Network, s string) *model.Route {
	for i, rt := range n.Routes.Notable {
		if rt.Prefix == netip.MustParsePrefix(s) {
			return &n.Routes.Notable[i]
		}
	}
	return nil
}

// TestChangesAreSeen makes one change after the other in the same namespace: each must be reported in time, and reading the
// reported part alone must show it.
func TestChangesAreSeen(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	link := func(n *model.Network, name string) *model.Link {
		l := n.LinkByName(name)
		if l == nil {
			t.Fatalf("no link %s", name)
		}
		return l
	}
	for _, c := range []struct {
		name   string
		change string
		parts  Parts
		shows  func(n *model.Network) bool
	}{
		{"address added", "ip addr add 10.7.0.1/24 dev e0", Addrs, func(n *model.Network) bool { return hasAddr(n, "10.7.0.1/24") && hasAddr(n, "10.1.0.1/24") }},
		{"address removed", "ip addr del 10.7.0.1/24 dev e0", Addrs, func(n *model.Network) bool { return !hasAddr(n, "10.7.0.1/24") }},
		{"address IPv6", "ip addr add fd07::1/64 dev e0 nodad", Addrs, func(n *model.Network) bool { return hasAddr(n, "fd07::1/64") }},
		{"mtu", "ip link set e0 mtu 1400", Links, func(n *model.Network) bool { return link(n, "e0").MTU == 1400 && link(n, "e0").MTU6 == 1400 }},
		{"link down", "ip link set e1 down", Links, func(n *model.Network) bool { return !link(n, "e1").Up && !link(n, "p1").Running }},
		{"link up", "ip link set e1 up", Links, func(n *model.Network) bool { return link(n, "e1").Up && link(n, "p1").Running }},
		{"link added", "ip link add e2 type veth peer name p2", Links, func(n *model.Network) bool { return link(n, "e2").Kind == "veth" && link(n, "e2").Driver == "veth" }},
		{"link renamed", "ip link set e2 name e3", Links, func(n *model.Network) bool { return n.LinkByName("e2") == nil && link(n, "e3").Kind == "veth" }},
		{"link removed", "ip link del e3", Links, func(n *model.Network) bool { return n.LinkByName("e3") == nil && n.LinkByName("p2") == nil }},
		{"bridge port", "ip link add br0 type bridge; ip link set p0 master br0", Links, func(n *model.Network) bool {
			return link(n, "p0").MasterKind == "bridge" && link(n, "p0").Master == link(n, "br0").Index
		}},
		{"bridge port left", "ip link set p0 nomaster", Links, func(n *model.Network) bool { return link(n, "p0").Master == 0 && link(n, "p0").MasterKind == "" }},
		{"checksums off", "ethtool -K e0 tx off", Links, func(n *model.Network) bool { return !link(n, "e0").SendsAsIs }},
		{"checksums on", "ethtool -K e0 tx on", Links, func(n *model.Network) bool { return link(n, "e0").SendsAsIs && !link(n, "e0").GSOLimited }},
		{"fewer segments", "ip link set e0 gso_max_segs 100 group 5", Links, func(n *model.Network) bool { return link(n, "e0").GSOLimited }},
		{"offload", "ethtool -K e0 tso off gro on", Links, func(n *model.Network) bool { return !link(n, "e0").TSO && link(n, "e0").GRO }},
		{"rule", "ip rule add from 10.0.0.0/8 table 100", Rules, func(n *model.Network) bool { return len(n.Rules) == 6 }},
		{"rule IPv6", "ip -6 rule add fwmark 7 table 100", Rules, func(n *model.Network) bool { return len(n.Rules) == 7 }},
		{"route with mtu", "ip route add 10.50.0.0/16 via 10.1.0.2 mtu 900", Routes, func(n *model.Network) bool {
			rt := notable(n, "10.50.0.0/16")
			return rt != nil && rt.MTU == 900
		}},
		{"route replaced", "ip route replace 10.50.0.0/16 via 10.1.0.2 mtu 800", Routes, func(n *model.Network) bool {
			rt := notable(n, "10.50.0.0/16")
			return rt != nil && (rt.MTU == 800)
		}},
		{"route with mtu removed", "ip route del 10.50.0.0/16", Routes, func(n *model.Network) bool { return notable(n, "10.50.0.0/16") == nil }},
		{"multipath", "ip -6 route add fd50::/64 nexthop via fd01::2 nexthop via fd07::2", Routes, func(n *model.Network) bool {
			rt := notable(n, "fd50::/64")
			return rt != nil && rt.Multipath
		}},
		{"nexthop group", "ip nexthop add id 1 via 10.1.0.2 dev e0; ip nexthop add id 2 via 10.2.0.2 dev e1; ip nexthop add id 9 group 1/2; ip route add 10.51.0.0/16 nhid 9", Routes, func(n *model.Network) bool {
			rt := notable(n, "10.51.0.0/16")
			return rt != nil && rt.Multipath
		}},
		{"forwarding off", "sysctl -qw net.ipv4.ip_forward=0", Links | Sysctl, func(n *model.Network) bool {
			return !link(n, "e0").Conf4.Forwarding && !n.Sysctl.All4.Forwarding
		}},
		{"rp_filter", "sysctl -qw net.ipv4.conf.e0.rp_filter=1", Links, func(n *model.Network) bool { return link(n, "e0").Conf4.RPFilter == 1 }},
		{"accept_local", "sysctl -qw net.ipv4.conf.e0.accept_local=1", Links, func(n *model.Network) bool { return link(n, "e0").Conf4.AcceptLocal }},
		{"send_redirects of all", "sysctl -qw net.ipv4.conf.all.send_redirects=0", Sysctl, func(n *model.Network) bool { return !n.Sysctl.All4.SendRedirects }},
		{"disable_ipv6", "sysctl -qw net.ipv6.conf.e1.disable_ipv6=1", Links, func(n *model.Network) bool { return link(n, "e1").Conf6.Disabled }},
		{"hash policy", "sysctl -qw net.ipv4.fib_multipath_hash_policy=1", Sysctl, func(n *model.Network) bool { return n.Sysctl.HashPolicy4 == 1 }},
		{"nft table", "nft add table ip t; nft 'add chain ip t c { type filter hook forward priority 0; }'", Netfilter, func(n *model.Network) bool {
			return rules(n, model.IP4, model.NFTables, "forward") == 0 && rules(n, model.IP6, model.NFTables, "forward") == -1
		}},
		{"nft rule", "nft add rule ip t c ip saddr 1.2.3.4 drop", Netfilter, func(n *model.Network) bool { return rules(n, model.IP4, model.NFTables, "forward") == 1 }},
		{"nft flush", "nft flush ruleset", Netfilter, func(n *model.Network) bool { return rules(n, model.IP4, model.NFTables, "forward") == -1 }},
		{"legacy rule", "iptables-legacy -w -A FORWARD -s 9.9.9.9 -j DROP", Netfilter, func(n *model.Network) bool { return rules(n, model.IP4, model.Legacy, "forward") == 1 }},
		{"legacy IPv6 rule", "ip6tables-legacy -w -A FORWARD -s fd99::1 -j DROP", Netfilter, func(n *model.Network) bool { return rules(n, model.IP6, model.Legacy, "forward") == 1 }},
		{"qdisc", "tc qdisc add dev e0 root tbf rate 1mbit burst 10k latency 1s", TC, func(n *model.Network) bool { return link(n, "e0").Qdiscs[0].Kind == "tbf" }},
		{"filter", "tc qdisc add dev e1 clsact; tc filter add dev e1 ingress prio 3 protocol ip u32 match u32 0 0 classid 1:1", TC, func(n *model.Network) bool {
			f := link(n, "e1").TCFilters
			return len(f) == 1 && f[0].Kind == "u32" && f[0].Prio == 3
		}},
		{"qdisc removed", "tc qdisc del dev e0 root; tc qdisc del dev e1 clsact", TC, func(n *model.Network) bool {
			return link(n, "e0").Qdiscs[0].Kind == "noqueue" && link(n, "e1").TCFilters == nil
		}},
		{"xfrm policy", "ip xfrm policy add src 10.99.0.0/24 dst 10.98.0.0/24 dir fwd action block", XFRM, func(n *model.Network) bool { return n.XFRM.Policies == 1 }},
	} {
		ns.run(t, c.change)
		start := time.Now()
		n := waitFor(t, c.name, r, c.parts)
		for !c.shows(n) && time.Since(start) < patience {
			// A command makes several changes; the later ones come in a later batch.
			p, err := r.Wait(100 * time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if n, err = r.Read(p); err != nil {
				t.Fatal(err)
			}
		}
		if !c.shows(n) {
			t.Errorf("%s: does not show after reading %s", c.name, c.parts)
		}
		if un := unknown(n); len(n.Faults) > 0 || un != nil {
			t.Errorf("%s: faults %v, unknown %v", c.name, n.Faults, un)
		}
		quiet(t, r)
		same(t, c.name, r)
	}
}

// unknown is all that was not understood. On a kernel newer than this program it says what to look at.
func unknown(n *model.Network) []model.Unknown {
	out := slices.Clone(n.Unknown)
	for _, l := range n.Links {
		out = append(out, l.Unknown...)
	}
	for _, r := range n.Rules {
		out = append(out, r.Unknown...)
	}
	for _, r := range n.Routes.Notable {
		out = append(out, r.Unknown...)
	}
	return out
}

// same reads everything and compares with what was put together from single parts. Where the kernel went on changing by
// itself meanwhile (addresses of its own, carriers), an event says so, perhaps a moment after the change can be read, and the
// comparison is made again.
func same(t *testing.T, what string, r *Reader) {
	t.Helper()
	for {
		before := r.last
		r.routes.valid = false
		full, err := r.Read(All)
		if err != nil {
			t.Fatal(err)
		}
		after := *full
		before.Routes.Count4, before.Routes.Count6 = after.Routes.Count4, after.Routes.Count6 // IPv4 routes that go with a link raise no event
		before.Addrs, after.Addrs = settled(before.Addrs), settled(after.Addrs)
		part, diff := difference(&before, &after)
		if diff == "" {
			return
		}
		var announced Parts
		for end := time.Now().Add(patience / 2); announced&part == 0 && time.Now().Before(end); {
			p, err := r.Wait(time.Until(end))
			if err != nil {
				t.Fatal(err)
			}
			announced |= p
		}
		if announced&part == 0 {
			t.Errorf("%s: partial reads and a full read differ, and events came of %s only: %s", what, announced, diff)
			return
		}
	}
}

// settled leaves out addresses under duplicate address detection: the kernel announces them when it is done.
func settled(addrs []model.Addr) (out []model.Addr) {
	for _, a := range addrs {
		if !a.Tentative {
			out = append(out, a)
		}
	}
	return out
}

// announcing are the parts whose events speak of a field of model.Network; of others any does.
var announcing = map[string]Parts{
	"Links": Links | TC | XDP, "Addrs": Addrs, "Rules": Rules, "Routes": Routes, "Netfilter": Netfilter, "Sysctl": Sysctl, "XFRM": XFRM, "Sockets": Sockets,
}

// difference describes the first field in which two networks differ, and says which parts its events would name.
func difference(a, b *model.Network) (Parts, string) {
	va, vb := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range va.NumField() {
		fa, fb := va.Field(i).Interface(), vb.Field(i).Interface()
		if !reflect.DeepEqual(fa, fb) && fmt.Sprint(fa) != fmt.Sprint(fb) {
			name := va.Type().Field(i).Name
			part, known := announcing[name]
			if !known {
				part = All
			}
			return part, fmt.Sprintf("%s:\n%+v\n%+v", name, fa, fb)
		}
	}
	return 0, ""
}

// TestPlainRoutesAreNotReported: churn of routes that need no care must not wake the control loop.
func TestPlainRoutesAreNotReported(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	before := r.Stats().Events
	batch := ""
	for i := range 200 {
		batch += fmt.Sprintf("route add 172.16.%d.0/24 via 10.1.0.2\n", i)
	}
	ns.batch(t, batch)
	var events uint64
	for end := time.Now().Add(10 * time.Second); events < 200 && time.Now().Before(end); {
		p, err := r.Wait(50 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if p &^= Addrs | Netfilter; p != 0 { // on a slow machine duplicate address detection may end only now; another namespace's iptables takes the same lock
			t.Errorf("Wait reported %s", p)
		}
		events = r.Stats().Events - before
	}
	if events < 200 {
		t.Errorf("%d events, want 200", events)
	}
	n, err := r.Read(Routes)
	if err != nil {
		t.Fatal(err)
	}
	counted := n.Routes.Count4
	r.routes.valid = false
	if n, err = r.Read(Routes); err != nil || n.Routes.Count4 != counted {
		t.Errorf("counted %d by events, %d by reading (%v)", counted, n.Routes.Count4, err)
	}
}

func (ns netns) batch(t *testing.T, lines string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.run(t, "ip -batch "+path)
}

// TestOverflow fills a tiny buffer: the loss must be counted and reported, and reading what was reported must give the truth.
func TestOverflow(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{ReceiveBuffer: 4096})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	before := r.Stats().Resyncs
	batch := ""
	for i := range 500 {
		batch += fmt.Sprintf("addr add 10.200.%d.%d/32 dev e0\nroute add 172.16.%d.%d/32 via 10.1.0.2 mtu 1000\n", i/250, i%250+1, i/250, i%250)
	}
	ns.batch(t, batch)
	p, err := r.Wait(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if p&Lost == 0 || p&Addrs == 0 || p&Routes == 0 || p&Links == 0 {
		t.Errorf("Wait reported %s", p)
	}
	if r.Stats().Resyncs == before {
		t.Error("no resync was counted")
	}
	if _, err := r.Read(p); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	n := r.last
	if len(n.Routes.Notable) != 500 || !hasAddr(&n, "10.200.1.250/32") {
		t.Errorf("%d notable routes", len(n.Routes.Notable))
	}
	same(t, "overflow", r)
}

// TestOverflowLeavesNothingBehind: what still waits in a socket that lost events is older than what is read then. Here a route that needs care goes, and the event
// of its return is lost.
func TestOverflowLeavesNothingBehind(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{ReceiveBuffer: 1 << 20, Settle: time.Nanosecond})
	const special = "172.31.0.0/24 via 10.1.0.2 mtu 1000"
	ns.run(t, "ip route add "+special)
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	before := r.Stats().Resyncs
	var batch strings.Builder
	for i := range 6000 {
		if i == 500 { // far enough behind that nobody reads as far at once
			batch.WriteString("route del " + special + "\n")
		}
		fmt.Fprintf(&batch, "route add 172.%d.%d.%d/32 via 10.1.0.2\n", 16+i/62500, i/250%250, i%250)
	}
	batch.WriteString("route add " + special + "\n")
	ns.batch(t, batch.String())
	quiet(t, r)
	if r.Stats().Resyncs == before {
		t.Fatal("nothing was lost, so that nothing was tried")
	}
	n := r.last
	counted, notable := n.Routes.Count4, len(n.Routes.Notable)
	r.routes.valid = false
	fresh, err := r.Read(Routes)
	if err != nil {
		t.Fatal(err)
	}
	if notable != 1 || len(fresh.Routes.Notable) != 1 || counted != fresh.Routes.Count4 {
		t.Errorf("%d routes need care and %d were counted, where there are %d and %d", notable, counted, len(fresh.Routes.Notable), fresh.Routes.Count4)
	}
}

func TestWake(t *testing.T) {
	namespace(t)
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	go func() {
		time.Sleep(20 * time.Millisecond)
		r.Wake()
	}()
	start := time.Now()
	p, err := r.Wait(5 * time.Second)
	if err != nil || p != 0 {
		t.Errorf("Wait = %s, %v", p, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("woken after %s", d)
	}
}

// TestForeignNamespace: what happens elsewhere is no event here.
func TestForeignNamespace(t *testing.T) {
	t.Setenv(xtablesLockEnv, filepath.Join(t.TempDir(), "lock")) // other tests' iptables take the machine's
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	var heard []string
	for range 3 { // what the namespace's own beginnings still have to say comes once
		quiet(t, r)
		ns.run(t, "unshare -n bash -c 'ip link set lo up; ip addr add 10.77.0.1/24 dev lo; ip rule add from 1.2.3.4 table 9; sysctl -qw net.ipv4.ip_forward=1; nft add table ip x'")
		p, err := r.Wait(100 * time.Millisecond)
		if err == nil && p == 0 {
			return
		}
		heard = append(heard, fmt.Sprintf("%s, %v", p, err))
	}
	t.Errorf("Wait = %s", strings.Join(heard, "; "))
}
