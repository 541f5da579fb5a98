// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// cluster is a control plane on a switch, and nodes.
type cluster struct {
	*testing.T
	name   string // linux or shunt
	setup  setup
	dir    string
	prefix string // of namespaces
	agent  string
	sw     *lab.NS
	nodes  []*node
	pods   map[string]*pod
	procs  []*exec.Cmd // to end, the last first

	kubelet bool // one of its nodes has one
}

// setup is how a cluster writes its rules.
type setup struct {
	name   string
	proxy  string // kube-proxy's mode
	legacy bool   // Flannel and the plugins call iptables-legacy, else iptables-nft
}

// node is one with its daemons.
type node struct {
	*cluster
	number int // from 1
	ns     *lab.NS
	proxy  *exec.Cmd
	shunt  *beside.Daemon // nil where Linux is alone
}

// pod is a namespace that the plugins connected.
type pod struct {
	ns    *lab.NS
	node  *node
	addr  netip.Addr
	serve *exec.Cmd
}

const (
	server   = "https://192.0.2.254:6443"
	token    = "of-a-test"
	podNet   = "10.42.0.0/16"
	svcNet   = "10.43.0.0/16"
	hostPort = 8080 // of each node's first pod
)

// newCluster makes switch, control plane and that many nodes, the named ones with shunt, before everything else: it has to discover all. Each joins when it is told to.
func newCluster(t *testing.T, name string, s setup, agent string, nodes int, shunt ...int) *cluster {
	t.Helper()
	var top lab.Topology
	top.Nodes = []lab.Node{{Name: "sw"}}
	for i := 1; i <= nodes; i++ {
		n := fmt.Sprint("node", i)
		top.Nodes = append(top.Nodes, lab.Node{Name: n, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0"}, Commands: []string{"ip route add default via 192.0.2.254"}})
		top.Links = append(top.Links, lab.Link{A: lab.End{Node: n, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i))}}, B: lab.End{Node: "sw", Name: fmt.Sprint("p", i)}})
	}
	net := lab.BuildT(t, top)
	c := &cluster{T: t, name: name, setup: s, dir: filepath.Join(beside.Folder("k8s"), s.name, name), prefix: lab.UniquePrefix(name), agent: agent, sw: net.Node("sw"), pods: map[string]*pod{}}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	if s.legacy {
		bin := filepath.Join(c.dir, "bin")
		err := os.Mkdir(bin, 0o700)
		for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
			err = errors.Join(err, os.Symlink(legacyTables, filepath.Join(bin, name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.must(c.sw, "ip link add br0 type bridge", "ip address add 192.0.2.254/24 dev br0", "ip link set br0 up")
	for i := 1; i <= nodes; i++ {
		c.must(c.sw, fmt.Sprintf("ip link set p%d master br0", i))
		c.nodes = append(c.nodes, &node{cluster: c, number: i, ns: net.Node(fmt.Sprint("node", i))})
	}
	c.controlPlane()
	c.serve(c.sw)
	for _, n := range c.nodes {
		if err := os.MkdirAll(n.path(""), 0o700); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(shunt, n.number) {
			n.shunt = beside.StartShunt(t, *program, n.ns, n.path(""))
		}
		c.serve(n.ns)
	}
	return c
}

const legacyTables = "/usr/sbin/xtables-legacy-multi"

// iptables is the environment of those who call it.
func (c *cluster) iptables(env ...string) []string {
	return append(env, "PATH="+filepath.Join(c.dir, "bin")+":/usr/sbin:"+os.Getenv("PATH"))
}

func (n *node) String() string { return fmt.Sprint("node", n.number) }

// path is where something of a node's is kept.
func (n *node) path(name string) string { return filepath.Join(n.dir, n.String(), name) }

func (c *cluster) must(ns *lab.NS, lines ...string) {
	c.Helper()
	for _, line := range lines {
		if err := ns.Exec("%s", line); err != nil {
			c.Fatalf("%s: %v", c.name, err)
		}
	}
}

// start runs a program in a namespace until the end, with its output in a file of the cluster's.
func (c *cluster) start(ns *lab.NS, name string, env []string, args ...string) *exec.Cmd {
	c.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), env...)
	if err := ns.Start(cmd); err != nil {
		c.Fatalf("%s: starting %s: %v", c.name, name, err)
	}
	c.procs = append(c.procs, cmd)
	return cmd
}

// end ends a program that start started.
func (c *cluster) end(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
	c.procs = slices.DeleteFunc(c.procs, func(p *exec.Cmd) bool { return p == cmd })
}

func (c *cluster) log(name string) string {
	said, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(said[max(0, len(said)-4000):])
}

// await repeats a question until the answer is yes.
func (c *cluster) await(what, log string, yes func() bool) {
	c.Helper()
	for end := time.Now().Add(90 * time.Second); !yes(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("%s: %s: not within ninety seconds; the log's end:\n%s", c.name, what, c.log(log))
		}
	}
}

