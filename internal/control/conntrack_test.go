// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// tracker is a router between a client and a server that have real sockets; it tracks connections.
type tracker struct {
	*twin
	client, server *lab.NS
}

const (
	clientAddr  = "10.0.0.2" // not translated
	hiddenAddr  = "10.0.0.3" // masqueraded
	clientAddr6 = "fd00:0:0:1::2"
	serverAddr  = "10.0.1.2"
	serverAddr6 = "fd00:0:0:2::2"
)

// newTracker builds one; nft turns tracking on, as a gateway's table for NAT does. With offloads the ends leave segmenting and checksums to the link, as containers do.
func newTracker(t *testing.T, nft string, offloads bool) *tracker {
	t.Helper()
	host := func(node string, i int, addrs ...string) lab.End {
		e := lab.End{Node: node, Name: "eth", Receive: lab.ReceiveXDP, NoTxChecksum: !offloads}
		for _, a := range addrs {
			e.Addrs = append(e.Addrs, netip.MustParsePrefix(a))
		}
		return e
	}
	router := func(i int) lab.End {
		return lab.End{Node: lab.Dut, Name: fmt.Sprintf("p%d", i), Receive: lab.ReceiveGRO, Quiet: true,
			Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::1/64", i+1))}}
	}
	w := &twin{T: t, linux: map[string][]string{}, net: lab.BuildT(t, lab.Topology{
		Nodes: []lab.Node{
			{Name: "client", Commands: []string{"ip route add default via 10.0.0.1", "ip -6 route add default via fd00:0:0:1::1"}},
			{Name: lab.Dut, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}},
			{Name: "server", Commands: []string{"ip route add default via 10.0.1.1", "ip -6 route add default via fd00:0:0:2::1"}},
		},
		Links: []lab.Link{
			{A: host("client", 0, clientAddr+"/24", hiddenAddr+"/24", clientAddr6+"/64"), B: router(0)},
			{A: router(1), B: host("server", 1, serverAddr+"/24", serverAddr6+"/64")},
		},
	})}
	for _, line := range strings.Split(nft, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			w.exec("nft " + line)
		}
	}
	r := &tracker{w, w.net.Node("client"), w.net.Node("server")}
	r.serve()
	return r
}

// natTable is the least that turns tracking on for both families: what a gateway has to masquerade some of its clients.
const natTable = `add table inet gw
	add chain inet gw post { type nat hook postrouting priority 100; }
	add rule inet gw post ip saddr ` + hiddenAddr + ` oifname p1 masquerade`

