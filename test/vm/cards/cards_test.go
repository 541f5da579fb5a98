// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/test/beside"
)

const program = "../../../bin/shunt" // beside the package, as in the repository

// Who has a card on a wire: the host, and a router by each driver (CARDS in lib/boot.sh).
const (
	host = iota
	virtio
	vmxnet3
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// TestCards has a router of two cards forward between two hosts, as `--hook auto` decides.
func TestCards(t *testing.T) {
	if os.Getenv("SHUNT_VM") != "1" {
		t.Skip("runs only inside a machine that test/vm/vm.sh starts: it has the cards")
	}
	for _, module := range []string{"virtio_pci", "virtio_net", "vmxnet3"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			t.Fatalf("loading %s: %v: %s", module, err, out)
		}
	}
	for _, c := range []struct {
		driver string
		who    int
		// Drivers that say nothing of XDP, before 6.3, are known by a list, and vmxnet3 does XDP from 6.6 on.
		xdp   func(major, minor int) bool
		jumbo bool // large frames: what QEMU emulates of vmxnet3 loses them, whoever forwards
	}{
		{"virtio_net", virtio, func(int, int) bool { return true }, true},
		{"vmxnet3", vmxnet3, func(major, minor int) bool { return major > 6 || major == 6 && minor >= 6 }, false},
	} {
		t.Run(c.driver, func(t *testing.T) {
			var major, minor int
			release, err := os.ReadFile("/proc/sys/kernel/osrelease")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
				t.Fatalf("reading the version of %q: %v", release, err)
			}
			r := newRouter(t, c.driver, c.who)
			want := "tc"
			if c.xdp(major, minor) {
				want = "xdp"
			}
			r.run(t, want, c.jumbo)
		})
	}
}

// router is one between two hosts, on cards of one driver.
type router struct {
	hosts    [2]*lab.NS
	near     [2]string // their cards
	self     *lab.NS
	in, out  string // its cards
	strips   bool   // they take VLAN tags off, by default
	shuntDir string
}

func newRouter(t *testing.T, driver string, who int) *router {
	t.Helper()
	prefix := lab.UniquePrefix(t.Name())
	make := func(name string) *lab.NS {
		ns, err := lab.NewNS(prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ns.Delete(); err != nil {
				t.Error(err)
			}
		})
		return ns
	}
	r := &router{self: make("r"), shuntDir: t.TempDir()}
	for i := range r.hosts {
		wire := i + 1
		near, far := card(t, wire, host), card(t, wire, who)
		r.hosts[i], r.near[i] = make(fmt.Sprintf("h%d", wire)), near
		move(t, near, r.hosts[i])
		move(t, far, r.self)
		if have := driverOf(t, r.self, far); have != driver {
			t.Fatalf("%s on wire %d has the driver %s, want %s", far, wire, have, driver)
		}
		r.strips = r.strips || feature(t, r.self, far, "rx-vlan-offload")
		exec := func(ns *lab.NS, lines ...string) {
			for _, line := range lines {
				if err := ns.Exec("%s", line); err != nil {
					t.Fatal(err)
				}
			}
		}
		exec(r.hosts[i],
			fmt.Sprintf("ip address add 10.0.%d.2/24 dev %s", wire, near), fmt.Sprintf("ip address add fd00:%d::2/64 dev %s nodad", wire, near),
			"ip link set "+near+" up",
			fmt.Sprintf("ip route add default via 10.0.%d.1", wire), fmt.Sprintf("ip -6 route add default via fd00:%d::1", wire))
		exec(r.self,
			fmt.Sprintf("ip address add 10.0.%d.1/24 dev %s", wire, far), fmt.Sprintf("ip address add fd00:%d::1/64 dev %s nodad", wire, far),
			"ip link set "+far+" up")
		if wire == 1 {
			r.in = far
		} else {
			r.out = far
		}
	}
	for _, setting := range []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"} {
		if err := r.self.Sysctl(setting); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// run goes through a daemon's life on the cards. hook is where they have to be served.
