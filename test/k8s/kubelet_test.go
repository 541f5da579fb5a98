// SPDX-License-Identifier: Apache-2.0

package k8s

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

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/test/beside"
)

// kubeletNode is the first node of a cluster, with kubelet and containerd.
type kubeletNode struct {
	*node
	socket string // containerd's
}

// startKubelet runs both as in the recipes of their projects, with what a namespace of the network alone needs: no cgroups of its own, no images but those that are brought.
func (n *node) startKubelet() *kubeletNode {
	n.Helper()
	n.kubelet = true
	if _, err := os.Stat(kubeletDir); errors.Is(err, os.ErrNotExist) { // it keeps the socket for devices there, wherever the rest is
		n.Cleanup(func() { os.RemoveAll(kubeletDir) })
	}
	k := &kubeletNode{n, n.path("containerd.sock")}
	containerd := `version = 3
root = '` + n.path("containerd") + `'
state = '` + n.path("state") + `'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
 address = '` + k.socket + `'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
 sandbox = 'docker.io/library/agent:1'
[plugins.'io.containerd.cri.v1.runtime']
 restrict_oom_score_adj = true
 netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
 runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
 Root = '` + n.path("runc") + `'
[plugins.'io.containerd.cri.v1.runtime'.cni]
 bin_dirs = ['` + *flannel + `']
 conf_dir = '` + n.path("cni") + `'
`
	config := `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://` + k.socket + `
failSwapOn: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enforceNodeAllocatable: []
cgroupsPerQOS: false
podLogsDir: ` + n.path("logs") + `
volumePluginDir: ` + n.path("volumes") + `
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {"imagefs.available":"1%","nodefs.available":"1%"}
`
	if err := errors.Join(os.WriteFile(n.path("containerd.toml"), []byte(containerd), 0o600), os.WriteFile(n.path("kubelet.yaml"), []byte(config), 0o600),
		image(n.path("agent.tar"), "docker.io/library/agent:1", n.agent, "/agent", "pause"), image(n.path("shunt.tar"), "docker.io/library/shunt:latest", *program, "/shunt")); err != nil {
		n.Fatal(err)
	}
	path := "PATH=" + *tools + ":/usr/sbin:" + os.Getenv("PATH")
	n.start(n.ns, "containerd", []string{path}, tool("containerd"), "-c", n.path("containerd.toml"))
	n.await("containerd answers", "containerd", func() bool { return exec.Command(tool("ctr"), "-a", k.socket, "version").Run() == nil })
	for _, name := range []string{"agent", "shunt"} {
		if out, err := exec.Command(tool("ctr"), "-a", k.socket, "-n", "k8s.io", "images", "import", n.path(name+".tar")).CombinedOutput(); err != nil {
			n.Fatalf("importing the image of %s: %v: %s", name, err, out)
		}
	}
	n.start(n.ns, "kubelet", []string{path}, tool("kubelet"), "--kubeconfig", filepath.Join(n.dir, "kubeconfig"), "--config", n.path("kubelet.yaml"), "--hostname-override", n.String(), "--node-ip", n.addr().String(),
		"--root-dir", n.path("kubelet"), "--cert-dir", n.path("pki"))
	n.await("the node is ready", "kubelet", func() bool {
		said, _ := n.kubectl("", "get", "node", n.String(), "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints}`)
		return strings.TrimSpace(said) == "True"
	})
	return k
}

const kubeletDir = "/var/lib/kubelet"

// podSpec runs the agent as pods' only one.
func podSpec(port int) object {
	ports := []object{{"containerPort": 80}}
	if port != 0 {
		ports[0]["hostPort"] = port
	}
	return object{"automountServiceAccountToken": false, "enableServiceLinks": false, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 10, "containers": []object{{
		"name": "agent", "image": "docker.io/library/agent:1", "imagePullPolicy": "Never", "command": []string{"/agent", "serve"}, "ports": ports,
		"readinessProbe": object{"tcpSocket": object{"port": 80}, "periodSeconds": 1},
		"lifecycle":      object{"preStop": object{"sleep": object{"seconds": 4}}}, // as every Deployment does that loses no call when it shrinks: endpoints go first
	}}}
}

// deploy makes a Deployment of two replicas with a service and a port of the nodes', and a pod with a port of its node's.
func (c *cluster) deploy() {
	c.Helper()
	labels := func(app string) object { return object{"app": app} }
	c.apply(
		object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "web", "namespace": "default"}, "spec": object{
			"replicas": 2, "selector": object{"matchLabels": labels("web")}, "template": object{"metadata": object{"labels": labels("web")}, "spec": podSpec(0)}}},
		object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web", "namespace": "default"}, "spec": object{
			"type": "NodePort", "clusterIP": "10.43.0.90", "selector": labels("web"), "ports": []object{{"port": 80, "targetPort": 80, "nodePort": 30090}}}},
		object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "published", "namespace": "default", "labels": labels("published")}, "spec": podSpec(8090)},
		object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "published", "namespace": "default"}, "spec": object{
			"clusterIP": "10.43.0.91", "selector": labels("published"), "ports": []object{{"port": 80, "targetPort": 80}}}},
	)
}