// serve echoes on port 7 of the server.
func (r *tracker) serve() {
	r.Helper()
	err := r.server.Do(func() error {
		tcp, err := net.Listen("tcp", ":7")
		if err != nil {
			return err
		}
		udp, err := net.ListenPacket("udp", ":7")
		if err != nil {
			return err
		}
		r.Cleanup(func() { tcp.Close(); udp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() { io.Copy(c, c); c.Close() }()
			}
		}()
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := udp.ReadFrom(b)
				if err != nil {
					return
				}
				udp.WriteTo(b[:n], from)
			}
		}()
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

// dial opens a connection from a fixed port to the server.
func (r *tracker) dial(network, src string, port int) (c net.Conn) {
	r.Helper()
	dst := serverAddr
	if strings.Contains(src, ":") {
		dst = serverAddr6
	}
	return r.dialTo(network, dst, src, port)
}

// dialTo opens one to another address.
func (r *tracker) dialTo(network, dst, src string, port int) (c net.Conn) {
	r.Helper()
	err := r.client.Do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		if from := net.JoinHostPort(src, strconv.Itoa(port)); network == "tcp" {
			d.LocalAddr, err = net.ResolveTCPAddr("tcp", from)
		} else {
			d.LocalAddr, err = net.ResolveUDPAddr("udp", from)
		}
		if err == nil {
			c, err = d.Dial(network, net.JoinHostPort(dst, "7"))
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	return c
}

// echo sends and expects the same back, n times.
func (r *tracker) echo(c net.Conn, payload []byte, n int) {
	r.Helper()
	back := make([]byte, len(payload))
	for i := range n {
		c.SetDeadline(time.Now().Add(patience))
		go c.Write(payload)
		if _, err := io.ReadFull(c, back); err != nil {
			r.Fatalf("echo %d: %v", i, err)
		}
		if !bytes.Equal(back, payload) {
			r.Fatalf("echo %d came back as something else", i)
		}
	}
}

// settle is how long ends may take until everything is acknowledged: until then Linux gives a connection less time.
const settle = 300 * time.Millisecond

// entry is a connection as Linux shows it.
type entry struct {
	timeout int
	rest    string // state, flags, without addresses
}

// Connections in a flow table are shown without a timeout.
var entryLine = regexp.MustCompile(`^ipv[46] +\d+ (tcp|udp) +\d+ (?:(\d+) )?(.*)$`)

// entries lists the connections with a client's port; there is one at most.
func (r *tracker) entry(port int) (e entry, ok bool) {
	r.Helper()
	time.Sleep(settle)
	var text []byte
	err := r.net.Node(lab.Dut).Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/nf_conntrack")
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		m := entryLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || !strings.Contains(line, fmt.Sprintf("sport=%d ", port)) {
			continue
		}
		e.timeout, _ = strconv.Atoi(m[2])
		var words []string
		for _, w := range strings.Fields(m[3]) {
			if !strings.Contains(w, "=") {
				words = append(words, w)
			}
		}
		e.rest = strings.Join(append(words, m[1]), " ")
		return e, true
	}
	return e, false
}

// fast counts the packets that the fast path forwarded.
func (r *tracker) fast() (n uint64) {
	if r.engine == nil {
		return 0
	}
	for k, v := range r.counters() {
		if strings.HasSuffix(k, " "+reason.Fast.String()) {
			n += v
		}
	}
	return n
}

// becomesFast echoes until a number of packets in a row were fast.
func (r *tracker) becomesFast(c net.Conn) {
	r.Helper()
	end := time.Now().Add(patience)
	for {
		before := r.fast()
		r.echo(c, []byte("x"), 10)
		if r.fast() >= before+20 {
			return
		}
		if time.Now().After(end) {
			r.Errorf("never fast: %v", r.counters())
			r.explain()
			r.FailNow()
		}
	}
}

// remarks are what a conversation came to, in both routers to be the same but for the seconds.
type remarks struct {
	*testing.T
	list []string
}

// note adds the connection's entry, its timeout rounded to what a throttled refresh may differ by.
func (m *remarks) note(what string, r *tracker, port int) {
	e, ok := r.entry(port)
	if !ok {
		m.list = append(m.list, what+": no entry")
		return
	}
	m.list = append(m.list, fmt.Sprintf("%s: %s, about %d s", what, e.rest, (e.timeout+15)/30*30))
}

// alike runs a conversation through a router without shunt and through one with it.
func alike(t *testing.T, nft string, hook graph.Hook, talk func(r *tracker, m *remarks)) {
	t.Helper()
	plain, shunted := newTracker(t, nft, hook == graph.TC), newTracker(t, nft, hook == graph.TC)
	shunted.start(hook)
	var a, b remarks
	done := make(chan bool)
	go func() { defer close(done); talk(plain, &a) }()
	talk(shunted, &b)
	<-done
	if !slices.Equal(a.list, b.list) {
		t.Errorf("Linux alone:\n  %s\nwith shunt:\n  %s", strings.Join(a.list, "\n  "), strings.Join(b.list, "\n  "))
	}
	if len(a.list) == 0 {
		t.Error("nothing was compared")
	}
	if t.Failed() {
		t.Logf("%v", shunted.counters())
		shunted.explain()
	}
}

// eachHook runs a conversation at both hooks.
func eachHook(t *testing.T, nft string, talk func(r *tracker, m *remarks)) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			t.Parallel() // conversations wait more than they work
			alike(t, nft, hook, talk)
		})
	}
}

// warm makes a connection fast where there is a fast path.
func (r *tracker) warm(c net.Conn) {
	r.Helper()
	if r.engine != nil {
		r.becomesFast(c)
	} else {
		r.echo(c, []byte("x"), 30)
	}
}

