// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// What the hosts lose of what they receive of the connections' packets, after the first few.
const loss = `add table inet loss; delete table inet loss; add table inet loss; add chain inet loss in { type filter hook input priority 0; }; add rule inet loss in tcp sport 5000 numgen inc mod 23 7 counter drop; add rule inet loss in tcp dport 5000 numgen inc mod 23 7 counter drop`

// lossyBytes go in each direction of a connection.
const lossyBytes = 8 << 20

// TestLossyStreams has real TCP cross a bridge between two hosts that lose some of what comes in, by itself and beside shunt: all that was sent arrives, both ends send again
// what was lost, and most of that is fast. Before that the bridge's switches are turned under such connections.
func TestLossyStreams(t *testing.T) {
	requireShunt(t)
	t.Run("linux", func(t *testing.T) {
		n := bridgeAlone(t, streamTopology(), "")
		lossyTalks(t, n, 4)
		lossyTalks(t, n, 0)
		if port := countersOf(t, n.Node(lab.Dut), "p1"); port.TxBytes < 4*lossyBytes { // there is no other way
			t.Errorf("p1 has sent %d bytes of %d", port.TxBytes, 4*lossyBytes)
		}
		lossyCounters(t, n)
	})
	t.Run("shunt", func(t *testing.T) {
		n, d := bridgedHosts(t, streamTopology(), "")
		settled := func() status {
			now, err := d.settle(*boundFlag)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		settled()
		lossyTalks(t, n, 4)
		fast, slow := shares(settled())
		lossyTalks(t, n, 0)
		now := settled()
		f, s := shares(now)
		fast, slow = f-fast, s-slow
		t.Logf("%d frames of %d were fast", fast, fast+slow)
		if fast < slow {
			t.Errorf("more frames went to Linux than were fast: %s", now)
		}
		lossyCounters(t, n)
	})
}

// shares are how many frames were fast at the ports of bridges, and how many went to Linux.
func shares(now status) (fast, slow uint64) {
	for _, i := range now.Interfaces {
		if i.Bridge == nil {
			continue
		}
		fast += i.Packets.Fast
		for why, n := range i.Packets.Slow {
			if why != "watchdog" { // on a busy machine the daemon may be late
				slow += n
			}
		}
	}
	return fast, slow
}

// lossyTalks has connections of both families under loss, while br_netfilter is turned on and off so many times.
func lossyTalks(t *testing.T, n *lab.Net, turns int) {
	t.Helper()
	for _, host := range []string{"h0", "h1"} {
		if err := n.Node(host).Feed(loss, "nft -f -"); err != nil {
			if probe := n.Node(host).Feed("table ip probe { chain c { numgen inc mod 2 0 drop; }; }", "nft -f -"); probe == nil {
				t.Fatal(err)
			}
			t.Skipf("this kernel has no nft_numgen (Linux 4.9, CONFIG_NFT_NUMGEN), which loses packets here: %v", err)
		}
	}
	var again atomic.Int64
	talks, begun := make(chan error, 2), time.Now()
	for _, addr := range []string{"10.0.0.2", "fd00::2"} {
		go func() {
			talks <- talkTCP(n.Node("h0"), n.Node("h1"), netip.MustParseAddr(addr), stream{bulk: lossyBytes}, &again)
		}()
	}
	for i := range turns {
		time.Sleep(50 * time.Millisecond)
		for _, name := range []string{"iptables", "ip6tables"} {
			n.Node(lab.Dut).Sysctl("net.bridge.bridge-nf-call-" + name + "=" + strconv.Itoa(1-i%2)) // kernels without br_netfilter have no such switches
		}
	}
	for range 2 {
		if err := <-talks; err != nil {
			t.Error(err)
		}
	}
	took, lost := time.Since(begun), 0
	for _, host := range []string{"h0", "h1"} {
		text, err := n.Node(host).Output("nft list table inet loss")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`counter packets (\d+) bytes`).FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1])
			lost += n
		}
	}
	t.Logf("%.0f Mbit/s in all; %d packets were lost, %d segments sent again", 4*8*lossyBytes/took.Seconds()/1e6, lost, again.Load())
	if lost == 0 || again.Load() == 0 {
		t.Errorf("%d packets were lost and %d segments sent again", lost, again.Load())
	}
}

// lossyCounters looks at what ports and hosts have counted: what was sent, and not much more than that for what was sent again.
func lossyCounters(t *testing.T, n *lab.Net) {
	t.Helper()
	const sent = 4 * lossyBytes // two connections, twice
	for i := range 2 {
		port, host := countersOf(t, n.Node(lab.Dut), portName(i)), countersOf(t, n.Node("h"+strconv.Itoa(1-i)), "eth0")
		if port.RxBytes < sent || port.RxBytes > 2*sent || host.RxBytes < sent || host.RxBytes > 2*sent {
			t.Errorf("%s has received %d bytes of %d, the host behind the other port %d", portName(i), port.RxBytes, sent, host.RxBytes)
		}
		if port.RxDropped+port.TxDropped+port.RxErrors+port.TxErrors > 0 {
			t.Errorf("%s has dropped %d and %d, and has %d and %d errors", portName(i), port.RxDropped, port.TxDropped, port.RxErrors, port.TxErrors)
		}
	}
	if third := countersOf(t, n.Node(lab.Dut), "p2"); third.TxBytes > sent/100 {
		t.Errorf("p2 has sent %d bytes of what is for others", third.TxBytes)
	}
}