// replicas waits until a service is answered by that many pods, from a pod of the other node and from beyond, and the Deployment has no others.
func (c *cluster) replicas(n int) {
	c.Helper()
	c.await(fmt.Sprintf("%d replicas are reached", n), "kubelet", func() bool {
		for _, q := range []struct{ from, to string }{{"pod2a", "10.43.0.90:80"}, {"sw", "192.0.2.1:30090"}} {
			if count(ask(c, c.place(q.from), nil, "where "+q.to+" 40"), "10.42.") != fmt.Sprint(n) {
				return false
			}
		}
		for _, to := range []string{"10.43.0.91:80", "192.0.2.1:8090"} {
			if said := ask(c, c.place("sw"), nil, "where "+to+" 1"); !strings.HasPrefix(said, "10.42.") {
				return false
			}
		}
		pods, _ := c.kubectl("", "get", "pods", "-l", "app=web", "-o", "name")
		return strings.Count(pods, "\n") == n
	})
}

// callers talk to what is deployed while something is done, and no call may fail.
func (c *cluster) callers(what string, do func()) {
	c.Helper()
	traffic := beside.Traffic{Calls: map[string]*beside.Talker{}, Streams: map[string]*beside.Talker{}}
	for name, q := range map[string]struct{ from, to string }{
		"ClusterIP": {"pod2a", "10.43.0.90:80"}, "NodePort": {"sw", "192.0.2.1:30090"}, "NodePort of the other node": {"sw", "192.0.2.2:30090"}, "hostPort": {"sw", "192.0.2.1:8090"}, "from the node": {"node1", "10.43.0.90:80"},
	} {
		traffic.Calls[name] = c.talk(q.from, "calls", q.to)
	}
	traffic.Streams["one connection"] = c.talk("pod2a", "stream", "10.43.0.91:80", "0")
	do()
	heard, wrong := traffic.End()
	for name, said := range wrong {
		c.Errorf("%s: %s: %s", what, name, said)
	}
	c.Logf("%s: %s", what, heard)
}

// kubeletAnswers is what both clusters are asked once all stands.
func (c *cluster) kubeletAnswers() map[string]string {
	owners := c.owners()
	list := c.mustKubectl("", "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.labels.app} {.status.podIP}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if app, ip, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if a, err := netip.ParseAddr(ip); err == nil {
				owners[a] = app
			}
		}
	}
	var questions []string
	for _, from := range []string{"pod2a", "node1", "node2", "sw"} {
		for _, words := range []string{"where 10.43.0.90:80 30", "who 10.43.0.91:80", "get 10.43.0.91:80 8000000", "where 192.0.2.1:30090 30", "where 192.0.2.2:30090 30", "get 192.0.2.2:30090 8000000", "who 192.0.2.1:8090", "get 192.0.2.1:8090 8000000", "put 192.0.2.1:8090 8000000"} {
			questions = append(questions, from+" "+words)
		}
	}
	return beside.AskAll(questions, func(q string) string {
		from, words, _ := strings.Cut(q, " ")
		return ask(c, c.place(from), owners, words)
	})
}

