// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// cluster is nodes on a switch, which runs etcd, with what Flannel makes of them.
type cluster struct {
	*testing.T
	name   string
	dir    string
	prefix string // of namespaces
	agent  string
	sw     *lab.NS
	nodes  []*node
	etcd   *exec.Cmd
	pods   map[string]*pod
	setup  setup
	notes  []string // what commands answered that need not succeed
}

// node is one with its daemons.
type node struct {
	*cluster
	number   int // from 1
	ns       *lab.NS
	flanneld *exec.Cmd      // nil: not running
	shunt    *beside.Daemon // nil where Linux is alone
}

// pod is a namespace that the plugins connected.
type pod struct {
	ns    *lab.NS
	node  *node
	addrs []netip.Addr
	serve *exec.Cmd
}

// setup is how a cluster is configured.
type setup struct {
	name    string
	network string // Flannel's configuration
	masq    bool   // -ip-masq
	six     bool   // IPv6 too
	rules   string // dialect of what is like kube-proxy's rules and policies: iptables or nft
	life    bool   // everything happens that happens to clusters
}

func (s setup) vxlan() bool { return strings.Contains(s.network, `"vxlan"`) }

const (
	nodeCount = 3
	endpoints = "http://192.0.2.254:2379"
	hostPort  = 8080 // of each node's first pod
)

// prefix6 is the network that nodes share in IPv6.
const prefix6 = "2001:db8:77::"

// newCluster makes switch, etcd and nodes, with flanneld on all but the last, which joins later.
func newCluster(t *testing.T, name, agent string, s setup, shunt bool) *cluster {
	t.Helper()
	var top lab.Topology
	top.Nodes = []lab.Node{{Name: "sw"}}
	for i := 1; i <= nodeCount; i++ {
		n := fmt.Sprint("node", i)
		top.Nodes = append(top.Nodes, lab.Node{Name: n, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}, Commands: []string{"ip route add default via 192.0.2.254"}})
		top.Links = append(top.Links, lab.Link{
			A: lab.End{Node: n, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i)), netip.MustParsePrefix(fmt.Sprintf("%s%d/64", prefix6, i))}},
			B: lab.End{Node: "sw", Name: fmt.Sprint("p", i)},
		})
	}
	net := lab.BuildT(t, top)
	c := &cluster{T: t, name: name, dir: filepath.Join(beside.Folder("flannel"), s.name, name), prefix: lab.UniquePrefix(name), agent: agent, sw: net.Node("sw"), pods: map[string]*pod{}, setup: s}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.must(c.sw, "ip link add br0 type bridge", "ip address add 192.0.2.254/24 dev br0", "ip address add "+prefix6+"fe/64 dev br0 nodad", "ip link set br0 up")
	for i := 1; i <= nodeCount; i++ {
		c.must(c.sw, fmt.Sprintf("ip link set p%d master br0", i))
		c.nodes = append(c.nodes, &node{cluster: c, number: i, ns: net.Node(fmt.Sprint("node", i))})
	}
	c.startEtcd()
	c.serve(c.sw)
	for _, n := range c.nodes {
		if shunt { // before Flannel: everything is discovered
			n.shunt = beside.StartShunt(t, *program, n.ns, filepath.Join(c.dir, n.String()))
		}
		c.serve(n.ns)
	}
	for _, n := range c.nodes[:nodeCount-1] {
		n.join()
	}
	return c
}

func (n *node) String() string { return fmt.Sprint("node", n.number) }

func (c *cluster) must(ns *lab.NS, lines ...string) {
	c.Helper()
	for _, line := range lines {
		if err := ns.Exec("%s", line); err != nil {
			c.Fatalf("%s: %v", c.name, err)
		}
	}
}

// start runs a program in a namespace, with its output in a file of the cluster's.
func (c *cluster) start(ns *lab.NS, name string, args ...string) *exec.Cmd {
	c.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := ns.Start(cmd); err != nil {
		c.Fatalf("%s: starting %s: %v", c.name, name, err)
	}
	return cmd
}

func (c *cluster) log(name string) string {
	said, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(said[max(0, len(said)-3000):])
}

// await repeats a question until the answer is yes.
func (c *cluster) await(what, log string, yes func() bool) {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); !yes(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("%s: %s: not within thirty seconds; the log's end:\n%s", c.name, what, c.log(log))
		}
	}
}

