// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// namespace reads how Linux is configured here and asks the graph, as the daemon would, what could be fast.
func namespace() []Result {
	f, err := datapath.Probe()
	if err != nil {
		return []Result{{Fail, "programs", err.Error(), ""}}
	}
	out := features(f)
	runtime.LockOSThread() // kstate belongs to one thread
	defer runtime.UnlockOSThread()
	net, err := read()
	if err != nil {
		return append(out, Result{Fail, "configuration", err.Error(), ""})
	}
	out = append(out, another()...)
	out = append(out, whole(net)...)
	g := graph.Build(net, graph.Policy{Hook: "auto", Kernel: f.Kernel()})
	for i := range g.Ports {
		if l := net.Link(g.Ports[i].Index); l != nil && l.Name != "lo" {
			out = append(out, device(l, g.Ports[i], g.Carriers(l.Index)))
			out = append(out, conflicts(l)...)
		}
	}
	return out
}

func read() (*model.Network, error) {
	r, err := kstate.Open(kstate.Options{IsOwn: func(_ uint32, name string) bool { return datapath.OwnName(name) }})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Read(kstate.All)
}

// features are what makes shunt better on newer kernels.
func features(f datapath.Features) (out []Result) {
	if f.Guard() == "off" {
		out = append(out, Result{Warn, "generation guard", "off: programs cannot read kernel memory here",
			"a change takes effect when its event arrives instead of with the next packet; see lockdown"})
	} else if !f.NFTSeq {
		out = append(out, Result{Warn, "generation guard", f.Guard() + ", but nothing counts what changes in chains of nf_tables",
			"a rule in a chain that is there takes effect when its event arrives, within milliseconds, and not with the next packet; Debian 13's kernel has the counter"})
	} else {
		out = append(out, Result{OK, "generation guard", f.Guard(), ""})
	}
	for _, w := range []struct {
		have    bool
		subject string
		without string
		since   string
	}{
		{f.TCX, "tcx", "TC programs are attached by clsact filters", "6.6"},
		{f.XDPFeatures, "XDP features of drivers", "drivers are known by a list of names", "6.3"},
		{f.VethSKB, "XDP on veth", "frames that sockets sent cannot be told apart, so XDP stays off veth", "6.3"},
		{f.SkipNeigh, "lookup without neighbour", "the reverse path check costs a little more", "6.3"},
		{f.FibMark, "lookup by mark", "where rules set marks that routing asks for, packets go to Linux", "6.10"},
	} {
		if w.have {
			out = append(out, Result{OK, w.subject, "supported", ""})
		} else {
			out = append(out, Result{Warn, w.subject, w.without, "Linux " + w.since + " has it"})
		}
	}
	return append(out, generic(datapath.ProbeGeneric()))
}

// generic is about the programs that put a change in force before the one made for it is loaded.
func generic(err error) Result {
	if err != nil {
		return Result{Warn, "generic program", err.Error(), "a change of configuration waits for its own programs to be loaded, some milliseconds for each interface"}
	}
	return Result{OK, "generic program", "supported", ""}
}

// another looks for a shunt in this namespace, by the name that each claims.
func another() []Result {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@shunt"}); errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return []Result{{OK, "daemon", "a shunt runs in this network namespace", ""}}
}

// whole is what concerns the whole namespace.
func whole(net *model.Network) (out []Result) {
	four, six := net.Sysctl.All4.Forwarding, net.Sysctl.All6.Forwarding
	for i := range net.Links {
		four = four || net.Links[i].Conf4.Forwarding
	}
	switch {
	case four && six:
		out = append(out, Result{OK, "forwarding", "IPv4 and IPv6", ""})
	case four:
		out = append(out, Result{OK, "forwarding", "IPv4 only (net.ipv6.conf.all.forwarding = 0)", ""})
	case six:
		out = append(out, Result{OK, "forwarding", "IPv6 only (net.ipv4.ip_forward = 0)", ""})
	default:
		out = append(out, Result{Warn, "forwarding", "Linux does not forward here, so there is nothing to make faster",
			"for a router: sysctl net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"})
	}
	if slices.ContainsFunc(net.Netfilter, func(h model.NFHook) bool { return strings.HasPrefix(h.Function, "0x") }) { // an address, for want of a name
		out = append(out, Result{Warn, "kernel symbols", "the names of functions at netfilter's hooks cannot be read, and this kernel does not list its hooks otherwise (CONFIG_NETFILTER_NETLINK_HOOK)",
			"everything that passes them stays with Linux; start shunt with CAP_SYSLOG, and with the sysctl kernel.kptr_restrict below 2"})
	}
	for _, f := range net.Faults {
		out = append(out, Result{Warn, "configuration", f.Part + " cannot be read: " + f.Err, "what it could touch stays with Linux"})
	}
	return out
}