// TestKubelet scales a Deployment under load on a node with a real kubelet and containerd: by Linux alone, then with shunt as the DaemonSet that clusters get.
func TestKubelet(t *testing.T) {
	agent := prepared(t, "kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("no runc here")
	}
	var said [2]map[string]string
	for i, name := range []string{"linux", "shunt"} {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			step := func(what string) { t.Logf("%5.1f s  %s", time.Since(started).Seconds(), what); started = time.Now() }
			c := newCluster(t, "kubelet-"+name, setups[0], agent, 2, []int{2}[:i]...)
			t.Cleanup(func() {
				if t.Failed() {
					pods, _ := c.kubectl("", "get", "pods", "-A", "-o", "wide")
					events, _ := c.kubectl("", "get", "events", "-A", "--sort-by=.lastTimestamp")
					t.Logf("pods:\n%s\nevents:\n%s", pods, events[max(0, len(events)-4000):])
				}
			})
			c.nodes[0].register()
			k := c.nodes[0].startKubelet()
			c.nodes[1].join()
			step("a cluster with a kubelet")
			var d *daemonSet
			if i == 1 {
				d = k.daemonSet()
				step("shunt's DaemonSet is ready")
			}
			c.must(c.sw, "ip route add 10.43.0.0/16 via 192.0.2.1")
			c.deploy()
			c.replicas(2)
			step("two replicas are reached")
			before := d.bytes()
			said[i] = c.kubeletAnswers()
			step(fmt.Sprintf("%d questions", len(said[i])))
			if d != nil {
				moved := d.bytes() - before
				slow(t, d.status())
				t.Logf("forwarded by the DaemonSet's shunt: %.1f MB", float64(moved)/1e6)
				if moved < 40e6 { // of seven transfers of 8 MB from beyond the node to its pods
					t.Errorf("the DaemonSet's shunt forwarded %d MB itself, of 56", moved/1e6)
				}
			}
			c.callers("from two replicas to four", func() { c.mustKubectl("", "scale", "deployment", "web", "--replicas=4"); c.replicas(4) })
			c.callers("and back", func() { c.mustKubectl("", "scale", "deployment", "web", "--replicas=2"); c.replicas(2) })
			step("scaled")
			if d != nil {
				c.callers("shunt's own upgrade", d.upgrade)
				d.remove()
				c.callers("without shunt", func() { time.Sleep(time.Second) })
				step("upgraded and removed")
			}
			k.empty()
			step("emptied")
		})
	}
	if t.Failed() || said[0] == nil || said[1] == nil { // one of them alone was asked for
		return
	}
	for _, d := range beside.Differences(said[0], said[1]) {
		t.Error(d)
	}
	if w := said[0]["sw where 192.0.2.1:30090 30"]; w != "web web" {
		t.Errorf("Linux alone says %q of who answers at a NodePort: this cluster does not work", w)
	}
	t.Logf("%d answers are the same", len(said[0]))
}

// empty deletes what is deployed and waits until none runs.
func (k *kubeletNode) empty() {
	k.Helper()
	k.mustKubectl("", "delete", "deployment,service,pod", "--all", "--wait=false")
	k.await("no container runs any more", "kubelet", func() bool {
		out, err := exec.Command(tool("ctr"), "-a", k.socket, "-n", "k8s.io", "tasks", "list", "-q").Output()
		return err == nil && len(out) == 0
	})
}

// daemonSet is shunt as deploy/kubernetes has it, with other folders.
type daemonSet struct {
	*kubeletNode
	runtime string
}

func (k *kubeletNode) daemonSet() *daemonSet {
	k.Helper()
	d := &daemonSet{k, k.path("run")}
	manifest, err := os.ReadFile("../../deploy/kubernetes/shunt.yaml")
	if err != nil {
		k.Fatal(err)
	}
	bpf := k.path("bpf") // in the place of the node's own /sys/fs/bpf
	if err := errors.Join(os.MkdirAll(bpf, 0o700), unix.Mount("bpf", bpf, "bpf", 0, ""), os.MkdirAll(k.path("modules"), 0o700)); err != nil {
		k.Fatalf("mounting a BPF file system: %v", err)
	}
	text := strings.NewReplacer("/run/shunt", d.runtime, "/sys/fs/bpf/shunt", bpf+"/shunt", "path: /lib/modules", "path: "+k.path("modules")).Replace(string(manifest))
	k.mustKubectl(text, "apply", "-f", "-")
	k.mustKubectl("", "-n", "shunt", "rollout", "status", "daemonset/shunt", "--timeout=90s")
	if said := k.mustKubectl("", "-n", "shunt", "exec", "daemonset/shunt", "--", "/shunt", "check", "--runtime-dir="+d.runtime); strings.Contains(said, "[FAIL]") {
		k.Errorf("shunt check in its pod:\n%s", said)
	}
	return d
}

