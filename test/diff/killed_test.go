// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

var (
	killedFlag    = flag.Int("killed", 1500, "conversations during which shunt is killed every second")
	killedForFlag = flag.Duration("killed-for", 0, "go on with them for this long instead")
)

// killedTopology is a router with a host at either side; the one behind p0 has a second address that is masqueraded, and publishes a port.
func killedTopology() lab.Topology {
	t := lab.Topology{Nodes: []lab.Node{{Name: lab.Dut, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}}}}
	for i := range 2 {
		host := fmt.Sprintf("h%d", i)
		t.Nodes = append(t.Nodes, lab.Node{Name: host, Sysctls: []string{"net.ipv4.ip_local_port_range=10000 65000"},
			Commands: []string{fmt.Sprintf("ip route add default via 10.0.%d.1", i), fmt.Sprintf("ip -6 route add default via fd00:0:0:%d::1", i)}})
		var addrs []netip.Prefix
		for n := range 2 {
			addrs = append(addrs, netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/24", i, n+2)), netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::%d/64", i, n+2)))
		}
		t.Links = append(t.Links, lab.Link{
			A: lab.End{Node: host, Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, NoTxChecksum: true, Addrs: addrs}, // packets as by a wire
			B: lab.End{Node: lab.Dut, Name: portName(i), Quiet: true, Receive: lab.ReceiveGRO, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::1/64", i))}},
		})
	}
	return t
}

// killedRules translate and let in what a gateway would, and count what Linux calls invalid.
const killedRules = `table inet gw {
	chain pre { type nat hook prerouting priority dstnat; ip daddr 10.0.1.1 tcp dport 8080 dnat ip to 10.0.0.2:5000; ip6 daddr fd00:0:0:1::1 tcp dport 8080 dnat ip6 to [fd00::2]:5000; }
	chain post { type nat hook postrouting priority srcnat; ip saddr 10.0.0.3 oifname "p1" masquerade; ip6 saddr fd00::3 oifname "p1" masquerade; }
	chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; ct state invalid counter drop; iifname "p0" ct state new accept; ct status dnat ct state new accept; }
}`

// killedWays are how one host reaches the other: plainly, masqueraded, and by a published port, in both families.
func killedWays(n *lab.Net) (out []*way) {
	h0, h1 := n.Node("h0"), n.Node("h1")
	for _, w := range []struct{ as, to, at string }{{"10.0.0.2", "10.0.1.2:5000", "10.0.1.2:5000"}, {"10.0.0.3", "10.0.1.3:5000", "10.0.1.3:5000"}, {"fd00::2", "[fd00:0:0:1::2]:5000", "[fd00:0:0:1::2]:5000"}, {"fd00::3", "[fd00:0:0:1::3]:5000", "[fd00:0:0:1::3]:5000"}} {
		out = append(out, &way{client: h0, server: h1, as: w.as, to: w.to, at: w.at})
	}
	return append(out, &way{client: h1, server: h0, as: "10.0.1.2", to: "10.0.1.1:8080", at: "10.0.0.2:5000"}, &way{client: h1, server: h0, as: "fd00:0:0:1::2", to: "[fd00:0:0:1::1]:8080", at: "[fd00::2]:5000"})
}

