// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bridged says whether a case makes a bridge: then the twins' forwarding databases and devices are compared too, and packets are sent with
// a bridge's learning in mind.
func (c *Case) bridged() bool { return c.commands("type bridge") }

// routesBridge says whether a case has addresses, neighbours or routes at a bridge, so that fast packets may be routed that Linux counts as received by it.
func (c *Case) routesBridge() bool { return c.commands("dev br") }

// groupsToBridges counts the IPv6 packets to groups of a case with a bridge.
func (c *Case) groupsToBridges() (n uint64) {
	for _, s := range c.Steps {
		for _, p := range s.Packets {
			if h, ok := readIP(p.Frame); ok && c.bridged() && h.version == 6 && h.dst.IsMulticast() {
				n++
			}
		}
	}
	return n
}

// commands says whether one of a case's commands has a text in it.
func (c *Case) commands(text string) bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Commands, func(cmd string) bool { return strings.Contains(cmd, text) })
	})
}

// stations are the ports that a twin's bridges have last heard each sender by: by its MAC address, and by that and its tags.
type stations map[string]int

// moves notes a packet's sender, and says whether it had not been heard by that port: then the packet teaches a bridge something, and
// one behind it must not overtake it, nor the one before it be overtaken. The bridge may have forgotten what is remembered here (an entry aged, a command removed
// it), and hence commands clear it.
func (s stations) moves(p Packet) bool {
	if s == nil || len(p.Frame) < 12 {
		return false
	}
	moved := false
	mac := string(p.Frame[6:12])
	for _, key := range []string{mac, mac + string(tagsOf(p.Frame))} {
		if port, ok := s[key]; !ok || port != p.Port {
			s[key], moved = p.Port, true
		}
	}
	return moved
}

// fromHost says whether a frame comes from a host at one of the wires and so was bridged: what a router sends has an address of its own.
func fromHost(f []byte) bool {
	return len(f) >= 12 && string(f[6:10]) == string(hostMAC(0, 0)[:4])
}

// fdb is what the bridges know, entry by entry, with how many times: "02:00:00:01:01:02 dev p0 dynamic".
type fdb map[string]int

func (t *twin) fdb() (fdb, error) {
	links, err := t.dut.Netlink().LinkList()
	if err != nil {
		return nil, fmt.Errorf("reading forwarding databases: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	list, err := t.dut.Netlink().NeighList(0, unix.AF_BRIDGE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // entries that come and go just then are looked at again
		return nil, fmt.Errorf("reading forwarding databases: %w", err)
	}
	out := fdb{}
	for _, n := range list {
		if n.MasterIndex == 0 { // the devices' own lists of groups
			continue
		}
		kind := "dynamic" // what is stale is one that ages just now
		switch {
		case n.State&netlink.NUD_PERMANENT != 0:
			kind = "permanent"
		case n.State&netlink.NUD_NOARP != 0:
			kind = "static"
		}
		out[fmt.Sprintf("%s dev %s %s master %s vlan %d flags %#x/%#x", n.HardwareAddr, names[n.LinkIndex], kind, names[n.MasterIndex], n.Vlan, n.Flags, n.FlagsExt)]++
	}
	return out, nil
}

// at says whether a MAC address is known behind a port of this name, and not as one of the router's own.
func (f fdb) at(mac []byte, dev string) bool {
	prefix := fmt.Sprintf("%s dev %s ", net.HardwareAddr(mac), dev)
	for line := range f {
		if entry, ok := strings.CutPrefix(line, prefix); ok && !strings.HasPrefix(entry, "permanent") && strings.Contains(entry, " vlan 0 ") {
			return true
		}
	}
	return false
}

// agePatience bounds the wait for databases that differ: an entry ages by a timer of its own, and Linux removes it up to a second later. An entry that
// went too early is seen by packets that are flooded; one that stays is still there at the end of the wait.
const agePatience = 3 * time.Second

// awaitBridges waits until bridges that have come up have their addresses: Linux gives them out behind the command.
func (t *twin) awaitBridges() error {
	for deadline := time.Now().Add(addressedWithin); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		links, err := t.dut.Netlink().LinkList()
		if err != nil {
			return fmt.Errorf("reading the bridges: %w", err)
		}
		waiting := false
		for _, link := range links {
			a := link.Attrs()
			if _, ok := link.(*netlink.Bridge); !ok || a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_LOWER_UP == 0 {
				continue
			}
			list, err := t.dut.Netlink().AddrList(link, netlink.FAMILY_V6)
			if err != nil {
				return fmt.Errorf("reading the addresses of %s: %w", a.Name, err)
			}
			waiting = waiting || a.OperState != netlink.OperUp || len(list) == 0
		}
		if !waiting {
			return nil
		}
	}
	return nil
}