func (c *cluster) startEtcd() {
	c.Helper()
	c.etcd = c.start(c.sw, "etcd", "etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", endpoints, "--advertise-client-urls", endpoints, "--listen-peer-urls", "http://127.0.0.1:2380")
	c.await("etcd answers", "etcd", func() bool {
		cmd := exec.Command("nsenter", "--net="+c.sw.Path(), "etcdctl", "--endpoints", endpoints, "put", "/coreos.com/network/config", c.setup.network)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		return cmd.Run() == nil
	})
}

// serve runs the program that answers in a namespace.
func (c *cluster) serve(ns *lab.NS) *exec.Cmd {
	c.Helper()
	cmd := c.start(ns, "agent-"+ns.Name, c.agent, "serve")
	c.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c.await("the program that answers does", "agent-"+ns.Name, func() bool {
		out, _ := exec.Command("nsenter", "--net="+ns.Path(), c.agent, "who", "127.0.0.1:80").Output()
		return strings.HasPrefix(string(out), "127.0.0.1")
	})
	return cmd
}

// startFlannel runs flanneld; a new node has a subnet when it says so.
func (n *node) startFlannel() {
	n.Helper()
	args := []string{filepath.Join(*tools, "flanneld"), "-etcd-endpoints", endpoints, "-iface", "eth0", "-subnet-file", n.subnetFile()}
	if n.setup.masq {
		args = append(args, "-ip-masq")
	}
	os.Remove(n.subnetFile()) // one of before says nothing of now
	n.flanneld = n.start(n.ns, "flanneld-"+n.String(), args...)
	n.await("flanneld has a subnet on "+n.String(), "flanneld-"+n.String(), func() bool { return len(n.subnet()) > 0 })
}

func (n *node) stopFlannel(signal os.Signal) {
	n.Helper()
	if err := n.flanneld.Process.Signal(signal); err != nil {
		n.Errorf("%s: ending flanneld of %s: %v", n.name, n, err)
	}
	n.flanneld.Wait()
	n.flanneld = nil
}

func (n *node) subnetFile() string { return filepath.Join(n.dir, n.String()+".env") }

// subnet is what flanneld wrote for whoever configures the plugins.
func (n *node) subnet() map[string]string {
	raw, _ := os.ReadFile(n.subnetFile())
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[key] = value
		}
	}
	return out
}

// join starts flanneld and connects two pods, the first with a port of the node's.
func (n *node) join() {
	n.Helper()
	n.startFlannel()
	n.configure()
	n.addPod("a", true)
	n.addPod("b", false)
}

// configure writes the plugins' configuration as Flannel's own plugin makes it.
func (n *node) configure() {
	n.Helper()
	env := n.subnet()
	type subnet struct {
		Subnet string `json:"subnet"`
	}
	type route struct {
		Dst string `json:"dst"`
	}
	ranges, routes := [][]subnet{}, []route{}
	for _, key := range []string{"FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"} {
		if p, err := netip.ParsePrefix(env[key]); err == nil {
			ranges = append(ranges, []subnet{{p.Masked().String()}})
			routes = append(routes, route{map[bool]string{true: "0.0.0.0/0", false: "::/0"}[p.Addr().Is4()]})
		}
	}
	mtu := 0
	fmt.Sscan(env["FLANNEL_MTU"], &mtu)
	list := map[string]any{"cniVersion": "1.0.0", "name": "fl", "plugins": []any{
		map[string]any{"type": "bridge", "bridge": "cni0", "mtu": mtu, "isGateway": true, "ipMasq": false, "hairpinMode": true,
			"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(n.dir, "ipam-"+n.String()), "ranges": ranges, "routes": routes}},
		map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true},
	}}
	raw, err := json.Marshal(list)
	if err != nil {
		n.Fatal(err)
	}
	dir := n.cniDir()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "10-fl.conflist"), raw, 0o600)); err != nil {
		n.Fatal(err)
	}
}

func (n *node) cniDir() string { return filepath.Join(n.dir, "cni-"+n.String()) }

// cni runs the plugins for a namespace.
func (n *node) cni(command string, ns *lab.NS, port bool) ([]byte, error) {
	capabilities := "{}"
	if port {
		capabilities = fmt.Sprintf(`{"portMappings":[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]}`, hostPort)
	}
	cmd := exec.Command("nsenter", "--net="+n.ns.Path(), filepath.Join(*tools, "cnitool"), command, "fl", ns.Path())
	cmd.Env = append(os.Environ(), "CNI_PATH="+*tools, "NETCONFPATH="+n.cniDir(), "CAP_ARGS="+capabilities)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s%s", err, exit.Stderr, out)
	}
	return out, err
}

