// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// tables is what a twin's kernel holds after a run.
type tables struct {
	neighbours map[string]string // "p0 10.0.0.2" → state and address
	routes     map[string]int    // lines of `ip route show table all`, exceptions too
	counters   map[string]uint64 // of what Linux drops and answers, see counted
	tracked    connections       // that are tracked
	groups     uint64            // IPv6 packets to groups that were sent into a bridge
}

// counted are the kernel's counters that must not change by a fast path: everything
// that it drops, refuses or answers. Those of received and forwarded packets are not
// among them; a fast path leaves them behind, and says so.
var counted = map[string]bool{
	"Ip:InHdrErrors": true, "Ip:InAddrErrors": true, "Ip:InUnknownProtos": true, "Ip:InDiscards": true,
	"Ip:InDelivers": true, "Ip:OutNoRoutes": true, "Ip:FragOKs": true, "Ip:FragFails": true, "Ip:FragCreates": true,
	"Ip:ReasmReqds": true, "Ip:ReasmOKs": true, "Ip:ReasmFails": true,
	"Icmp:InErrors": true, "Icmp:InCsumErrors": true, "Icmp:OutTimeExcds": true,
	"Icmp:OutParmProbs": true, "Icmp:OutEchoReps": true, "Icmp:OutTimestampReps": true,
	"Tcp:InErrs": true, "Tcp:OutRsts": true, "Udp:NoPorts": true, "Udp:InErrors": true, "Udp:InCsumErrors": true,
	"IpExt:InNoRoutes": true, "IpExt:InTruncatedPkts": true, "IpExt:InCsumErrors": true,
	"TcpExt:IPReversePathFilter": true,
	"Ip6InHdrErrors":             true, "Ip6InTooBigErrors": true, "Ip6InNoRoutes": true, "Ip6InAddrErrors": true,
	"Ip6InUnknownProtos": true, "Ip6InTruncatedPkts": true, "Ip6InDiscards": true, "Ip6OutNoRoutes": true,
	"Ip6FragOKs": true, "Ip6FragFails": true, "Ip6ReasmReqds": true, "Ip6ReasmFails": true,
	"Icmp6OutDestUnreachs": true, "Icmp6OutPktTooBigs": true, "Icmp6OutTimeExcds": true,
	"Icmp6OutParmProblems": true, "Icmp6OutEchoReplies": true, "Udp6NoPorts": true, "Udp6InErrors": true,
	"Conntrack:drop": true, "Conntrack:early_drop": true, "Conntrack:insert_failed": true,
}

func (t *twin) tables() (tables, error) {
	out := tables{neighbours: map[string]string{}, routes: map[string]int{}}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := t.dut.Netlink().NeighList(0, family)
		if err != nil {
			return out, fmt.Errorf("reading neighbours: %w", err)
		}
		for _, n := range list {
			if n.State&^netlink.NUD_NOARP != netlink.NUD_NONE {
				out.neighbours[fmt.Sprintf("%d %s", n.LinkIndex, n.IP)] = neighbourState(n)
			}
		}
	}
	for _, cmd := range []string{"ip -4 route show table all", "ip -6 route show table all", "ip -4 route show cache"} {
		text, err := t.dut.Output("%s", cmd)
		if err != nil {
			return out, err
		}
		for _, line := range strings.Split(text, "\n") {
			out.routes[unstamped(line)]++
		}
	}
	var err error
	if out.tracked, err = t.connections(); err != nil {
		return out, err
	}
	if out.counters, err = t.counters(); err != nil {
		return out, err
	}
	for name, n := range t.unasked {
		out.counters[name] -= min(n, out.counters[name])
	}
	return out, nil
}

// ownReports takes what counters of missing routes have risen by since before for the router's own: while commands run, it reports its groups (MLD) on each new
// device, how often is a question of time, and a tunnel for which there is no route counts each report.
func (t *twin) ownReports(before map[string]uint64) error {
	now, err := t.counters()
	if err != nil {
		return err
	}
	for _, name := range []string{"Ip:OutNoRoutes", "Ip6OutNoRoutes"} {
		t.unasked[name] += now[name] - before[name]
	}
	return nil
}

// neighbourState groups the states between which a neighbour moves by the clock alone. An entry of which nothing is known yet (NUD_NONE, which
// `ip neigh` does not show either) is taken for none: ndisc_send_redirect() makes one for each redirect that it may send, once a second for a
// receiver, and it stays as it is where the packet is dropped behind that.
func neighbourState(n netlink.Neigh) string {
	switch {
	case n.State&netlink.NUD_PERMANENT != 0:
		return "permanent " + n.HardwareAddr.String()
	case n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0:
		return "valid " + n.HardwareAddr.String()
	}
	return "unresolved" // NUD_INCOMPLETE or NUD_FAILED
}