func TestTCPIsTracked(t *testing.T) {
	for _, src := range []string{clientAddr, clientAddr6} {
		t.Run(src, func(t *testing.T) {
			t.Parallel()
			eachHook(t, natTable, func(r *tracker, m *remarks) {
				c := r.dial("tcp", src, 4001)
				r.echo(c, []byte("hello"), 1)
				m.note("established", r, 4001)
				r.warm(c)
				r.echo(c, bytes.Repeat([]byte("bulk"), 1<<18), 4)
				m.note("after bulk", r, 4001)
				c.Close()
				m.note("closed", r, 4001)
			})
		})
	}
}

func TestTCPResetIsTracked(t *testing.T) {
	eachHook(t, natTable, func(r *tracker, m *remarks) {
		c := r.dial("tcp", clientAddr, 4002)
		r.warm(c)
		r.echo(c, bytes.Repeat([]byte("bulk"), 1<<16), 2)
		time.Sleep(300 * time.Millisecond)
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		e, ok := r.entry(4002)
		m.list = append(m.list, fmt.Sprint("reset leaves an entry for at most ten seconds: ", !ok || e.timeout <= 10))
	})
}

func TestUDPIsTracked(t *testing.T) {
	for _, src := range []string{clientAddr, clientAddr6} {
		t.Run(src, func(t *testing.T) {
			t.Parallel()
			eachHook(t, natTable, func(r *tracker, m *remarks) {
				c := r.dial("udp", src, 4003)
				r.echo(c, []byte("hello"), 3)
				m.note("answered", r, 4003)
				if r.engine != nil && r.fast() > 0 {
					m.list = append(m.list, "fast before Linux is sure of the connection")
				}
				time.Sleep(2100 * time.Millisecond)
				r.echo(c, []byte("hello"), 3)
				m.note("assured", r, 4003)
				r.warm(c)
				m.note("stream", r, 4003)
			})
		})
	}
}

// Where Linux has to check windows TCP stays with it, unmarked; UDP is fast.
func TestStrict(t *testing.T) {
	eachHook(t, natTable, func(r *tracker, m *remarks) {
		if r.engine != nil {
			if err := r.engine.SetPolicy(context.Background(), func(p *graph.Policy) { p.Strict = true }); err != nil {
				r.Fatal(err)
			}
		}
		tcp, udp := r.dial("tcp", hiddenAddr, 4010), r.dial("udp", hiddenAddr, 4011)
		r.warm(udp)
		before := r.fast()
		r.echo(tcp, []byte("x"), 30)
		m.list = append(m.list, fmt.Sprintf("%d fast packets of TCP", r.fast()-before))
		m.note("stream", r, 4010)
	})
}

// The timeout is extended from the fast path alone, by the sysctl in force.
func TestTimeoutsAreExtended(t *testing.T) {
	eachHook(t, natTable, func(r *tracker, m *remarks) {
		c := r.dial("tcp", clientAddr, 4004)
		r.warm(c)
		r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=600")
		time.Sleep(1100 * time.Millisecond)
		r.warm(c)
		m.note("shorter", r, 4004)
		r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=6000")
		time.Sleep(1100 * time.Millisecond)
		r.warm(c)
		m.note("longer", r, 4004)
		r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=5000000") // days that no 31 bits of milliseconds hold
		time.Sleep(1100 * time.Millisecond)
		r.warm(c)
		m.note("longest", r, 4004)
		r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=3")
		for range 8 { // longer than it would live by itself
			r.echo(c, []byte("x"), 10)
			time.Sleep(600 * time.Millisecond)
		}
		e, ok := r.entry(4004)
		m.list = append(m.list, fmt.Sprint("kept alive: ", ok, " ", e.rest, " ", e.timeout >= 1))
		r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=1")
		for range 10 { // a refresh once a second would come too late
			r.echo(c, []byte("x"), 10)
			time.Sleep(200 * time.Millisecond)
		}
		e, ok = r.entry(4004)
		m.list = append(m.list, fmt.Sprint("kept alive from second to second: ", ok, " ", e.rest))
	})
}

func TestTranslatedConnections(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			eachHook(t, natTable, func(r *tracker, m *remarks) {
				c := r.dial(network, hiddenAddr, 4005)
				r.echo(c, []byte("hello"), 3)
				if network == "udp" {
					time.Sleep(2100 * time.Millisecond)
				}
				r.warm(c)
				m.note("masqueraded", r, 4005)
				size := 300
				if network == "tcp" {
					size = 1 << 17
				}
				r.echo(c, bytes.Repeat([]byte("bulk"), size), 10)
				c.Close()
				m.note("closed", r, 4005)
			})
		})
	}
}