func tool(name string) string { return filepath.Join(*tools, name) }

// controlPlane starts what a cluster is run by, on the switch.
func (c *cluster) controlPlane() {
	c.Helper()
	in := func(name string) string { return filepath.Join(c.dir, name) }
	kubeconfig := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + server + `","insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":"` + token +
		`"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`
	if err := errors.Join(os.WriteFile(in("tokens"), []byte(token+",admin,1,system:masters\n"), 0o600), os.WriteFile(in("kubeconfig"), []byte(kubeconfig), 0o600),
		os.WriteFile(in("net-conf.json"), []byte(`{"Network":"`+podNet+`","Backend":{"Type":"vxlan"}}`), 0o600)); err != nil {
		c.Fatal(err)
	}
	c.must(c.sw, "openssl genrsa -out "+in("sa.key")+" 2048")
	c.start(c.sw, "etcd", nil, tool("etcd"), "--data-dir", in("etcd"), "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync")
	c.start(c.sw, "kube-apiserver", nil, tool("kube-apiserver"), "--etcd-servers", "http://127.0.0.1:2379", "--cert-dir", in("certs"), "--secure-port", "6443", "--advertise-address", "192.0.2.254", "--bind-address", "192.0.2.254",
		"--service-cluster-ip-range", svcNet, "--service-account-key-file", in("sa.key"), "--service-account-signing-key-file", in("sa.key"), "--service-account-issuer", "https://x", "--authorization-mode", "RBAC",
		"--token-auth-file", in("tokens"), "--disable-admission-plugins", "ServiceAccount", "--kubelet-preferred-address-types", "InternalIP")
	c.await("the API server answers", "kube-apiserver", func() bool { _, err := c.kubectl("", "get", "--raw", "/readyz"); return err == nil })
	c.start(c.sw, "kube-controller-manager", nil, tool("kube-controller-manager"), "--kubeconfig", in("kubeconfig"), "--allocate-node-cidrs", "--cluster-cidr", podNet, "--service-cluster-ip-range", svcNet, "--leader-elect=false",
		"--cert-dir", in("certs-kcm"), "--service-account-private-key-file", in("sa.key"))
	c.start(c.sw, "kube-scheduler", nil, tool("kube-scheduler"), "--kubeconfig", in("kubeconfig"), "--leader-elect=false", "--cert-dir", in("certs-scheduler"), "--secure-port", "0")
}

// kubectl asks or tells the cluster.
func (c *cluster) kubectl(input string, args ...string) (string, error) {
	cmd := exec.Command(tool("kubectl"), append([]string{"--kubeconfig", filepath.Join(c.dir, "kubeconfig"), "--cache-dir", filepath.Join(c.dir, "kubectl")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := c.sw.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("kubectl %q: %w: %s", args, err, said.String())
	}
	return out.String(), nil
}

func (c *cluster) mustKubectl(input string, args ...string) string {
	c.Helper()
	out, err := c.kubectl(input, args...)
	if err != nil {
		c.Fatalf("%s: %v", c.name, err)
	}
	return out
}

// apply makes objects what they are said to be.
func (c *cluster) apply(objects ...map[string]any) {
	c.Helper()
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		c.Fatal(err)
	}
	c.mustKubectl(string(raw), "apply", "--server-side", "-f", "-")
}

// serve runs the program that answers in a namespace.
func (c *cluster) serve(ns *lab.NS) *exec.Cmd {
	c.Helper()
	cmd := c.start(ns, "agent-"+ns.Name, nil, c.agent, "serve")
	c.await("the program that answers does", "agent-"+ns.Name, func() bool { return beside.Ask(ns, c.agent, "who 127.0.0.1:80", nil) == "127.0.0.1" })
	return cmd
}

// join makes the node known, starts flanneld and kube-proxy, and connects two pods, the first with a port of the node's.
func (n *node) join() {
	n.Helper()
	n.register()
	n.addPod("a", true)
	n.addPod("b", false)
}

// register makes the node known and starts what it runs.
func (n *node) register() {
	n.Helper()
	n.apply(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.String()}})
	n.mustKubectl("", "patch", "node", n.String(), "--subresource=status", "-p", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.%d"}]}}`, n.number))
	n.await("the node has a network for its pods", "kube-controller-manager", func() bool {
		cidr, _ := n.kubectl("", "get", "node", n.String(), "-o", "jsonpath={.spec.podCIDR}")
		return cidr != ""
	})
	in := func(name string) string { return filepath.Join(n.dir, name) }
	n.start(n.ns, "flanneld-"+n.String(), n.iptables("NODE_NAME="+n.String()), filepath.Join(*flannel, "flanneld"), "-kube-subnet-mgr", "-kubeconfig-file", in("kubeconfig"), "-iface", "eth0", "-ip-masq",
		"-net-config-path", in("net-conf.json"), "-subnet-file", n.path("subnet.env"))
	n.startProxy()
	n.await("flanneld has a subnet", "flanneld-"+n.String(), func() bool { return n.configure() == nil })
}