// unstamped takes the seconds to live out of a line that ip printed, and the descriptor by which a program was handed over, of which its name is made.
func unstamped(line string) string {
	words := strings.Fields(line)
	for i := range words {
		if name, _, found := strings.Cut(words[i], "[fd:"); found {
			words[i] = name
		}
		if words[i] == "expires" && i+1 < len(words) {
			words[i+1] = "later"
		}
	}
	return strings.Join(words, " ")
}

func (t *twin) counters() (map[string]uint64, error) {
	out := map[string]uint64{}
	err := t.dut.Do(func() error {
		for _, file := range []string{"snmp", "netstat", "snmp6"} {
			data, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			readCounters(data, out)
		}
		data, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if errors.Is(err, os.ErrNotExist) { // nothing is tracked here
			return nil
		}
		addConntrack(data, out)
		return err
	})
	return out, err
}

// addConntrack adds up what the processors have counted: a line of names, and one of hexadecimal numbers for each.
func addConntrack(data []byte, out map[string]uint64) {
	var names []string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if names == nil {
			names = words
			continue
		}
		for i, word := range words[:min(len(words), len(names))] {
			n, _ := strconv.ParseUint(word, 16, 64)
			out["Conntrack:"+names[i]] += n
		}
	}
}

// readCounters reads both layouts: pairs of lines with names and values, and one name and value for each line.
func readCounters(data []byte, out map[string]uint64) {
	var names []string
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		words := strings.Fields(s.Text())
		var v uint64
		switch {
		case len(words) == 2 && !strings.HasSuffix(words[0], ":"):
			fmt.Sscan(words[1], &v)
			out[words[0]] = v
		case len(names) == len(words) && names[0] == words[0]:
			for i := 1; i < len(words); i++ {
				v = 0
				fmt.Sscan(words[i], &v)
				out[words[0]+names[i]] = v
			}
			names = nil
		default:
			names = words
		}
	}
}

// compareTables lists the differences between the twins' tables. ownSources is how many packets came from the router's own addresses beyond what is sure to be answered.
func compareTables(a, b tables, ownSources uint64) []string {
	var diffs []string
	for _, key := range slices.Sorted(maps.Keys(union(a.neighbours, b.neighbours))) {
		if a.neighbours[key] != b.neighbours[key] {
			diffs = append(diffs, fmt.Sprintf("neighbour on interface %s: Linux has %q, beside shunt %q", key, a.neighbours[key], b.neighbours[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(union(a.routes, b.routes))) {
		if a.routes[key] != b.routes[key] {
			diffs = append(diffs, fmt.Sprintf("route %q: %d times in Linux, %d beside shunt", key, a.routes[key], b.routes[key]))
		}
	}
	diffs = append(diffs, compareConnections(a.tracked, b.tracked)...)
	// Messages that are limited by the clock (limits.go) are delivered, too, where their receiver is the router: packets may come from its own addresses.
	limited := distance(a, b, "Icmp:OutDestUnreachs") + distance(a, b, "Icmp:OutRedirects")
	for _, key := range slices.Sorted(maps.Keys(counted)) {
		allowed := uint64(0)
		switch key {
		case "Ip:InDelivers":
			allowed = limited
		case "Icmp:InErrors": // which packets they are about is the clock's choice too, and an error only if that is of a protocol with ports
			allowed = max(limited, min(ownSources, max(a.messages(), b.messages())))
		case "Ip6InNoRoutes": // a bridge that has just come up has routes for groups, but does not use them for a quarter of a second
			allowed = a.groups
		}
		if distance(a, b, key) > allowed {
			diffs = append(diffs, fmt.Sprintf("counter %s: Linux has %d, beside shunt %d", key, a.counters[key], b.counters[key]))
		}
	}
	return diffs
}

// messages is how many messages that are limited by the clock a router has sent.
func (t tables) messages() uint64 {
	return t.counters["Icmp:OutDestUnreachs"] + t.counters["Icmp:OutRedirects"]
}

// distance is by how much a counter differs.
func distance(a, b tables, counter string) uint64 {
	x, y := a.counters[counter], b.counters[counter]
	return max(x, y) - min(x, y)
}

func union[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