// What an administrator does to the table takes effect with the next packet.
func TestConnectionsCanBeTakenAway(t *testing.T) {
	eachHook(t, natTable, func(r *tracker, m *remarks) {
		c := r.dial("tcp", clientAddr, 4006)
		r.warm(c)
		if err := r.flush(); err != nil {
			r.Fatal(err)
		}
		_, there := r.entry(4006)
		m.list = append(m.list, fmt.Sprint("flushed: ", there))
		r.echo(c, []byte("x"), 40)
		m.note("picked up again", r, 4006)
		r.exec("nft flush ruleset")
		r.echo(c, []byte("x"), 40)
		r.exec("nft add table ip gw ; add chain ip gw post { type nat hook postrouting priority 100 ; }")
		r.echo(c, []byte("x"), 40)
		m.note("tracked again", r, 4006)
	})
}

// flush is conntrack -F.
func (r *tracker) flush() error {
	return r.net.Node(lab.Dut).Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

// A stop of the daemon in the middle leaves connections as they are.
func TestConnectionsOutliveShunt(t *testing.T) {
	eachHook(t, natTable, func(r *tracker, m *remarks) {
		c := r.dial("tcp", clientAddr, 4007)
		r.warm(c)
		r.echo(c, bytes.Repeat([]byte("bulk"), 1<<18), 1)
		if r.engine != nil {
			if err := r.engine.SetPolicy(context.Background(), func(p *graph.Policy) { p.Paused = true }); err != nil {
				r.Fatal(err)
			}
		}
		r.echo(c, bytes.Repeat([]byte("bulk"), 1<<16), 4)
		m.note("without", r, 4007)
		// Nothing of it is invalid to Linux, which has missed a megabyte.
		r.exec("nft add table ip strict ; add chain ip strict f { type filter hook forward priority 0 ; } ; add rule ip strict f ct state invalid drop")
		r.echo(c, bytes.Repeat([]byte("bulk"), 1<<16), 4)
		c.Close()
		m.note("closed", r, 4007)
	})
}

// Connections that Linux sends to itself (REDIRECT) or answers in a server's place (SYNPROXY) are as if shunt were not there, and none of their packets is fast; others are.
func TestConnectionsThatEndHere(t *testing.T) {
	redirect := natTable + `
	add chain inet gw pre { type nat hook prerouting priority dstnat; }
	add rule inet gw pre ip saddr ` + hiddenAddr + ` tcp dport 7 redirect`
	proxy := natTable + `
	add chain inet gw raw { type filter hook prerouting priority raw; }
	add rule inet gw raw ip saddr ` + hiddenAddr + ` tcp dport 7 tcp flags syn notrack
	add chain inet gw f { type filter hook forward priority filter; }
	add rule inet gw f ip saddr ` + hiddenAddr + ` tcp dport 7 ct state invalid,untracked synproxy mss 1460 wscale 7 sack-perm
	add rule inet gw f ct state invalid drop`
	for name, nft := range map[string]string{"redirect": redirect, "synproxy": proxy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHook(t, nft, func(r *tracker, m *remarks) {
				r.exec("sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0")
				if name == "redirect" {
					r.server = r.net.Node(lab.Dut)
					r.serve()
				}
				c := r.dial("tcp", hiddenAddr, 4030)
				before := r.fast()
				r.echo(c, []byte("x"), 60)
				r.echo(c, bytes.Repeat([]byte("bulk"), 1<<14), 2)
				if name == "synproxy" { // and with it goes its hook, which made everything slow; the connection's sequence numbers are still to be moved
					r.exec("nft flush chain inet gw f")
					r.warm(r.dial("tcp", clientAddr, 4031))
					before = r.fast()
					r.echo(c, []byte("x"), 60)
				}
				m.list = append(m.list, fmt.Sprintf("%d of its packets were fast", r.fast()-before))
				m.note("established", r, 4030)
				c.Close()
				m.note("closed", r, 4030)
			})
		})
	}
}