func (n *node) podName(name string) string { return fmt.Sprintf("pod%d%s", n.number, name) }

func (n *node) addPod(name string, port bool) {
	n.Helper()
	ns, err := lab.NewNS(n.prefix + n.podName(name))
	if err != nil {
		n.Fatal(err)
	}
	p := &pod{ns: ns, node: n}
	n.pods[n.podName(name)] = p
	out, err := n.cni("add", ns, port)
	if err != nil {
		n.Fatalf("%s: connecting %s: %v", n.cluster.name, n.podName(name), err)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		n.Fatalf("%s: understanding what the plugins said: %v: %s", n.cluster.name, err, out)
	}
	for _, ip := range result.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	p.serve = n.serve(ns)
}

func (n *node) removePod(name string, port bool) {
	n.Helper()
	p := n.pods[n.podName(name)]
	if _, err := n.cni("del", p.ns, port); err != nil {
		n.Errorf("%s: disconnecting %s: %v", n.cluster.name, n.podName(name), err)
	}
	p.serve.Process.Kill()
	p.serve.Wait()
	p.ns.Delete()
	delete(n.pods, n.podName(name))
}

// powerOff is what a machine that stops loses: shunt and what it attached, daemons, devices, rules, pods and what the plugins noted of them. etcd keeps its lease.
func (n *node) powerOff() {
	n.Helper()
	n.must(n.ns, "ip link set eth0 down")
	if n.shunt != nil {
		n.shunt.PowerOff()
	}
	n.stopFlannel(unix.SIGKILL)
	for name, p := range n.pods {
		if p.node == n {
			p.serve.Process.Kill()
			p.serve.Wait()
			p.ns.Delete()
			delete(n.pods, name)
		}
	}
	n.must(n.ns, "nft flush ruleset", "ip link del cni0")
	if n.setup.vxlan() {
		n.must(n.ns, "ip link del flannel.1")
	}
	os.RemoveAll(filepath.Join(n.dir, "ipam-"+n.String()))
}

// boot starts it again.
func (n *node) boot() {
	n.Helper()
	n.wire()
	if n.shunt != nil {
		n.shunt.Start()
	}
	n.join()
}

// wire sets the underlay up, with what went when it was set down.
func (n *node) wire() {
	n.Helper()
	n.must(n.ns, "ip link set eth0 up", "ip route replace default via 192.0.2.254", fmt.Sprintf("ip address replace %s%d/64 dev eth0 nodad", prefix6, n.number))
}

// reaches waits until one pod is answered by another: flanneld tells the other nodes of a new one by way of etcd.
func (c *cluster) reaches(from, to string) {
	c.Helper()
	c.await(from+" reaches "+to, "etcd", func() bool { return c.ask(c.owners(), probe{from, to, "who {to}:80"}) == from })
}

// note keeps what came of a command that need not succeed.
func (c *cluster) note(ns *lab.NS, line string) {
	said := "done"
	if err := ns.Exec("%s", line); err != nil {
		_, said, _ = strings.Cut(err.Error(), "exit status") // what is before names the namespace
	}
	c.notes = append(c.notes, line+": "+strings.TrimSpace(said))
}

// mac is a device's.
func (c *cluster) mac(ns *lab.NS, device string) string {
	c.Helper()
	said, err := ns.Output("ip -o link show dev %s", device)
	if err != nil {
		c.Fatal(err)
	}
	_, after, _ := strings.Cut(said, "link/ether ")
	return strings.Fields(after)[0]
}

// network is the node's for pods.
func (n *node) network() netip.Prefix {
	p, _ := netip.ParsePrefix(n.subnet()["FLANNEL_SUBNET"])
	return p.Masked()
}

func (c *cluster) close() {
	for _, p := range c.pods {
		p.serve.Process.Kill()
		p.ns.Delete()
	}
	for _, n := range c.nodes {
		if n.flanneld != nil {
			n.flanneld.Process.Signal(unix.SIGTERM)
			n.flanneld.Wait()
		}
	}
	if c.etcd != nil {
		c.etcd.Process.Kill()
		c.etcd.Wait()
	}
	if err := beside.Discard(c.dir); err != nil {
		c.Errorf("%s: removing its folder: %v", c.name, err)
	}
}
