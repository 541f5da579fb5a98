// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// flowTable is a gateway that puts its established connections into a flow table, translated ones too.
const flowTable = natTable + `
	add rule inet gw post ip6 saddr ` + hiddenAddr6 + ` oifname p1 masquerade
	add chain inet gw pre { type nat hook prerouting priority -100; }
	add rule inet gw pre ip daddr ` + publishedAddr + ` dnat ip to ` + serverAddr + `
	add flowtable inet gw ft { hook ingress priority 0; devices = { p0, p1 }; }
	add chain inet gw f { type filter hook forward priority 0; policy drop; }
	add rule inet gw f ct state established flow add @ft
	add rule inet gw f ct state established,new accept`

const (
	hiddenAddr6   = "fd00:0:0:1::3" // masqueraded
	publishedAddr = "10.0.0.1"      // the router's, for the server
	behindAddr    = "10.9.9.9"      // by way of the server
	behindAddr6   = "fd09::9"
)

// hasAll skips where a command that needs something of the kernel fails in a namespace of its own; the machines of test/vm have all that is tested.
func hasAll(t *testing.T, what string, commands ...string) {
	t.Helper()
	lab.RequireRoot(t)
	ns, err := lab.NewNS(lab.UniquePrefix(t.Name()) + "probe")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	for _, c := range commands {
		if err := ns.Exec("%s", c); err != nil {
			if os.Getenv("SHUNT_VM") != "" {
				t.Fatal(err)
			}
			t.Skipf("this kernel has no %s: %v", what, err)
		}
	}
}

func needsFlowtable(t *testing.T) {
	t.Helper()
	hasAll(t, "flow tables (Linux 4.16, CONFIG_NF_FLOW_TABLE)", "nft add table inet probe", "nft add flowtable inet probe ft { hook ingress priority 0; devices = { lo }; }")
}

// says expects the graph of a router with an engine to name something.
func (r *tracker) says(words ...string) {
	r.Helper()
	if r.engine == nil {
		return
	}
	text := r.engine.State().Graph.Text()
	for _, w := range words {
		if !strings.Contains(text, w) {
			r.Errorf("the graph does not say %q:\n%s", w, text)
		}
	}
}

// Connections in a flow table are forwarded, translated and kept as if shunt were not there, until they leave it by their end or because they were idle.
func TestFlowtable(t *testing.T) {
	needsFlowtable(t)
	ways := []struct{ network, src, dst string }{
		{"tcp", clientAddr, serverAddr}, {"tcp", hiddenAddr, serverAddr}, {"udp", hiddenAddr, serverAddr},
		{"tcp", clientAddr, publishedAddr}, {"tcp", hiddenAddr, behindAddr},
		{"tcp", clientAddr6, serverAddr6}, {"udp", clientAddr6, serverAddr6}, {"tcp", hiddenAddr6, serverAddr6}, {"tcp", hiddenAddr6, behindAddr6}, {"tcp", clientAddr6, behindAddr6},
	}
	eachHook(t, flowTable, func(r *tracker, m *remarks) {
		r.exec("sysctl -qw net.netfilter.nf_flowtable_tcp_timeout=8 net.netfilter.nf_flowtable_udp_timeout=8")
		r.behind()
		var conns []net.Conn
		each := func(do func(i int, c net.Conn)) {
			for i, c := range conns {
				do(i, c)
			}
		}
		noted := func(what string) {
			each(func(i int, _ net.Conn) { m.offload(fmt.Sprint(ways[i], " ", what), r, 4040+i) })
		}
		for i, w := range ways {
			conns = append(conns, r.dialTo(w.network, w.dst, w.src, 4040+i))
			r.echo(conns[i], []byte("hello"), 3)
		}
		noted("offloaded")
		for range 16 { // longer than an idle flow stays
			each(func(i int, c net.Conn) { r.offloads(fmt.Sprint(ways[i]), c) })
			time.Sleep(600 * time.Millisecond)
		}
		noted("kept")
		each(func(i int, c net.Conn) {
			r.echo(c, bytes.Repeat([]byte("bulk"), map[string]int{"tcp": 1 << 15, "udp": 300}[ways[i].network]), 4)
		})
		noted("after bulk")
		time.Sleep(12 * time.Second)
		noted("idle")
		each(func(i int, c net.Conn) {
			r.echo(c, []byte("x"), 5)
			r.offloads(fmt.Sprint(ways[i], " again"), c)
		})
		noted("offloaded again")
		r.exec("ip route add 198.51.100.0/24 via " + serverAddr + "\nip -6 route add fd99::/64 via " + serverAddr6) // entries are of another generation, and are made anew
		each(func(i int, c net.Conn) {
			r.echo(c, []byte("x"), 5)
			r.offloads(fmt.Sprint(ways[i], " behind another route"), c)
		})
		if r.engine != nil {
			r.Logf("%s\n%v", strings.Join(m.list, "\n"), r.counters())
		}
	})
}

// behind gives the server addresses that the router reaches by it.
func (r *tracker) behind() {
	r.Helper()
	for _, c := range []string{"ip addr add " + behindAddr + "/32 dev lo", "ip addr add " + behindAddr6 + "/128 dev lo", "ip link set lo up"} {
		if err := r.server.Exec("%s", c); err != nil {
			r.Fatal(err)
		}
	}
	if err := r.client.Exec("ip addr add %s/64 dev eth nodad", hiddenAddr6); err != nil {
		r.Fatal(err)
	}
	r.exec("ip route add " + behindAddr + " via " + serverAddr + "\nip -6 route add " + behindAddr6 + " via " + serverAddr6)
}

// offloads echoes by a connection in a flow table: fast where its entries are looked up, at XDP, else Linux's by name.
func (r *tracker) offloads(which string, c net.Conn) {
	r.Helper()
	before := r.counted()
	r.echo(c, []byte("x"), 10)
	if r.engine == nil {
		return
	}
	want := reason.ConntrackState
	if r.hook == graph.XDP {
		want = reason.Fast
	}
	if n := r.counted()[want] - before[want]; n < 20 {
		r.Errorf("%s: %d packets of 20 left by %s: %v", which, n, want, r.counters())
	}
}

// counted sums the counters up by reason.
func (r *tracker) counted() map[reason.Code]uint64 {
	out := map[reason.Code]uint64{}
	if r.engine == nil {
		return out
	}
	for k, n := range r.counters() {
		for code := reason.Code(0); code < reason.Count; code++ {
			if strings.HasSuffix(k, " "+code.String()) {
				out[code] += n
			}
		}
	}
	return out
}

// offload notes whether the connection is in a flow table; what Linux gives it outside of one depends on seconds.
func (m *remarks) offload(what string, r *tracker, port int) {
	e, ok := r.entry(port)
	in := "none"
	switch {
	case ok && strings.Contains(e.rest, "[OFFLOAD]"):
		in = "in the flow table"
	case ok:
		in = strings.TrimSpace(strings.ReplaceAll(e.rest, "[ASSURED]", "")) + fmt.Sprintf(", about %d minutes", (e.timeout+150)/300*5)
	}
	m.list = append(m.list, what+": "+in)
}
