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
	add flowtable inet gw ft { hook ingress priority 0; devices = { p0, p1 }; }
	add chain inet gw f { type filter hook forward priority 0; policy drop; }
	add rule inet gw f ct state established flow add @ft
	add rule inet gw f ct state established,new accept`

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

// Connections in a flow table are forwarded and kept as if shunt were not there, until they leave it by their end or because they were idle.
func TestFlowtable(t *testing.T) {
	needsFlowtable(t)
	for _, c := range []struct{ network, src string }{{"tcp", clientAddr}, {"tcp", hiddenAddr}, {"tcp", clientAddr6}, {"udp", hiddenAddr}, {"udp", clientAddr6}} {
		t.Run(c.network+" "+c.src, func(t *testing.T) {
			eachHook(t, flowTable, func(r *tracker, m *remarks) {
				r.exec("sysctl -qw net.netfilter.nf_flowtable_tcp_timeout=8 net.netfilter.nf_flowtable_udp_timeout=8")
				conn := r.dial(c.network, c.src, 4040)
				r.echo(conn, []byte("hello"), 3)
				m.offload("offloaded", r, 4040)
				for range 16 { // longer than an idle flow stays
					r.offloads(conn)
					time.Sleep(600 * time.Millisecond)
				}
				m.offload("kept", r, 4040)
				size := 300
				if c.network == "tcp" {
					size = 1 << 15
				}
				r.echo(conn, bytes.Repeat([]byte("bulk"), size), 4)
				m.offload("after bulk", r, 4040)
				time.Sleep(12 * time.Second)
				m.offload("idle", r, 4040)
				r.echo(conn, []byte("x"), 5)
				r.offloads(conn)
				m.offload("offloaded again", r, 4040)
				if r.engine != nil {
					r.Logf("%s\n%v", strings.Join(m.list, "\n"), r.counters())
				}
			})
		})
	}
}

// offloads echoes by a connection in a flow table: fast where its entries are looked up, at XDP and with IPv4, else Linux's by name.
func (r *tracker) offloads(c net.Conn) {
	r.Helper()
	before := r.counted()
	r.echo(c, []byte("x"), 10)
	if r.engine == nil {
		return
	}
	want := reason.ConntrackState
	switch from := c.LocalAddr().String(); {
	case strings.HasPrefix(from, "["):
		want = reason.NetfilterIP6Forward // the rule that would put it into a flow table is met by all others
	case r.hook != graph.XDP:
	case strings.HasPrefix(from, hiddenAddr):
		want = reason.ConntrackNAT
	default:
		want = reason.Fast
	}
	if n := r.counted()[want] - before[want]; n < 20 {
		r.Errorf("%d packets of 20 left by %s: %v", n, want, r.counters())
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
