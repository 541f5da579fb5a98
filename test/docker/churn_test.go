// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// churn makes and removes namespaces that hang on a bridge, as container engines do.
type churn struct {
	*testing.T
	n      *lab.Net
	host   *lab.NS
	bridge int
	prefix string

	mu    sync.Mutex
	waits []time.Duration // from up to attached
	never int             // devices that lived long enough and were not attached to
	made  int
}

// attachable is how long a device may take to be attached to before that counts as never.
const attachable = 10 * time.Second

func newChurn(t *testing.T) *churn {
	n := lab.BuildT(t, lab.Topology{
		Nodes: []lab.Node{{Name: "host", Sysctls: []string{"net.ipv4.ip_forward=1"}}, {Name: "s0"}, {Name: "s1"}},
		Links: []lab.Link{
			{A: lab.End{Node: "host", Name: "p0"}, B: lab.End{Node: "s0", Name: "eth0", Addrs: prefixes("10.9.0.2/24")}},
			{A: lab.End{Node: "host", Name: "p1"}, B: lab.End{Node: "s1", Name: "eth0", Addrs: prefixes("10.9.0.3/24")}},
		},
	})
	c := &churn{T: t, n: n, host: n.Node("host"), prefix: lab.UniquePrefix(t.Name())}
	for _, line := range []string{
		"ip link add br0 type bridge", "ip link set p0 master br0", "ip link set p1 master br0", "ip link set br0 up", "ip address add 10.9.0.1/24 dev br0",
		"sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0",
	} {
		if err := c.host.Exec("%s", line); err != nil {
			t.Fatal(err)
		}
	}
	br, err := c.host.Netlink().LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	c.bridge = br.Attrs().Index
	return c
}

// one makes a namespace, joins it to the bridge, and removes all after a while. Of every four, one is gone the moment it is up, one goes by the
// removal of its device and the others by that of their namespace; of every two, one has an ifindex that another had before.
func (c *churn) one(i int) error {
	ns, err := lab.NewNS(fmt.Sprintf("%sc%d", c.prefix, i))
	if err != nil {
		return err
	}
	gone := false
	defer func() {
		if !gone {
			ns.Delete()
		}
	}()
	nl := c.host.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf("c%d", i), 1500, 1000
	if i%2 == 0 {
		attrs.Index = 5000 + i/2%20
	}
	attrs.HardwareAddr = net.HardwareAddr{0x02, 0xcc, 0, 0, byte(i >> 8), byte(i)}
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(openFile(ns.Path()))
	defer unix.Close(int(veth.PeerNamespace.(netlink.NsFd)))
	err = nl.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) && attrs.Index != 0 { // its last owner still goes
		veth.Index = 0
		err = nl.LinkAdd(veth)
	}
	if err != nil {
		return fmt.Errorf("making veth %d: %w", i, err)
	}
	if err := nl.LinkSetMasterByIndex(veth, c.bridge); err != nil {
		return fmt.Errorf("joining veth %d to the bridge: %w", i, err)
	}
	inner, err := ns.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := ns.Netlink().LinkSetUp(inner); err != nil {
		return err
	}
	if err := nl.LinkSetUp(veth); err != nil {
		return fmt.Errorf("setting veth %d up: %w", i, err)
	}
	if i%4 == 3 { // vanishes between event and attachment
		return nl.LinkDel(veth)
	}
	c.attached(veth.Attrs().Index, time.Now())
	if i%4 == 1 {
		return nl.LinkDel(veth)
	}
	gone = true
	return ns.Delete()
}