// addressedWithin bounds that wait: Linux looks after links once a second, and a bridge may have been told to have no address.
const addressedWithin = 1500 * time.Millisecond

// bridgesAgree compares the twins' forwarding databases and what their devices have counted behind a step, and returns Linux's database.
func (r *run) bridgesAgree(n int, s *Step) (fdb, error) {
	r.merged = r.merged || slices.ContainsFunc(s.Packets, func(p Packet) bool { return p.Merge || p.GSO > 0 })
	fast, err := r.fastSoFar()
	if err != nil {
		return nil, err
	}
	var tables [2]fdb
	var counts [2]map[string]deviceCount
	deadline := time.Now().Add(agePatience)
	for {
		if err := both(func(i int) (err error) {
			tables[i], err = r.twin(i).fdb()
			return err
		}); err != nil {
			return nil, err
		}
		if maps.Equal(tables[0], tables[1]) || time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, line := range slices.Sorted(maps.Keys(union(tables[0], tables[1]))) {
		if tables[0][line] != tables[1][line] {
			r.differ("step %d: forwarding database: %q: %d times in Linux, %d beside shunt", n+1, line, tables[0][line], tables[1][line])
		}
	}
	if err := both(func(i int) (err error) {
		counts[i], err = r.twin(i).deviceCounts()
		for name, c := range counts[i] {
			c.txDropped -= r.devices[i][name].txDropped
			counts[i][name] = c
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(union(counts[0], counts[1]))) {
		for _, diff := range counts[0][name].compare(counts[1][name], fast, r.merged) {
			r.differ("step %d: %s: %s", n+1, name, diff)
		}
	}
	return tables[0], nil
}

// fastSoFar is how many packets the fast path decided, forwarded or dropped, that a bridge would have counted as received if Linux had routed them.
func (r *run) fastSoFar() (n uint64, err error) {
	if r.shunt.daemon == nil || !r.c.routesBridge() {
		return 0, nil
	}
	now, err := r.shunt.daemon.status()
	if err != nil {
		return 0, err
	}
	n = r.forgotten
	for _, i := range now.Interfaces {
		n += i.Packets.Fast
		for _, dropped := range i.Packets.Dropped {
			n += dropped
		}
	}
	return n, nil
}

// deviceCount is what is compared of `ip -s link`: what ports and bridges refused and lost, and what bridges took for the router itself. How many frames
// passed the ports is what captures tell; what a router says unasked, by timers, stands in the counters of what bridges sent, and of what they could not.
type deviceCount struct {
	rxDropped, txDropped, rxErrors, txErrors uint64
	rxPackets, rxBytes, multicast            uint64 // of bridges
}

// deviceCounts reads them. While commands set ports up and down, what was said unasked may be dropped there, so that what is compared of that begins behind them.
func (t *twin) deviceCounts() (map[string]deviceCount, error) {
	links, err := t.dut.Netlink().LinkList()
	if err != nil {
		return nil, fmt.Errorf("reading the devices' counters: %w", err)
	}
	out := map[string]deviceCount{}
	for _, link := range links {
		a := link.Attrs()
		s := a.Statistics
		if s == nil || a.Name == "lo" {
			continue
		}
		c := deviceCount{rxDropped: s.RxDropped, txDropped: s.TxDropped, rxErrors: s.RxErrors, txErrors: s.TxErrors}
		switch link.(type) {
		case *netlink.Bridge:
			c.rxPackets, c.rxBytes, c.multicast, c.txDropped = s.RxPackets, s.RxBytes, s.Multicast, 0
		case *netlink.Vxlan:
			c.txDropped = 0 // reports by timers, to groups that no other host is known for
		}
		out[a.Name] = c
	}
	return out, nil
}

// compare lists the differences from a device of Linux's to the one beside shunt. A bridge there has received fewer packets by at most so many as were
// decided fast: what a fast path leaves behind (docs/architecture.md); and where GRO may have merged packets, how many there are is a matter of time.
func (c deviceCount) compare(o deviceCount, fast uint64, merged bool) (diffs []string) {
	for _, n := range []struct {
		what        string
		linux, here uint64
		allowed     uint64
	}{
		{"received and dropped", c.rxDropped, o.rxDropped, 0}, {"sent and dropped", c.txDropped, o.txDropped, 0},
		{"received with errors", c.rxErrors, o.rxErrors, 0}, {"sent with errors", c.txErrors, o.txErrors, 0},
		{"received", c.rxPackets, o.rxPackets, fast}, {"received bytes", c.rxBytes, o.rxBytes, fast * wireMTU}, {"multicast", c.multicast, o.multicast, 0},
	} {
		if n.here > n.linux || n.linux-n.here > n.allowed {
			if !merged {
				diffs = append(diffs, fmt.Sprintf("%s: %d in Linux, %d beside shunt", n.what, n.linux, n.here))
			}
		}
	}
	return diffs
}