// TestKilled has conversations by TCP of both families, plain and translated, go through a router whose shunt is killed every second and started again, now and then before it was ready, at one
// hook after the other: each carries what was sent in both directions and ends as its ends wanted, and while shunt is there most of their packets are fast.
func TestKilled(t *testing.T) {
	requireShunt(t)
	if os.Getenv("SHUNT_VM") != "" {
		t.Skip("an emulated machine needs a minute to start shunt, and has no seconds to kill it in (tried: test/vm)")
	}
	n := lab.BuildT(t, killedTopology())
	if err := n.Node(lab.Dut).Feed(killedRules, "nft -f -"); err != nil {
		t.Fatal(err)
	}
	ways := killedWays(n)
	for _, w := range ways {
		if err := w.open(t); err != nil {
			t.Fatal(err)
		}
	}
	k := &killer{rng: rand.New(rand.NewPCG(firstSeed(), 0x6b696c6c))}
	var err error
	if k.d, err = startDaemon(*shuntFlag, n.Node(lab.Dut), &Case{Hook: "auto"}, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.d.stop(); err != nil {
			t.Error(err)
		}
	}()
	talks := newTalkers(ways)
	begun := time.Now()
	talks.run(*killedFlag, *killedForFlag)
	for !talks.over() {
		if err := k.kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.read(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	arrived := countersOf(t, n.Node(lab.Dut), "p0").RxPackets + countersOf(t, n.Node(lab.Dut), "p1").RxPackets
	t.Logf("%d conversations in %.0f s, %d broken; %d kills, %d of them before shunt was ready, which it was for %.0f s", talks.done.Load(), took.Seconds(), talks.broken.Load(), k.kills, k.early, (took - k.absent).Seconds())
	for i, w := range ways {
		t.Logf("%s from %s: %d", w.to, w.as, talks.by[i].Load())
		if talks.by[i].Load() == 0 {
			t.Errorf("nobody went by %s from %s", w.to, w.as)
		}
	}
	t.Logf("%d of %d packets were fast (%d %%), and of the %d that shunt's programs looked at while it was there, %d %%", k.fast, arrived, 100*k.fast/max(1, arrived), k.fast+k.slow, 100*k.fast/max(1, k.fast+k.slow))
	if first := talks.first.Load(); first != nil {
		t.Errorf("%d of %d conversations broke; the first: %v", talks.broken.Load(), talks.done.Load(), *first)
	}
	if k.kills < 2 || k.kills < int(took.Seconds())/6 { // a machine may have no time for it
		t.Errorf("shunt was killed %d times in %.0f s", k.kills, took.Seconds())
	}
	if k.fast*2 < k.slow || k.fast*10 < arrived {
		t.Errorf("of %d packets %d were fast, and %d went to Linux while shunt was there", arrived, k.fast, k.slow)
	}
}

// killer kills a shunt again and again, and adds up what it did before.
type killer struct {
	d            *daemon
	rng          *rand.Rand
	kills, early int
	fast, slow   uint64
	// What the one that runs had counted when it was ready, or when it was last asked.
	fastBefore, slowBefore uint64
	since                  time.Time     // the last kill
	came, absent           time.Duration // how long it took then to be there again, and always
}

// kill lets shunt work for some tenths of a second, or as long as it took to come where a machine has no time for it, kills it without a warning, and starts it again. One in eight is killed again before
// it is ready.
func (k *killer) kill() error {
	time.Sleep(max(time.Duration(400+k.rng.IntN(500))*time.Millisecond, min(k.came, 3*time.Second)))
	if err := k.read(); err != nil {
		return err
	}
	k.since = time.Now()
	if err := k.again(); err != nil {
		return err
	}
	if k.rng.IntN(8) == 0 {
		time.Sleep(time.Duration(10+k.rng.IntN(300)) * time.Millisecond)
		if s, err := k.d.status(); err != nil || !s.Ready {
			k.early++
		}
		if err := k.again(); err != nil {
			return err
		}
	}
	if err := k.d.untilReady(); err != nil {
		return err
	}
	k.came = time.Since(k.since)
	k.absent += k.came
	var err error
	k.fastBefore, k.slowBefore, err = k.counts()
	return err
}

// again kills shunt and starts it anew, at the next hook.
func (k *killer) again() error {
	if err := k.d.kill(); err != nil {
		return err
	}
	k.kills++
	k.d.options[slices.Index(k.d.options, "--hook")+1] = []string{"xdp", "tc", "auto"}[k.kills%3]
	d, err := k.d.launch()
	if err == nil {
		k.d = d
	}
	return err
}

// read adds what shunt has counted since it was ready.
func (k *killer) read() error {
	fast, slow, err := k.counts()
	k.fast, k.slow = k.fast+fast-k.fastBefore, k.slow+slow-k.slowBefore
	k.fastBefore, k.slowBefore = fast, slow
	return err
}

// counts are what shunt's programs did with packets.
func (k *killer) counts() (fast, slow uint64, err error) {
	s, err := k.d.status()
	for _, i := range s.Interfaces {
		fast += i.Packets.Fast
		for _, n := range i.Packets.Slow {
			slow += n
		}
	}
	return fast, slow, err
}
