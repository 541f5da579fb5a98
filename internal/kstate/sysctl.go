// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
)

// sysctlFiles are the namespace-wide switches, below /proc/sys/net. Those of a device come with its link message.
var sysctlFiles = func() []string {
	files := []string{
		"ipv4/fib_multipath_hash_policy", "ipv4/fib_multipath_hash_seed", "ipv4/fib_multipath_use_neigh", "ipv4/ip_forward_use_pmtu", "ipv4/ip_forward_update_priority",
		"ipv4/ip_early_demux", "ipv4/tcp_early_demux", "ipv4/udp_early_demux", "ipv4/fib_notify_on_flag_change",
		"ipv6/fib_multipath_hash_policy", "ipv6/fib_notify_on_flag_change",
		"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables", "bridge/bridge-nf-call-arptables",
		"netfilter/nf_hooks_lwtunnel",
	}
	for _, dev := range []string{"all", "default"} {
		for _, f := range conf4Files {
			files = append(files, "ipv4/conf/"+dev+"/"+f)
		}
	}
	for _, f := range conf6Files {
		files = append(files, "ipv6/conf/all/"+f)
	}
	return files
}()

var conf4Files = []string{"forwarding", "rp_filter", "accept_local", "src_valid_mark", "send_redirects", "accept_redirects", "route_localnet", "bc_forwarding",
	"proxy_arp", "proxy_arp_pvlan", "ignore_routes_with_linkdown", "disable_policy", "disable_xfrm"}

var conf6Files = []string{"disable_ipv6", "forwarding", "proxy_ndp", "accept_source_route", "seg6_enabled", "ioam6_enabled",
	"disable_policy", "ignore_routes_with_linkdown", "force_forwarding"}

// unmodelled are switches that change what happens to forwarded packets and that nothing after this package looks at, with
// the value at which they do nothing.
var unmodelled = map[string]string{
	"netfilter/nf_hooks_lwtunnel": "0",
}

// errHidden is why a switch is missing that every kernel has: it may be at any value.
var errHidden = errors.New("every kernel has this switch; is something mounted over /proc/sys?")

// ofEveryKernel says whether a file is one of those that are there since before the first kernel that shunt runs on.
func ofEveryKernel(file string) bool { return strings.HasPrefix(file, "ipv4/conf/") }

// readSysctl reads the switches; a file that is missing is a switch that the kernel does not have, unless all have it.
func (r *Reader) readSysctl(n *model.Network) {
	s := model.Sysctl{Values: make(map[string]string, len(sysctlFiles))}
	hidden := false
	for _, f := range sysctlFiles {
		v, err := r.k.file("/proc/sys/net/" + f)
		if err == nil && v == "" || errors.Is(err, os.ErrNotExist) && ofEveryKernel(f) {
			err = errHidden
		}
		switch {
		case err == nil:
			s.Values[f] = v
		case errors.Is(err, errHidden) && hidden: // it is said once
		case errors.Is(err, errHidden):
			r.fault(Sysctl, "/proc/sys/net/"+f, err)
			hidden = true
		case !errors.Is(err, os.ErrNotExist):
			r.fault(Sysctl, "/proc/sys/net/"+f, err)
		}
		if want, ok := unmodelled[f]; ok && err == nil && v != want {
			s.Changed = append(s.Changed, model.Unknown{Where: "sysctl net." + strings.ReplaceAll(f, "/", "."), What: v})
		}
	}
	num := func(f string) int {
		v, err := strconv.Atoi(s.Values[f])
		if err != nil && s.Values[f] != "" {
			s.Changed = append(s.Changed, model.Unknown{Where: "sysctl " + f, What: s.Values[f]})
		}
		return v
	}
	is := func(f string) bool { return num(f) != 0 }
	s.All4, s.Default4 = conf4Of(is, num, "all"), conf4Of(is, num, "default")
	const all6 = "ipv6/conf/all/"
	_, present6 := s.Values[all6+"forwarding"]
	s.All6 = model.Conf6{
		Present: present6, Disabled: is(all6 + "disable_ipv6"), Forwarding: is(all6 + "forwarding"), ForceForwarding: is(all6 + "force_forwarding"),
		ProxyNDP: is(all6 + "proxy_ndp"), AcceptSourceRoute: num(all6 + "accept_source_route"), Seg6Enabled: is(all6 + "seg6_enabled"),
		IOAM6Enabled: is(all6 + "ioam6_enabled"), DisablePolicy: is(all6 + "disable_policy"), IgnoreLinkdown: is(all6 + "ignore_routes_with_linkdown"),
	}
	s.HashPolicy4, s.HashPolicy6 = uint8(num("ipv4/fib_multipath_hash_policy")), uint8(num("ipv6/fib_multipath_hash_policy"))
	s.UseNeigh4 = is("ipv4/fib_multipath_use_neigh")
	s.ForwardUsePMTU, s.UpdatePriority = is("ipv4/ip_forward_use_pmtu"), is("ipv4/ip_forward_update_priority")
	s.EarlyDemux = is("ipv4/ip_early_demux")
	s.FibNotifyOnFlag = is("ipv4/fib_notify_on_flag_change") || is("ipv6/fib_notify_on_flag_change")
	s.BridgeCall4, s.BridgeCall6 = is("bridge/bridge-nf-call-iptables"), is("bridge/bridge-nf-call-ip6tables")
	n.Sysctl = s
}

func conf4Of(is func(string) bool, num func(string) int, dev string) model.Conf4 {
	p := "ipv4/conf/" + dev + "/"
	return model.Conf4{
		Present: true, Forwarding: is(p + "forwarding"), RPFilter: uint8(num(p + "rp_filter")), AcceptLocal: is(p + "accept_local"),
		SrcValidMark: is(p + "src_valid_mark"), SendRedirects: is(p + "send_redirects"), AcceptRedirects: is(p + "accept_redirects"), RouteLocalnet: is(p + "route_localnet"),
		BCForwarding: is(p + "bc_forwarding"), ProxyARP: is(p+"proxy_arp") || is(p+"proxy_arp_pvlan"),
		IgnoreLinkdown: is(p + "ignore_routes_with_linkdown"), DisablePolicy: is(p + "disable_policy"), DisableXFRM: is(p + "disable_xfrm"),
	}
}
