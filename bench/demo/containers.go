// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// talk is how long bytes flow for one figure.
const talk = time.Second

// bridgeCommands make the host's bridge, as a container engine would.
const bridgeCommands = `ip link add br0 type bridge
ip address add 172.18.0.1/16 dev br0
ip link set veth1 master br0
ip link set veth2 master br0
ip link set br0 up`

// dockerRules are what a container engine writes for this network, and for the first container's port 80, published as 8080 of the host.
const dockerRules = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.18.0.0/16 ! -o br0 -j MASQUERADE
-A DOCKER ! -i br0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.18.0.2:80
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -o br0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i br0 ! -o br0 -j ACCEPT
-A FORWARD -i br0 -o br0 -j ACCEPT
-A FORWARD -d 172.18.0.2/32 ! -i br0 -o br0 -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
`

// pods are hosts with containers, each with a shunt of its own.
type pods struct {
	*lab.Net
	host   *lab.NS // the first
	shunts []*shunt
	outer  string // the interface whose packets are a tunnel's, addressed to the host itself
}

// beside is a shunt for a host; the first takes the place of the router's, which has ended.
func (d *demo) beside(p *pods, host *lab.NS) (*shunt, error) {
	s := &shunt{path: d.shunt.path, ns: host, runtime: d.shunt.runtime}
	if len(p.shunts) > 0 {
		s.runtime = filepath.Join(d.shunt.runtime, fmt.Sprint(len(p.shunts)))
	}
	p.shunts = append(p.shunts, s)
	return s, os.MkdirAll(s.runtime, 0o700)
}

// abandon kills daemons that an error left behind, and removes the folders of all but the first, which has the router's.
func (p *pods) abandon() {
	for i, s := range p.shunts {
		if s.daemon != nil {
			s.kill()
		}
		if i > 0 {
			discard(s.runtime)
		}
	}
}

func containerHost() lab.Topology {
	end := func(node, name, addr string) lab.End {
		e := lab.End{Node: node, Name: name}
		if addr != "" {
			e.Addrs = []netip.Prefix{netip.MustParsePrefix(addr)}
		}
		return e
	}
	inside := []string{"ip route add default via 172.18.0.1"}
	return lab.Topology{
		Nodes: []lab.Node{
			{Name: "host", Sysctls: []string{"net.ipv4.ip_forward=1"}, Commands: strings.Split(bridgeCommands, "\n")},
			{Name: "first", Commands: inside}, {Name: "second", Commands: inside},
			{Name: "beyond"},
		},
		Links: []lab.Link{
			{A: end("host", "veth1", ""), B: end("first", "eth0", "172.18.0.2/16")},
			{A: end("host", "veth2", ""), B: end("second", "eth0", "172.18.0.3/16")},
			{A: end("host", "eth0", "192.0.2.1/24"), B: end("beyond", "eth0", "192.0.2.2/24")},
		},
	}
}

// containers shows a host with containers on a bridge; namespaces stand for those, so that the demo needs no Docker.
func (d *demo) containers() (err error) {
	d.screen.title("A container host: containers on a bridge, another host beyond")
	n, err := lab.Build(lab.UniquePrefix("pods"), containerHost())
	if err != nil {
		return err
	}
	defer n.Close()
	p := &pods{Net: n, host: n.Node("host")}
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		if err := p.host.Sysctl("net.bridge.bridge-nf-call-" + name + "=0"); err != nil && !errors.Is(err, os.ErrNotExist) { // br_netfilter is not everywhere
			return err
		}
	}
	defer p.abandon()
	s, err := d.beside(p, p.host)
	if err != nil {
		return err
	}
	d.screen.say("first ── veth1 ── [br0  host  eth0] ── beyond\nsecond ─ veth2 ── [br0            ]\nTCP, with segmentation and checksums left to the devices, as containers do.")
	if err := p.host.Feed(dockerRules, "iptables-restore"); err != nil {
		return err
	}
	d.screen.command("iptables-restore <docker-rules     # masquerading, a published port, FORWARD by connection", head(dockerRules[strings.Index(dockerRules, "-A PREROUTING"):], 3, 0))
	linux := make([]float64, len(podFlows))
	for i, f := range podFlows {
		if linux[i], err = p.stream(d.ctx, f); err != nil {
			return err
		}
	}
	if err := s.run(d.ctx, "auto"); err != nil {
		return err
	}
	d.screen.command("shunt run &", "")
	if _, err := s.until(d.ctx, "serving the containers", func(st *api.Status) bool { return fast(st, "veth1") && fast(st, "veth2") && fast(st, "eth0") }); err != nil {
		return err
	}
	for i, f := range podFlows {
		if err := d.podFlow(p, f, linux[i]); err != nil {
			return err
		}
	}
	if err := d.newcomer(p); err != nil {
		return err
	}
	return s.remove()
}

// podFlow is from one node to another, which listens at one address and is dialled by that or another.
type podFlow struct{ what, from, to, listen, dial string }

var podFlows = []podFlow{
	{"first → second, bridged", "first", "second", "172.18.0.3:80", "172.18.0.3:80"},
	{"first → beyond, masqueraded", "first", "beyond", "192.0.2.2:80", "192.0.2.2:80"},
	{"beyond → first, published port", "beyond", "first", "172.18.0.2:80", "192.0.2.1:8080"},
}

// podFlow shows one flow with shunt, and fails if most of it was not fast.
func (d *demo) podFlow(p *pods, f podFlow, linux float64) error {
	quickBefore, slowBefore, err := p.passed()
	if err != nil {
		return err
	}
	rate, err := p.stream(d.ctx, f)
	if err != nil {
		return err
	}
	quick, slow, err := p.passed()
	if err != nil {
		return err
	}
	quick, slow = quick-quickBefore, slow-slowBefore
	share := float64(quick) / float64(max(1, quick+slow))
	d.screen.say("%-30s  Linux %5.1f Gbit/s, shunt %5.1f Gbit/s; %s of %d packets by the fast path", f.what, linux, rate,
		d.screen.paint("1;32", fmt.Sprintf("%.1f %%", 100*share)), quick+slow)
	if quick == 0 {
		return fmt.Errorf("%s: none of %d packets was fast", f.what, slow)
	}
	return nil
}

// passed counts the packets of all interfaces of all hosts.
func (p *pods) passed() (quick, slow uint64, err error) {
	for _, s := range p.shunts {
		st, err := s.status()
		if err != nil {
			return 0, 0, err
		}
		for _, i := range st.Interfaces {
			if i.Name == p.outer {
				continue
			}
			quick += i.Packets.Fast
			for _, n := range i.Packets.Slow {
				slow += n
			}
		}
	}
	return quick, slow, nil
}

// newcomer starts a container, in all that concerns the network, and ends it.
func (d *demo) newcomer(p *pods) error {
	ns, err := lab.NewNS(lab.UniquePrefix("pods") + "third")
	if err != nil {
		return err
	}
	defer ns.Close()
	for _, line := range []string{
		"ip link add veth3 type veth peer name eth0 netns " + ns.Name, "ip link set veth3 master br0", "ip netns exec " + ns.Name + " ip link set eth0 up", "ip link set veth3 up",
	} {
		if err := p.host.Exec("%s", line); err != nil {
			ns.Delete()
			return err
		}
	}
	up := time.Now()
	_, err = p.shunts[0].until(d.ctx, "serving a new container", func(s *api.Status) bool { return fast(s, "veth3") })
	took := time.Since(up)
	if end := p.end("veth3"); err == nil {
		err = end
	}
	ns.Delete()
	if err != nil {
		return err
	}
	if _, err := p.shunts[0].until(d.ctx, "forgetting a container", func(s *api.Status) bool { return port(s, "veth3") == nil }); err != nil {
		return err
	}
	d.screen.say("a third container: served %.0f ms after its veth was up, and forgotten when it went", float64(took)/1e6)
	return nil
}

func (p *pods) end(name string) error {
	link, err := p.host.Netlink().LinkByName(name)
	if err != nil {
		return err
	}
	return p.host.Netlink().LinkDel(link)
}

// stream sends bytes by TCP for a while and gives the rate at which they arrived, in Gbit/s.
func (p *pods) stream(ctx context.Context, f podFlow) (float64, error) {
	l, err := p.Node(f.to).Listen("tcp4", f.listen)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var got atomic.Int64
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 1<<17)
		for n := 0; err == nil; got.Add(int64(n)) {
			n, err = c.Read(b)
		}
	}()
	c, err := p.Node(f.from).Dial(ctx, net.Dialer{Timeout: 5 * time.Second}, "tcp4", f.dial)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.what, err)
	}
	defer c.Close()
	started := time.Now()
	c.SetWriteDeadline(started.Add(talk))
	for b := make([]byte, 1<<17); err == nil; {
		_, err = c.Write(b)
	}
	if time.Since(started) < talk/2 {
		return 0, fmt.Errorf("%s: %w", f.what, err)
	}
	return float64(got.Load()) * 8 / float64(time.Since(started)), nil
}