// device says what a device could do, and whether it would be fast; carriers are the ports that serve it if it is a bridge.
func device(l *model.Link, p *graph.Port, carriers []string) Result {
	r := Result{OK, l.Name, description(l), ""}
	switch {
	case len(p.Hooks) > 0:
		var hooks []string
		for _, h := range p.Hooks {
			hooks = append(hooks, string(h))
		}
		r.Text += "; would be fast by " + strings.Join(hooks, " and ")
		if why := familyWhy(p); why != "" {
			r.Level, r.Advice = Warn, "not all: "+why
		} else if why := p.NotAtXDP(); len(why) > 0 {
			r.Level, r.Advice = Warn, "not at XDP, which would be faster: "+advice(why)
		}
	case p.Via != 0:
		r.Text += "; served by the device below"
	case len(carriers) > 0:
		r.Text += "; its ports carry its packets: " + graph.Some(carriers)
	default:
		r.Level, r.Text, r.Advice = Warn, r.Text+"; stays with Linux: "+names(p.Why), advice(p.Why)
	}
	return r
}

func description(l *model.Link) string {
	parts := []string{l.Kind}
	if l.Kind == "" {
		parts[0] = l.Driver
	}
	if parts[0] == "" {
		parts[0] = "unknown driver"
	}
	switch {
	case l.XDPFeatures == nil:
	case *l.XDPFeatures == 0:
		parts = append(parts, "no XDP")
	default:
		parts = append(parts, "XDP "+xdpNames(*l.XDPFeatures))
	}
	if l.VLANStripping {
		parts = append(parts, "strips VLAN tags")
	}
	if !l.Up {
		parts = append(parts, "down")
	}
	return strings.Join(parts, ", ")
}

// xdpNames are the bits of enum netdev_xdp_act (include/uapi/linux/netdev.h).
func xdpNames(bits uint64) string {
	var out []string
	for i, name := range []string{"basic", "redirect", "transmit", "zero-copy", "hardware", "frags", "transmit-frags"} {
		if bits&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, "+")
}

// familyWhy names the reasons of the paths that are not fast, leaving out families that Linux does not forward.
func familyWhy(p *graph.Port) string {
	var all []string
	for _, in := range p.Inputs {
		for family, path := range map[string]graph.Path{"ip4": in.IP4, "ip6": in.IP6} {
			if path.Fast() || slices.ContainsFunc(path.Why, func(w graph.Why) bool { return w.Reason == reason.ForwardingOff }) {
				continue
			}
			all = append(all, in.Name+" "+family+" "+names(path.Why))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func names(why []graph.Why) string {
	var out []string
	for _, w := range why {
		if n := w.Reason.String(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

// advice is the first reason's sentence with the object that it speaks of.
func advice(why []graph.Why) string {
	if len(why) == 0 {
		return ""
	}
	return strings.TrimSuffix(why[0].Reason.Describe().Doc, ".") + " (" + why[0].Detail + ")"
}

// conflicts are programs and sockets of others on a device.
func conflicts(l *model.Link) (out []Result) {
	for _, p := range slices.Concat(l.XDP, l.TCX) {
		if !p.Own {
			out = append(out, Result{Warn, l.Name, fmt.Sprintf("foreign program %q (id %d) at %s", p.Name, p.ID, p.Hook), "it is respected; what it could change stays with Linux"})
		}
	}
	for _, f := range l.TCFilters {
		if !f.Own {
			out = append(out, Result{Warn, l.Name, fmt.Sprintf("tc filter of kind %s, priority %d", f.Kind, f.Prio), "it is respected; packets that it could meet stay with Linux"})
		}
	}
	return out
}