func (r *router) run(t *testing.T, hook string, jumbo bool) {
	r.expect(t, "Linux alone", r.reach())
	d := beside.StartShunt(t, program, r.self, r.shuntDir)
	if hook == "xdp" && r.strips {
		// XDP would not see the tags, so nothing is at XDP until the card leaves them where they are.
		r.served(t, d, "tc")
		status := d.Status()
		if !slices.ContainsFunc(interfaceOf(t, status, r.in).Reasons, func(why api.Reason) bool { return why.Reason == "link-vlan-stripping" && why.Hook == "xdp" }) {
			t.Errorf("status does not say why %s is not at XDP: %+v", r.in, interfaceOf(t, status, r.in).Reasons)
		}
		r.fast(t, d, "tc", "while the card strips tags")
		for _, name := range []string{r.in, r.out} {
			if err := r.self.Exec("ethtool -K %s rxvlan off", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.served(t, d, hook)
	r.fast(t, d, hook, "as attached")
	r.tagged(t, d)
	if jumbo {
		r.expect(t, "larger MTU", r.jumbo())
		r.served(t, d, hook)
	}

	d.Kill()
	r.expect(t, "the daemon killed", r.reach())
	d.Start()
	r.served(t, d, hook)
	r.fast(t, d, hook, "with a daemon again")

	// A card that goes down and up sets its queues up anew.
	for _, state := range []string{"down", "up"} {
		if err := r.self.Exec("ip link set %s %s", r.out, state); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.self.Exec("ip -6 address replace fd00:2::1/64 dev %s nodad", r.out); err != nil { // gone with the link
		t.Fatal(err)
	}
	r.served(t, d, hook)
	r.fast(t, d, hook, "after down and up")

	if out, err := r.self.Output("%s stop --detach --runtime-dir %s", program, filepath.Join(r.shuntDir, "shunt")); err != nil {
		t.Fatalf("detaching: %v: %s", err, out)
	}
	links, err := r.self.Output("ip -details link show")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(links, "prog/xdp") {
		t.Errorf("a program is left on a card:\n%s", links)
	}
	r.expect(t, "detached", r.reach())
}

// served waits until both cards are served at a hook.
func (r *router) served(t *testing.T, d *beside.Daemon, hook string) {
	t.Helper()
	for _, name := range []string{r.in, r.out} {
		d.Until(fmt.Sprintf("serving %s at %s", name, hook), func(s *api.Status) bool {
			i := interfaceOf(t, s, name)
			return i.State == api.StateFast && slices.Contains(strings.Split(i.Hook, "+"), hook) && !strings.Contains(i.Tier, "awaited")
		})
	}
}

// hung is the reason of packets that came while the daemon gave no sign of life.
var hung = reason.Watchdog.String()

// fast sends and has nine of ten packets be fast, at the hook.
func (r *router) fast(t *testing.T, d *beside.Daemon, hook, when string) {
	t.Helper()
	r.expect(t, when, r.reach()) // and neighbours are known
	const packets = 1000
	before := d.Status()
	r.datagrams(t, when, packets)
	after := d.Status()
	for _, name := range []string{r.in, r.out} {
		was, is := interfaceOf(t, before, name), interfaceOf(t, after, name)
		fast := is.Hooks[hook].Fast - was.Hooks[hook].Fast
		late := is.Packets.Slow[hung] - was.Packets.Slow[hung]
		said := fmt.Sprintf("%s: %d of %d datagrams that %s received were fast at %s, %d came while an emulated processor kept the daemon waiting", when, fast, packets, name, hook, late)
		t.Log(said)
		if fast+late < packets*9/10 || fast < packets/3 {
			all, _ := json.Marshal(after)
			t.Errorf("%s; status %s; log:\n%s", said, all, d.Log())
		}
	}
}

// tagged has the hosts talk by VLAN 5 on the same cards.
func (r *router) tagged(t *testing.T, d *beside.Daemon) {
	t.Helper()
	cards := []struct {
		ns   *lab.NS
		name string
		addr string
	}{
		{r.hosts[0], r.near[0], "10.5.1.2/24"}, {r.self, r.in, "10.5.1.1/24"},
		{r.hosts[1], r.near[1], "10.5.2.2/24"}, {r.self, r.out, "10.5.2.1/24"},
	}
	for _, c := range cards {
		for _, line := range []string{
			fmt.Sprintf("ip link add link %s name %s.5 type vlan id 5", c.name, c.name), fmt.Sprintf("ip address add %s dev %s.5", c.addr, c.name), fmt.Sprintf("ip link set %s.5 up", c.name),
		} {
			if err := c.ns.Exec("%s", line); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, other := range []string{"10.5.2.0/24 via 10.5.1.1", "10.5.1.0/24 via 10.5.2.1"} {
		if err := r.hosts[i].Exec("ip route add %s", other); err != nil {
			t.Fatal(err)
		}
	}
	d.Settled()
	r.expect(t, "by a VLAN", r.ping("10.5.2.2"))
	before := d.Status()
	r.expect(t, "by a VLAN", r.ping("10.5.2.2"))
	after := d.Status()
	var fast, late uint64
	for _, name := range []string{r.in, r.in + ".5"} { // at tc the VLAN device has a program of its own
		was, is := interfaceOf(t, before, name), interfaceOf(t, after, name)
		fast, late = fast+is.Packets.Fast-was.Packets.Fast, late+is.Packets.Slow[hung]-was.Packets.Slow[hung]
	}
	t.Logf("by a VLAN: %d of %d requests were fast", fast, pings)
	if fast+late < pings {
		t.Errorf("by a VLAN: %d of %d requests were fast; slow: %v", fast, pings, interfaceOf(t, after, r.in).Packets.Slow)
	}
	for _, c := range cards {
		if err := c.ns.Exec("ip link del %s.5", c.name); err != nil {
			t.Fatal(err)
		}
	}
	d.Settled()
}

// jumbo raises the cards' MTU, under programs if there are any, and lowers it again.
func (r *router) jumbo() (err error) {
	for _, mtu := range []int{4000, 1500} {
		for ns, cards := range map[*lab.NS][]string{r.hosts[0]: {r.near[0]}, r.hosts[1]: {r.near[1]}, r.self: {r.in, r.out}} {
			for _, name := range cards {
				err = errors.Join(err, ns.Exec("ip link set %s mtu %d", name, mtu))
			}
		}
		err = errors.Join(err, r.reach(), r.ping("10.0.2.2", "-s", strconv.Itoa(mtu-28), "-M", "do"))
	}
	return err
}

func (r *router) expect(t *testing.T, when string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

func interfaceOf(t *testing.T, s *api.Status, name string) *api.Interface {
	for i := range s.Interfaces {
		if s.Interfaces[i].Name == name {
			return &s.Interfaces[i]
		}
	}
	t.Logf("status has no interface %s", name)
	return &api.Interface{}
}