// status asks by the socket, as on the node.
func (d *daemonSet) status() *api.Status {
	d.Helper()
	out, err := exec.Command(*program, "status", "--json", "--runtime-dir", d.runtime).CombinedOutput()
	var s api.Status
	if err = errors.Join(err, json.Unmarshal(out, &s)); err != nil {
		d.Fatalf("asking the DaemonSet's shunt: %v: %s", err, out)
	}
	if len(s.Faults) > 0 || s.Sync.Failures > 0 {
		d.Errorf("the DaemonSet's shunt has %d failures, faults %q", s.Sync.Failures, s.Faults)
	}
	return &s
}

// bytes is what it has forwarded; nothing where there is none.
func (d *daemonSet) bytes() (n uint64) {
	if d == nil {
		return 0
	}
	for _, i := range d.status().Interfaces {
		n += i.Packets.Bytes
	}
	return n
}

// upgrade replaces the pod, as a new image would.
func (d *daemonSet) upgrade() {
	d.Helper()
	pod := func() string {
		return d.mustKubectl("", "-n", "shunt", "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
	}
	old := pod()
	d.mustKubectl("", "-n", "shunt", "rollout", "restart", "daemonset/shunt")
	d.mustKubectl("", "-n", "shunt", "rollout", "status", "daemonset/shunt", "--timeout=90s")
	if pod() == old {
		d.Errorf("the pod is still %s", old)
	}
	if !d.status().Ready {
		d.await("the new pod's shunt is ready", "kubelet", func() bool { return d.status().Ready })
	}
}

// attached counts the BPF programs at the node's devices; nobody else's are there.
func (d *daemonSet) attached() (n int) {
	d.Helper()
	err := d.ns.Do(func() error {
		devices, err := d.ns.Netlink().LinkList()
		if err != nil {
			return err
		}
		for _, dev := range devices {
			if x := dev.Attrs().Xdp; x != nil && x.Attached {
				n++
			}
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				found, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: at})
				if err == nil {
					n += len(found.Programs)
				} else if !errors.Is(err, ebpf.ErrNotSupported) { // before Linux 6.6
					return fmt.Errorf("asking what %s carries: %w", dev.Attrs().Name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
	disciplines, err := d.ns.Output("tc qdisc show")
	if err != nil {
		d.Fatal(err)
	}
	return n + strings.Count(disciplines, "clsact")
}

// remove takes it from the cluster as docs/operations.md says, so that nothing is left in the kernel.
func (d *daemonSet) remove() {
	d.Helper()
	if d.attached() == 0 {
		d.Error("nothing is attached while the DaemonSet is there: this test would not see what it leaves")
	}
	d.mustKubectl("", "-n", "shunt", "patch", "daemonset", "shunt", "--type=json", "-p",
		`[{"op":"add","path":"/spec/template/spec/containers/0/lifecycle","value":{"preStop":{"exec":{"command":["/shunt","stop","--detach","--runtime-dir=`+d.runtime+`"]}}}}]`)
	d.mustKubectl("", "-n", "shunt", "rollout", "status", "daemonset/shunt", "--timeout=90s")
	d.mustKubectl("", "-n", "shunt", "delete", "daemonset", "shunt")
	d.await("the pod is gone", "kubelet", func() bool {
		said, err := d.kubectl("", "-n", "shunt", "get", "pods", "-o", "name")
		return err == nil && said == ""
	})
	if left := d.attached(); left != 0 {
		d.Errorf("left by the DaemonSet: %d attached programs", left)
	}
}
