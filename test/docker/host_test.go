// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
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

// host is a machine with Docker: a network namespace with a dockerd in it, and one more, which is its outside.
type host struct {
	*testing.T
	name    string
	dir     string
	agent   string // the program that containers hold
	ns      *lab.NS
	outside *lab.NS
	dockerd *exec.Cmd
	shunt   *beside.Daemon // nil where Linux is alone
	plain   *lab.Net
	pids    map[string]string // container → process
	stack   stack
	environ []string
	options []string // of dockerd
}

// image is the name of what containers are made from.
const image = "shunt-test:1"

// newHost makes a host with its outside at 192.0.2.2 and starts dockerd.
func newHost(t *testing.T, name, agent string, s stack, environ, options []string) *host {
	t.Helper()
	link := lab.Link{A: lab.End{Node: "host", Name: "eth0", Addrs: prefixes("192.0.2.1/24")}, B: lab.End{Node: "outside", Name: "eth0", Addrs: prefixes("192.0.2.2/24")}}
	n := lab.BuildT(t, lab.Topology{Links: []lab.Link{link}, Nodes: []lab.Node{
		{Name: "host"}, {Name: "outside", Commands: []string{"ip route add 172.16.0.0/12 via 192.0.2.1"}},
	}})
	return newHostIn(t, n, "host", n.Node("outside"), name, agent, s, environ, options)
}

// newHostIn starts dockerd in a node of a network that is there; outside may be nil.
func newHostIn(t *testing.T, n *lab.Net, node string, outside *lab.NS, name, agent string, s stack, environ, options []string) *host {
	t.Helper()
	h := &host{
		T: t, name: name, agent: agent, dir: filepath.Join(runFolder(), name), ns: n.Node(node), outside: outside, plain: n, pids: map[string]string{},
		stack: s, options: options,
		environ: append(append(os.Environ(), "DOCKER_CONFIG="+filepath.Join(runFolder(), name, "config")), environ...),
	}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	h.startDocker()
	for _, name := range []string{"udp_timeout", "udp_timeout_stream", "icmp_timeout"} { // what is compared must not be about to be forgotten, on a busy machine either
		h.exec("sysctl -qew net.netfilter.nf_conntrack_%s=600", name)
	}
	h.must("import", func() error {
		cmd := exec.Command("sh", "-c", `tar -C "$1" -c agent | docker -H "$2" import - `+image, "sh", filepath.Dir(agent), h.socket())
		cmd.Env = h.environ
		out, err := cmd.CombinedOutput()
		return said(err, out)
	})
	if outside != nil {
		h.serve(outside.Path())
	}
	return h
}

// serve runs the serving program in a namespace until the test ends.
func (h *host) serve(ns string) {
	h.Helper()
	server := h.inside(ns, "serve")
	if err := server.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { server.Process.Kill(); server.Wait() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, _ := h.inside(ns, "who", "127.0.0.1:80").Output()
		if string(out) == "127.0.0.1\n" {
			return
		} else if time.Now().After(end) {
			h.Fatalf("the serving program does not answer: %s", out)
		}
	}
}

func (h *host) socket() string { return "unix://" + filepath.Join(h.dir, "docker.sock") }

func (h *host) execRoot() string { return filepath.Join(h.dir, "exec") }