// attached waits until the kernel names a program at a device's ingress, and notes how long that took.
func (c *churn) attached(index int, up time.Time) {
	found := false
	err := c.host.Do(func() error {
		for time.Since(up) < attachable {
			res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				return err
			}
			if found = len(res.Programs) > 0; found {
				return nil
			}
			time.Sleep(200 * time.Microsecond)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.Errorf("asking what is attached to device %d: %v", index, err)
	} else if !found {
		c.never++
	} else {
		c.waits = append(c.waits, time.Since(up))
	}
}

// run makes so many a second.
func (c *churn) run(length time.Duration, rate int) {
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); c.made++ {
		<-tick.C
		wg.Add(1)
		i := c.made
		go func() {
			defer wg.Done()
			if err := c.one(i); err != nil && !errors.Is(err, unix.ENODEV) {
				c.Errorf("pair %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
}

// TestChurn: nothing of a device that was there for a moment stays, and the connection between those that stay goes on.
func TestChurn(t *testing.T) {
	agent := prepareAgent(t)
	if _, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress}); err != nil {
		t.Skipf("this kernel has no tcx (%s), by which the test sees what is attached: %v", lab.Since("tcx"), err)
	}
	length := 3 * time.Second // which is some 150 pairs
	if *docker {
		length = 10 * time.Second
	}
	if *long {
		length = time.Minute
	}
	first := beside.StartShunt(t, *program, newChurn(t).host, filepath.Join(runFolder(), "first"))
	first.Settled()
	idle := first.Goroutines()

	c := newChurn(t)
	d := beside.StartShunt(t, *program, c.host, filepath.Join(runFolder(), "churn"))
	s := &host{T: t, name: "churn", agent: agent, ns: c.n.Node("s0"), outside: c.n.Node("s1")}
	s.serve(s.outside.Path())
	f := s.stream("host", "10.9.0.3:80", 4000)
	c.run(time.Second, 50) // whatever is made once
	before := d.Rest()
	c.waits, c.made = nil, 1000
	bytes, cpu := portOf(d, "p0").Packets.Bytes, d.CPU()
	c.run(length, 50)
	cpu = d.CPU() - cpu
	if state := f.state(soon); state != "flows" {
		t.Errorf("the connection between those that stay: %s", state)
	}
	f.end()
	if portOf(d, "p0").Packets.Bytes == bytes {
		t.Errorf("nothing was fast between those that stay: %+v", portOf(d, "p0"))
	}
	after := d.Rest()
	t.Logf("before %+v\nafter  %+v", before, after)
	for _, what := range before.Grown(after, 0) {
		t.Error(what)
	}
	if n := len(c.waits); n == 0 || c.never > 0 {
		t.Errorf("%d devices were attached to, %d were not within %s", n, c.never, attachable)
	} else {
		slices.Sort(c.waits)
		t.Logf("%d pairs in %s; from up to attached: median %.1f ms, p99 %.1f ms, longest %.1f ms; %.1f ms of shunt's CPU time for each pair", c.made-1000, length,
			ms(c.waits[n/2]), ms(c.waits[n*99/100]), ms(c.waits[n-1]), ms(cpu)/float64(c.made-1000))
	}
	status := d.Status()
	if status.Sync.Failures > 0 || len(status.Faults) > 0 {
		t.Errorf("%d rounds failed, faults are %v", status.Sync.Failures, status.Faults)
	}
	told := 0
	for line := range strings.Lines(d.Log()) {
		if strings.Contains(line, "a device has vanished before it could be attached to") {
			told++
		}
		missed := strings.Contains(line, "stays empty") || strings.Contains(line, "waits for the next round")
		if strings.Contains(line, "level=ERROR") || missed && strings.Contains(line, "no such device") {
			t.Errorf("shunt said: %s", line)
		}
	}
	t.Logf("%d devices vanished before they could be attached to, which the log says", told)
	if busy := d.Goroutines(); busy > idle+4 {
		t.Errorf("%d goroutines after it, %d in a daemon that saw none of it:\n%s", busy, idle, d.Log())
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func portOf(d *beside.Daemon, name string) (found api.Interface) {
	d.Helper()
	for _, i := range d.Status().Interfaces {
		if i.Name == name {
			found = i
		}
	}
	return found
}

func openFile(path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
