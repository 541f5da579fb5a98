// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func emptyNode(t *testing.T) *NS {
	t.Helper()
	return BuildT(t, Topology{Nodes: []Node{{Name: "x"}}}).Node("x")
}

func TestDoStaysInside(t *testing.T) {
	t.Parallel()
	ns := emptyNode(t)
	names := func() (names []string) {
		ifaces, err := net.Interfaces()
		must(t, err)
		for _, i := range ifaces {
			names = append(names, i.Name)
		}
		return names
	}
	outside := names()
	must(t, ns.Do(func() error {
		if got := names(); !slices.Equal(got, []string{"lo"}) {
			return fmt.Errorf("interfaces inside: %q", got)
		}
		return nil
	}))
	if got := names(); !slices.Equal(got, outside) {
		t.Errorf("interfaces outside changed from %q to %q", outside, got)
	}
	broken := errors.New("broken")
	if err := ns.Do(func() error { return broken }); err != broken {
		t.Errorf("the function's error became %v", err)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	ns := emptyNode(t)
	must(t, ns.Exec("ip addr add 192.0.2.%d/32 dev lo", 7))
	out, err := ns.Output("ip -brief addr show dev lo")
	must(t, err)
	if !strings.Contains(out, "192.0.2.7/32") {
		t.Errorf("the address is not in %q", out)
	}
	must(t, ns.Feed("route add 198.51.100.0/24 dev lo\n", "ip -batch -"))
	must(t, ns.Shell("ip route show | grep -q 198.51.100.0/24"))

	err = ns.Exec("ip addr add nonsense dev lo")
	if err == nil {
		t.Fatal("a failing command is no error")
	}
	for _, want := range []string{"ip addr add nonsense dev lo", ns.Name, "exit status 1", `"nonsense"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	// The mount namespace is ours, with its cgroups and bpffs.
	mine, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	out, err = ns.Output("readlink /proc/self/ns/mnt")
	must(t, err)
	if strings.TrimSpace(out) != mine {
		t.Errorf("commands run in mount namespace %q instead of %q", out, mine)
	}
}

func TestSysctlAndSysfs(t *testing.T) {
	t.Parallel()
	ns := emptyNode(t)
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl")
	must(t, err)
	must(t, ns.Sysctl("net.ipv4.ip_default_ttl=99"))
	if got, err := ns.ReadSysctl("net/ipv4/ip_default_ttl"); err != nil || got != "99" {
		t.Errorf("the sysctl is %q (%v), want 99", got, err)
	}
	if after, err := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl"); err != nil || string(after) != string(before) {
		t.Errorf("the sysctl outside changed from %q to %q (%v)", before, after, err)
	}
	if err := ns.Sysctl("net.ipv4.no_such_thing=1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown sysctl gives %v", err)
	}

	root, err := ns.Sysfs()
	must(t, err)
	defer root.Close()
	if _, err := root.Stat("class/net/lo/ifindex"); err != nil {
		t.Error(err)
	}
	ifaces, err := net.Interfaces()
	must(t, err)
	for _, i := range ifaces {
		if _, err := root.Stat("class/net/" + i.Name); i.Name != "lo" && err == nil {
			t.Errorf("/sys inside shows %s, which is outside", i.Name)
		}
	}
}

// TestIproute2SeesNamespaces, both ways.
func TestIproute2SeesNamespaces(t *testing.T) {
	t.Parallel()
	ns := emptyNode(t)
	out, err := exec.Command("ip", "netns", "exec", ns.Name, "ip", "-o", "link").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "lo:") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("ip netns exec says %q (%v)", out, err)
	}
	name := UniquePrefix("ip") + "x"
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %s", out)
	}
	theirs, err := OpenNS(name)
	must(t, err)
	must(t, theirs.Exec("ip link set lo up"))
	must(t, theirs.Delete())
}

func TestNewNSRefuses(t *testing.T) {
	t.Parallel()
	ns := emptyNode(t)
	if _, err := NewNS(ns.Name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a name that is taken gives %v", err)
	}
	for _, name := range []string{"", "../x", "a/b"} {
		if ns, err := NewNS(name); err == nil {
			t.Errorf("the name %q was accepted as %s", name, ns.Path())
		}
	}
}

// TestBuildFailsClean: a mistake late in a topology leaves no namespace, and the
// error names the place.
func TestBuildFailsClean(t *testing.T) {
	t.Parallel()
	RequireRoot(t)
	for want, spoil := range map[string]func(*Topology){
		"no_such":  func(t *Topology) { t.Node(Dut).Sysctls = append(t.Node(Dut).Sysctls, "net.ipv4.no_such=1") },
		"nonsense": func(t *Topology) { t.Node(SinkNode).Commands = []string{"ip nonsense"} },
		"dut/out":  func(t *Topology) { t.Links[1].A.MAC = net.HardwareAddr{1, 0, 0, 0, 0, 0} }, // multicast
		"elsewhere": func(t *Topology) {
			t.Links[1].B.Node = "elsewhere"
		},
		"twice": func(t *Topology) { t.Nodes = append(t.Nodes, Node{Name: Dut}) },
	} {
		top := Line(LineOptions{})
		spoil(&top)
		prefix := UniquePrefix("fails")
		if n, err := Build(prefix, top); err == nil {
			n.Close()
			t.Errorf("%s: the topology was built", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
		if left, _ := filepath.Glob(netnsDir + "/" + prefix + "*"); len(left) > 0 {
			t.Errorf("%s: left behind: %q", want, left)
		}
	}
}

// TestSweep removes the namespaces of a process that is no more, and only those.
func TestSweep(t *testing.T) {
	t.Parallel()
	alive := emptyNode(t)
	gone := exec.Command("true")
	must(t, gone.Run())
	dead, err := NewNS(fmt.Sprintf("lab%d-1-x", gone.Process.Pid))
	must(t, err)
	must(t, dead.Close())
	if left := Leftovers(gone.Process.Pid); !slices.Equal(left, []string{dead.Name}) {
		t.Errorf("left over by the dead process: %q", left)
	}
	must(t, Sweep())
	if left := Leftovers(gone.Process.Pid); len(left) > 0 {
		t.Errorf("not swept: %q", left)
	}
	if !slices.Contains(Leftovers(os.Getpid()), alive.Name) {
		t.Error("a namespace of this process was swept away")
	}
}