func (n *node) startProxy() {
	n.Helper()
	n.proxy = n.start(n.ns, "kube-proxy-"+n.String(), nil, tool("kube-proxy"), "--kubeconfig", filepath.Join(n.dir, "kubeconfig"), "--hostname-override", n.String(), "--proxy-mode", n.setup.proxy, "--cluster-cidr", podNet,
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0")
}

// rules are kube-proxy's, without what they counted.
func (n *node) rules() string {
	n.Helper()
	command := "iptables-save"
	if n.setup.proxy == "nftables" {
		command = "nft -s list ruleset"
	}
	out, err := n.ns.Output("%s", command)
	if err != nil {
		n.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" && !strings.Contains(line, "CANARY") && !strings.HasPrefix(line, ":") {
			kept = append(kept, strings.Join(f, " "))
		}
	}
	slices.Sort(kept) // in which order kube-proxy writes its chains is its own affair
	return strings.Join(kept, "\n")
}

// configure writes the plugins' configuration as Flannel's own plugin makes it.
func (n *node) configure() error {
	env, err := os.ReadFile(n.path("subnet.env"))
	if err != nil {
		return err
	}
	value := map[string]string{}
	for line := range strings.Lines(string(env)) {
		key, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		value[key] = v
	}
	subnet, err := netip.ParsePrefix(value["FLANNEL_SUBNET"])
	if err != nil {
		return err
	}
	mtu := 0
	fmt.Sscan(value["FLANNEL_MTU"], &mtu)
	raw, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "fl", "plugins": []any{
		map[string]any{"type": "bridge", "bridge": "cni0", "mtu": mtu, "isGateway": true, "ipMasq": false, "hairpinMode": true,
			"ipam": map[string]any{"type": "host-local", "dataDir": n.path("ipam"), "ranges": [][]any{{map[string]string{"subnet": subnet.Masked().String()}}}, "routes": []any{map[string]string{"dst": "0.0.0.0/0"}}}},
		map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true},
	}})
	return errors.Join(err, os.MkdirAll(n.path("cni"), 0o700), os.WriteFile(n.path("cni/10-fl.conflist"), raw, 0o600))
}

func (n *node) podName(name string) string { return fmt.Sprintf("pod%d%s", n.number, name) }

func (n *node) addPod(name string, port bool) *pod {
	n.Helper()
	ns, err := lab.NewNS(n.prefix + n.podName(name))
	if err != nil {
		n.Fatal(err)
	}
	p := &pod{ns: ns, node: n}
	n.pods[n.podName(name)] = p
	capabilities := "{}"
	if port {
		capabilities = fmt.Sprintf(`{"portMappings":[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]}`, hostPort)
	}
	cmd := exec.Command("nsenter", "--net="+n.ns.Path(), filepath.Join(*flannel, "cnitool"), "add", "fl", ns.Path())
	cmd.Env = append(os.Environ(), n.iptables("CNI_PATH="+*flannel, "NETCONFPATH="+n.path("cni"), "CAP_ARGS="+capabilities)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err != nil || json.Unmarshal(out, &result) != nil || len(result.IPs) != 1 {
		n.Fatalf("%s: connecting %s: %v: %s%s", n.cluster.name, n.podName(name), err, out, said.String())
	}
	p.addr = result.IPs[0].Address.Addr()
	p.serve = n.serve(ns)
	return p
}

// talk starts an agent that goes on until it is told to end.
func (c *cluster) talk(from string, args ...string) *beside.Talker {
	c.Helper()
	return beside.Talk(c.T, c.place(from), c.agent, args...)
}

func (c *cluster) close() {
	for _, p := range slices.Backward(c.procs) { // not asked to end: an API server takes its time
		p.Process.Kill()
		p.Wait()
	}
	for _, p := range c.pods {
		p.ns.Delete()
	}
	if err := beside.Discard(c.dir); err != nil {
		c.Errorf("%s: removing its folder: %v", c.name, err)
	}
	if c.kubelet { // what runtimes leave of containers that were killed, below each of the hierarchies
		exec.Command("find", "/sys/fs/cgroup", "-maxdepth", "4", "-depth", "-type", "d", "-path", "*/k8s.io*", "-exec", "rmdir", "{}", "+").Run()
	}
}
