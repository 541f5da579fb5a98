// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	mostConnections = "/proc/sys/net/netfilter/nf_conntrack_max"

	// fullAt is how many connections a namespace may have while a table has to be full. The bound is one for all namespaces of the machine, each of which is measured by itself: it holds
	// back only those with as many, and nothing that runs beside these tests has.
	fullAt = 4096
)

// smallTables has the machine keep no more than fullAt connections for each namespace until the test ends, or skips it. One process has its turn at a time.
func smallTables(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(mostConnections, os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		t.Skipf("net.netfilter.nf_conntrack_max can be written in a machine's first network namespace only, with nf_conntrack there (Linux %s, tried: %v)", kernel(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	number := func(name string) int {
		text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := number("nf_conntrack_count"); n > fullAt/2 {
		t.Skipf("the machine itself has %d connections, which a table of %d could hold back", n, fullAt)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("waiting for a turn at the bound of connections: %v", err)
	}
	was := number("nf_conntrack_max")
	if was == fullAt { // of a run that was killed: the kernel's own is as many as it has buckets
		was = number("nf_conntrack_buckets")
	}
	set := func(n int) {
		if err := os.WriteFile(mostConnections, []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(was) })
	set(fullAt)
}

// fullHooks are the hooks at which tables are full, in CI one by turns: it is Linux's code that makes the difference.
func fullHooks() []string {
	hooks := strings.Split(*hooksFlag, ",")
	if *turnFlag == everyTurn {
		return hooks
	}
	at := *turnFlag % len(hooks)
	return hooks[at : at+1]
}

// fill are commands that enter n connections of hosts that say nothing here, which last as long as a case; the first has the port from.
func fill(from, n int, status string) string {
	lines := []string{"conntrack -R -"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("-I -s 10.99.0.1 -d 10.98.0.1 -p udp --sport %d --dport 9 -t 10000 -u %s", from+i, status))
	}
	return strings.Join(lines, "\n") + "\n"
}

// calls are n first packets of TCP and UDP of each family, from ports from on.
func calls(from, n int) (out []Packet) {
	for i := range n {
		for _, pair := range [][2]string{{h0, "10.1.2.3"}, {"10.0.0.11", "10.1.2.3"}, {h0v6, "2001:db8:1::9"}} {
			f := flowOf(0, pair[0], pair[1])
			f.SrcPort, f.DstPort = uint16(from+i), 80
			out = append(out, Packet{How: WireFrame, Frame: f.TCP("S", 1, "")}, Packet{How: WireFrame, Frame: f.UDP("hello")})
		}
	}
	return out
}

// TestFullTable compares routers whose tables of connections are full of such as nobody may be thrown out for: those that there are go on, and fast; who is new is dropped; who is forgotten is new.
func TestFullTable(t *testing.T) {
	requireShunt(t)
	smallTables(t)
	hidden := masqueraded4
	word := talk{client: h0, server: "10.1.2.3", port: 1001, dport: 4000}
	const begun = 3 // connections that the case begins by itself
	assured := "SEEN_REPLY,ASSURED"
	forget := func(c talk) string {
		return fmt.Sprintf("conntrack -D -p tcp --orig-src %s --orig-port-src %d", c.client, c.port)
	}
	alive := func(seq uint32) handStep { return step(join(hidden.data(5, seq, 501), talk6.data(5, seq, 501))) }
	h := hand{name: "full table", why: "connections that there are go on, nobody else begins one, and who is forgotten is nobody", slow: Excuse{IP4: true, IP6: true}, loads: true,
		steps: slices.Concat(hidden.begins(trackTable, gatekeeper()), talk6.begins(), word.datagrams(nil, []string{"a", "bb"}), []handStep{
			alive(141),
			step(join(calls(3000, 5), hidden.data(5, 146, 501), talk6.data(5, 146, 501)), fill(1, fullAt-begun, assured)),
			step(calls(3000, 5)),
			step(join(word.flowsOn(5), hidden.data(5, 151, 501), talk6.data(5, 151, 501))),
			step(join(hidden.says(true, "A", 501, 156, ""), talk6.says(true, "A", 501, 156, ""))),
			// Room for one, and who comes first has it.
			step(calls(4000, 1), "conntrack -D -p udp --orig-src 10.99.0.1 --orig-port-src 1"),
			// Forgotten in the midst of it, and another in its place: what rules said of its packets, and how they were translated, counts no more.
			atOnce(hidden.data(5, 156, 501), forget(hidden), fill(10_000, 1, assured)),
			step(hidden.data(5, 161, 501)),
			step(join(hidden.says(true, "PA", 501, 161, "lost"), talk6.says(true, "PA", 501, 156, "here"))),
			atOnce(talk6.data(5, 156, 505), forget(talk6), fill(20_000, 1, assured)),
			// With room again the rest of it is new, and has to begin.
			step(join(hidden.data(5, 161, 501), talk6.data(5, 161, 505)), fmt.Sprintf("conntrack -D -p udp --orig-src 10.99.0.1 --orig-port-src %d", 2), "conntrack -D -p udp --orig-src 10.99.0.1 --orig-port-src 3", "conntrack -D -p udp --orig-src 10.99.0.1 --orig-port-src 4"),
			step(calls(5000, 3)),
		})}
	for _, hook := range fullHooks() {
		t.Run(hook, func(t *testing.T) {
			rig := newRig(t, *shuntFlag)
			var fast uint64
			for range 2 { // a busy machine may have programs turned off for a while
				res := runCase(t, rig, h.toCase(hook))
				if res == nil || t.Failed() {
					return
				}
				if len(res.Refused) > 0 {
					t.Fatalf("commands were refused: %s", res.Refused)
				}
				if n := res.Counters["Conntrack:drop"]; n < 60 {
					t.Fatalf("Linux has dropped %d packets: its table was not full", n)
				}
				if fast = res.Seen.packets["xdp fast"] + res.Seen.packets["tc fast"]; fast > 80 {
					return
				}
			}
			t.Errorf("%d packets were fast; 69 are before the table is full, and 28 have to be afterwards", fast)
		})
	}
}

// flowsOn are n more datagrams of a conversation that there is.
func (c talk) flowsOn(n int) (out []Packet) {
	port, f := c.flow(false)
	for i := range n {
		out = append(out, Packet{Port: port, How: WireFrame, Frame: f.UDP(strings.Repeat("w", i))})
	}
	return out
}