// startDocker runs a dockerd and returns when it answers. Containers outlive it (live-restore, unless the options say otherwise), so that its death can be under traffic.
func (h *host) startDocker() {
	h.Helper()
	log, err := os.OpenFile(filepath.Join(h.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.Fatal(err)
	}
	defer log.Close()
	h.dockerd = exec.Command("dockerd", append([]string{"--live-restore", "--dns", "192.0.2.2", "--data-root", filepath.Join(h.dir, "data"), "--exec-root", h.execRoot(),
		"--pidfile", filepath.Join(h.dir, "pid"), "--config-file", filepath.Join(h.dir, "none.json"), "-H", h.socket()}, h.options...)...)
	os.WriteFile(filepath.Join(h.dir, "none.json"), []byte("{}"), 0o600)
	h.dockerd.Env, h.dockerd.Stdout, h.dockerd.Stderr = h.environ, log, log
	h.dockerd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := h.ns.Start(h.dockerd); err != nil {
		h.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := h.try("version", "--format", "{{.Server.Version}}"); err == nil {
			return
		} else if time.Now().After(end) {
			said, _ := os.ReadFile(log.Name())
			h.Fatalf("%s: dockerd does not answer: %v; it said at last:\n%s", h.name, err, said[max(0, len(said)-2000):])
		}
	}
}

// stopDocker sends dockerd a signal and waits until it is gone.
func (h *host) stopDocker(s os.Signal) {
	h.Helper()
	if err := h.dockerd.Process.Signal(s); err != nil {
		h.Errorf("%s: ending dockerd: %v", h.name, err)
	}
	h.dockerd.Wait()
	os.Remove(filepath.Join(h.dir, "pid")) // where it was killed
	// Its containerd dies with it. Where nobody reaps orphans the process id stays taken, and the next dockerd would wait for that containerd.
	file := filepath.Join(h.dir, "exec/containerd/containerd.pid")
	for range 100 {
		pid, err := os.ReadFile(file)
		if err != nil {
			return
		}
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || strings.HasPrefix(state, "Z") {
			os.Remove(file)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (h *host) close() {
	for c := range h.pids {
		h.try("rm", "-f", c)
	}
	h.dockerd.Process.Signal(unix.SIGTERM)
	ended := make(chan struct{})
	go func() { h.dockerd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
	}
	if err := beside.Discard(h.dir); err != nil {
		h.Errorf("%s: removing its folder: %v", h.name, err)
	}
	<-ended
}

// try asks Docker.
func (h *host) try(args ...string) (string, error) {
	cmd := exec.Command("docker", append([]string{"-H", h.socket()}, args...)...)
	cmd.Env = h.environ
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), said(err, out)
}

func (h *host) docker(args ...string) string {
	h.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.Errorf("%s: docker %s: %v", h.name, strings.Join(args, " "), err)
	}
	return out
}

func (h *host) must(what string, do func() error) {
	h.Helper()
	if err := do(); err != nil {
		h.Fatalf("%s: %s: %v", h.name, what, err)
	}
}

func (h *host) exec(format string, args ...any) {
	h.Helper()
	if err := h.ns.Exec(format, args...); err != nil {
		h.Errorf("%s: %v", h.name, err)
	}
}

// run starts a container that serves. What is before the image's name is the caller's.
func (h *host) run(name string, args ...string) {
	h.Helper()
	h.docker(append(append([]string{"run", "-d", "--name", name, "--hostname", name}, args...), image, "/agent", "serve")...)
	h.find(name)
}

// find learns where a container's namespace is.
func (h *host) find(name string) {
	h.Helper()
	h.pids[name] = h.docker("inspect", "-f", "{{.State.Pid}}", name)
}

// address is that of a container in a network.
func (h *host) address(name, network string) string {
	h.Helper()
	return h.docker("inspect", "-f", fmt.Sprintf(`{{(index .NetworkSettings.Networks %q).IPAddress}}`, network), name)
}

// veth is the host's end of an interface of a container.
func (h *host) veth(name, inside string) string {
	h.Helper()
	out, err := exec.Command("nsenter", "--net=/proc/"+h.pids[name]+"/ns/net", "ip", "-o", "link", "show", "dev", inside).Output()
	_, rest, ok := strings.Cut(string(out), inside+"@if")
	index, _, _ := strings.Cut(rest, ":")
	if err != nil || !ok {
		h.Fatalf("%s: looking for the veth of %s, %s: %v: %s", h.name, name, inside, err, out)
	}
	links, err := h.ns.Output("ip -o link show")
	if err != nil {
		h.Fatal(err)
	}
	for line := range strings.Lines(links) {
		if f := strings.Fields(line); f[0] == index+":" {
			veth, _, _ := strings.Cut(f[1], "@")
			return veth
		}
	}
	h.Fatalf("%s: no link %s", h.name, index)
	return ""
}

// inside is an agent's command in a namespace.
func (h *host) inside(ns string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + ns, h.agent}, args...)...)
}

// at is the namespace of a container, "host" or "outside".
func (h *host) at(where string) string {
	switch where {
	case "host":
		return h.ns.Path()
	case "outside":
		return h.outside.Path()
	}
	return "/proc/" + h.pids[where] + "/ns/net"
}

func said(err error, out []byte) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, errors.New(strings.TrimSpace(string(out))))
}
