// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// has looks for a line of a level about a subject, whose text and advice say something.
func has(results []Result, level Level, subject, says string) bool {
	return slices.ContainsFunc(results, func(r Result) bool {
		return r.Level == level && r.Subject == subject && strings.Contains(r.Text+"; "+r.Advice, says)
	})
}

// What is found in a router changes with what is done to it.
func TestRouter(t *testing.T) {
	ns := lab.BuildLineT(t, lab.LineOptions{}).Node(lab.Dut)
	for _, step := range []struct {
		change string
		wants  []Result // text is a part of what is found
		not    []string // subjects that are not found
	}{
		{"true", []Result{{OK, "forwarding", "IPv4 and IPv6", ""}, {OK, "generic program", "supported", ""}, {OK, "in", "veth", ""}, {OK, "in", "would be fast by tc", ""}, {OK, "out", "would be fast by tc", ""}},
			[]string{"lo", "daemon", "configuration"}},
		{"tc qdisc add dev in clsact; tc filter add dev in ingress prio 3 protocol ip u32 match u32 0 0 classid 1:1",
			[]Result{{Warn, "in", "tc filter of kind u32, priority 3", ""}}, nil},
		{"tc qdisc del dev in clsact; sysctl -qw net.ipv6.conf.all.forwarding=0", []Result{{OK, "forwarding", "IPv4 only", ""}, {OK, "in", "would be fast by tc", ""}}, nil},
		{"echo 'table ip t { chain c { type filter hook forward priority 0; limit rate 9/second drop; }; }' | nft -f -",
			[]Result{{Warn, "in", "netfilter:ip4:forward", ""}}, nil},
		{"nft flush ruleset; sysctl -qw net.ipv4.ip_forward=0", []Result{{Warn, "forwarding", "Linux does not forward here", ""}}, nil},
		{"sysctl -qw net.ipv4.ip_forward=1; ip link set out down", []Result{{OK, "forwarding", "IPv4", ""}, {Warn, "out", "veth", ""}, {Warn, "out", "down", ""}}, nil},
	} {
		if err := ns.Shell(step.change); err != nil {
			t.Fatal(err)
		}
		var found []Result
		if err := ns.Do(func() error { found = namespace(); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, w := range step.wants {
			if !has(found, w.Level, w.Subject, w.Text) {
				t.Errorf("%s: there is no [%s] %s that says %q in\n%v", step.change, w.Level, w.Subject, w.Text, found)
			}
		}
		for _, subject := range step.not {
			if slices.ContainsFunc(found, func(r Result) bool { return r.Subject == subject }) {
				t.Errorf("%s: there is a line about %s in\n%v", step.change, subject, found)
			}
		}
		if slices.ContainsFunc(found, func(r Result) bool { return r.Level == Fail }) {
			t.Errorf("%s: something fails:\n%v", step.change, found)
		}
	}
}

// What the lack of CAP_SYSLOG costs is said where it costs something.
func TestHiddenSymbols(t *testing.T) {
	named, hidden := model.NFHook{Function: "nf_hook_run_bpf"}, model.NFHook{Function: "0xffffffff81fda280"}
	if found := whole(&model.Network{Netfilter: []model.NFHook{named}}); has(found, Warn, "kernel symbols", "") {
		t.Errorf("with names: %v", found)
	}
	if found := whole(&model.Network{Netfilter: []model.NFHook{named, hidden}}); !has(found, Warn, "kernel symbols", "CAP_SYSLOG") {
		t.Errorf("with an address for a name: %v", found)
	}
}

// A daemon is known by the name that it claims in its namespace.
func TestAnother(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{})
	look := func(node string) (found []Result) {
		if err := n.Node(node).Do(func() error { found = another(); return nil }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := look(lab.Dut); found != nil {
		t.Errorf("without a daemon: %v", found)
	}
	fd := -1
	err := n.Node(lab.Dut).Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: "@shunt"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if found := look(lab.Dut); !has(found, OK, "daemon", "a shunt runs") {
		t.Errorf("with a daemon: %v", found)
	}
	if found := look(lab.Src); found != nil {
		t.Errorf("in another namespace: %v", found)
	}
	unix.Close(fd)
	if found := look(lab.Dut); found != nil {
		t.Errorf("after the daemon: %v", found)
	}
}

// Each capability that is missing is named, and no other.
func TestPrivileges(t *testing.T) {
	lab.RequireRoot(t)
	if err := Privileges(); err != nil {
		t.Fatalf("root lacks something: %v", err)
	}
	for _, lacking := range capabilities {
		err := without(lacking.bit, Privileges)
		if !errors.Is(err, ErrPrivilege) {
			t.Errorf("without %s: %v", lacking.name, err)
			continue
		}
		for _, c := range capabilities {
			if named := strings.Contains(err.Error(), c.name+" ("); named != (c == lacking) {
				t.Errorf("without %s, %s is named (%t): %v", lacking.name, c.name, named, err)
			}
		}
	}
	if err := without(unix.CAP_NET_ADMIN, func() error { return Requirements() }); !errors.Is(err, ErrPrivilege) || errors.Is(err, ErrUnsupported) {
		t.Errorf("the requirements without CAP_NET_ADMIN: %v", err)
	}
}

// Root of a user namespace has all capabilities, and yet none that count.
func TestUserNamespace(t *testing.T) {
	const inside = "SHUNT_TEST_IN_USER_NAMESPACE"
	if os.Getenv(inside) != "" {
		if err := Privileges(); !errors.Is(err, ErrPrivilege) || !strings.Contains(err.Error(), "those of a user namespace") {
			t.Errorf("the privileges of root of a user namespace: %v", err)
		}
		return
	}
	c := exec.Command("/proc/self/exe", "-test.run=^TestUserNamespace$")
	c.Env = append(os.Environ(), inside+"=1")
	ids := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids}
	out, err := c.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOSPC) {
		t.Skip("this kernel makes no user namespace for this user (Linux 3.8, CONFIG_USER_NS, /proc/sys/user/max_user_namespaces): tried: ", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// without runs a function on a thread of its own that lacks a capability.
func without(bit uint, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		if err == nil {
			data[bit/32].Effective &^= 1 << (bit % 32)
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// This machine runs the tests of everything else, so shunt can run on it.
func TestRequirements(t *testing.T) {
	lab.RequireRoot(t)
	if err := Requirements(); err != nil {
		t.Error(err)
	}
	for _, r := range []Result{kernel(), privileges(), required("type information", typeInformation), required("BPF file system", bpfFS)} {
		if r.Level != OK || r.Subject == "" || r.Text == "" {
			t.Errorf("%+v", r)
		}
	}
	broken := errors.New("broken")
	if r := required("thing", func() error { return broken }); r.Level != Fail || r.Text != "broken" {
		t.Errorf("what is required and broken gives %+v", r)
	}
}

func TestDescription(t *testing.T) {
	features := func(bits uint64) *uint64 { return &bits }
	for _, c := range []struct {
		link model.Link
		want string
	}{
		{model.Link{Kind: "veth", Driver: "veth", Up: true}, "veth"},
		{model.Link{Driver: "ixgbe", Up: true, XDPFeatures: features(0x47)}, "ixgbe, XDP basic+redirect+transmit+transmit-frags"},
		{model.Link{Driver: "r8169", Up: true, XDPFeatures: features(0), VLANStripping: true}, "r8169, no XDP, strips VLAN tags"},
		{model.Link{}, "unknown driver, down"},
	} {
		if got := description(&c.link); got != c.want {
			t.Errorf("%+v is described as %q, want %q", c.link, got, c.want)
		}
	}
}

// A family that Linux does not forward is no loss; another that is not fast is named with its reasons.
func TestFamilies(t *testing.T) {
	slow := func(codes ...reason.Code) (p graph.Path) {
		for _, c := range codes {
			p.Why = append(p.Why, graph.Why{Reason: c, Detail: "detail"})
		}
		return p
	}
	fast := graph.Path{Nodes: []graph.Node{{}}}
	p := graph.Port{Name: "eth0", Index: 7, Hooks: []graph.Hook{graph.TC}, Inputs: []graph.Input{
		{Name: "eth0", IP4: fast, IP6: slow(reason.ForwardingOff)},
		{Name: "eth0.5", IP4: slow(reason.Paused, reason.AFXDP, reason.Paused), IP6: fast},
	}}
	l := model.Link{Index: 7, Name: "eth0", Driver: "ixgbe", Up: true}
	r := device(&l, &p, nil)
	if want := "not all: eth0.5 ip4 paused, " + reason.AFXDP.String(); r.Level != Warn || r.Advice != want || !strings.Contains(r.Text, "would be fast by tc") {
		t.Errorf("%+v, want the advice %q", r, want)
	}
	p.Inputs = p.Inputs[:1]
	if r = device(&l, &p, nil); r.Level != OK || r.Advice != "" {
		t.Errorf("with IPv4 fast and IPv6 not forwarded: %+v", r)
	}
	p.XDP = []graph.Why{{Reason: reason.HookChoice}, {Reason: reason.LinkVLANStripping, Detail: "eth0: ethtool -K eth0 rxvlan off"}}
	if r = device(&l, &p, nil); r.Level != Warn || !strings.HasPrefix(r.Advice, "not at XDP") || !strings.HasSuffix(r.Advice, "(eth0: ethtool -K eth0 rxvlan off)") {
		t.Errorf("a card that is served at tc alone: %+v", r)
	}
	p.XDP = p.XDP[:1]
	if r = device(&l, &p, nil); r.Level != OK || r.Advice != "" {
		t.Errorf("a card that the user wants at tc: %+v", r)
	}
	p.XDP, p.Kind = []graph.Why{{Reason: reason.LinkXDPUnsupported}}, "veth"
	if r = device(&l, &p, nil); r.Level != OK || r.Advice != "" {
		t.Errorf("a veth at tc: %+v", r)
	}
	p = graph.Port{Name: "eth0", Index: 7, Why: slow(reason.Paused).Why}
	if r = device(&l, &p, nil); r.Level != Warn || !strings.HasSuffix(r.Text, "; stays with Linux: paused") || !strings.HasSuffix(r.Advice, "(detail)") {
		t.Errorf("what stays with Linux: %+v", r)
	}
	p = graph.Port{Name: "eth0.5", Index: 7, Via: 2}
	if r = device(&l, &p, nil); r.Level != OK || !strings.HasSuffix(r.Text, "served by the device below") {
		t.Errorf("what the device below serves: %+v", r)
	}
	p = graph.Port{Name: "br0", Index: 7, Why: slow(reason.LinkKind).Why}
	if r = device(&l, &p, []string{"p1", "p2"}); r.Level != OK || !strings.HasSuffix(r.Text, "; its ports carry its packets: p1, p2") {
		t.Errorf("a bridge whose ports are served: %+v", r)
	}
}

// Programs of others are named; shunt's own are not in its own way.
func TestConflicts(t *testing.T) {
	l := model.Link{Name: "eth0", XDP: []model.Program{{ID: 3, Name: "filter", Hook: "xdp"}, {ID: 4, Name: "shunt_stub_xdp", Hook: "xdp", Own: true}},
		TCX: []model.Program{{ID: 5, Name: "shaper", Hook: "tcx-egress"}}, TCFilters: []model.TCFilter{{Kind: "flower", Prio: 9}, {Kind: "bpf", Own: true}}}
	got := conflicts(&l)
	if len(got) != 3 || !has(got, Warn, "eth0", `"filter" (id 3) at xdp`) || !has(got, Warn, "eth0", `"shaper" (id 5) at tcx-egress`) || !has(got, Warn, "eth0", "kind flower, priority 9") {
		t.Errorf("found %v", got)
	}
}

// A real-time kernel that may run two programs on one CPU at once is refused; which version may is known.
func TestOneAtATime(t *testing.T) {
	for release, refused := range map[string]bool{"6.1.0-50-rt-amd64": false, "6.17.9-rt7": false, "6.18.2-rt3": true, "7.0.0-rt1": true, "odd": true} {
		if err := preemptible(release); (err != nil) != refused {
			t.Errorf("%s: %v", release, err)
		}
	}
	if err := oneAtATime(); err != nil {
		t.Errorf("this kernel: %v", err)
	}
}
