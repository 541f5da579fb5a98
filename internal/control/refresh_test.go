// SPDX-License-Identifier: Apache-2.0

package control

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// TestTouchMakesNoNeighbour: a neighbour in use is probed like one that a packet was sent to and keeps what it was given by others, and one that was deleted
// since it was listed stays deleted.
func TestTouchMakesNoNeighbour(t *testing.T) {
	lab.RequireRoot(t)
	ns, err := lab.NewNS(lab.UniquePrefix("touch"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	if err := ns.Shell(`
		ip link add dev port type veth peer name peer
		ip addr add 10.0.0.1/24 dev port
		ip link set port up; ip link set peer up
		ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev port nud stale
		ip neigh add 10.0.0.4 lladdr 02:00:00:00:00:04 dev port nud stale extern_learn
		ip neigh add 10.0.0.5 lladdr 02:00:00:00:00:05 dev port nud stale`); err != nil {
		t.Fatal(err)
	}
	r := &refresher{log: slog.New(slog.DiscardHandler)}
	if err := ns.Do(func() error {
		s, err := nl.Subscribe(unix.NETLINK_ROUTE)
		r.asking = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer r.asking[unix.NETLINK_ROUTE].Close()
	link, err := ns.Netlink().LinkByName("port")
	if err != nil {
		t.Fatal(err)
	}
	state := func(addr string) string {
		list, err := ns.Netlink().NeighList(link.Attrs().Index, unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			if n.IP.String() == addr {
				return map[int]string{netlink.NUD_STALE: "stale", netlink.NUD_DELAY: "delay", netlink.NUD_PROBE: "probe"}[n.State]
			}
		}
		return "none"
	}
	r.handle = ns.Netlink()
	found := r.stale(link.Attrs().Index, unix.AF_INET)
	for addr, want := range map[string]string{"10.0.0.2": "delay", "10.0.0.3": "none", "10.0.0.4": "delay"} {
		at := netip.MustParseAddr(addr)
		r.touch(datapath.Neighbour{Index: link.Attrs().Index, Family: unix.AF_INET, Addr: at}, found[at])
		if got := state(addr); got != want {
			t.Errorf("%s is in state %q after touch, want %q", addr, got, want)
		}
	}
	const managed = 1 // NTF_EXT_MANAGED; such entries are stale for moments only
	if err := ns.Shell("ip neigh change 10.0.0.5 dev port managed"); err != nil {
		t.Fatal(err)
	}
	r.touch(datapath.Neighbour{Index: link.Attrs().Index, Family: unix.AF_INET, Addr: netip.MustParseAddr("10.0.0.5")}, entryFlags{ext: managed})
	list, err := ns.Netlink().NeighList(link.Attrs().Index, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if learned := n.Flags&netlink.NTF_EXT_LEARNED != 0; learned != (n.IP.String() == "10.0.0.4") {
			t.Errorf("%s is learned elsewhere after touch: %t", n.IP, learned)
		}
		if kept := n.FlagsExt&managed != 0; kept != (n.IP.String() == "10.0.0.5") {
			t.Errorf("%s is kept alive by the kernel after touch: %t", n.IP, kept)
		}
	}
}
