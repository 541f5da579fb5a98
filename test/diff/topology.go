// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// Ports is the number of ports of every twin; a case need not use all of them.
const Ports = 5

// wireMTU is the MTU of the far ends, above any that a case gives the router.
const wireMTU = 9216

// portMAC is the address of the router's port i, hostMAC(i, 0) the one of the wire
// at its other end, and hostMAC(i, n) that of a further host there.
func portMAC(i int) net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0, 0, byte(i + 1), 0x01} }
func hostMAC(i, n int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, 1, byte(i + 1), byte(n + 2)}
}

func portName(i int) string { return fmt.Sprintf("p%d", i) }

// quietSysctls make a router say the same thing each time: no reports or solicitations
// of its own where they can be switched off, no rate limits on what it answers, no
// timers that end within a run.
var quietSysctls = []string{
	"net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_ratemask=0",
	"net.ipv6.icmp.ratelimit=0", "net/ipv6/icmp/ratemask=\n",
	"net.ipv6.auto_flowlabels=0", "net.ipv4.igmp_link_local_mcast_reports=0",
	"net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1",
}

// perDevice are set for every port and, before ports exist, as defaults.
var perDevice = []string{
	"net/ipv6/conf/%s/accept_dad=0", "net/ipv6/conf/%s/dad_transmits=0",
	// MLD reports at once; what it repeats after a time drawn at random comes after the run. Not in its first version, whose reports come back to who is in the group.
	"net/ipv6/conf/%s/mldv2_unsolicited_report_interval=3600000",
	"net/ipv6/conf/%s/router_solicitations=0", "net/ipv6/conf/%s/accept_ra=0", "net/ipv6/conf/%s/autoconf=0",
	"net/ipv4/neigh/%s/retrans_time_ms=60000", "net/ipv6/neigh/%s/retrans_time_ms=60000",
	"net/ipv4/neigh/%s/base_reachable_time_ms=3600000", "net/ipv6/neigh/%s/base_reachable_time_ms=3600000",
	"net/ipv4/neigh/%s/delay_first_probe_time=600", "net/ipv6/neigh/%s/delay_first_probe_time=600",
	"net/ipv4/neigh/%s/locktime=0", "net/ipv6/neigh/%s/locktime=0",
	"net/ipv4/neigh/%s/proxy_delay=0", "net/ipv6/neigh/%s/proxy_delay=0", "net/ipv6/neigh/%s/anycast_delay=0",
	"net/ipv4/conf/%s/rp_filter=0",
}

// topology is one twin: the router "dut" with ports p0 … p4, each a veth whose other
// end w0 … w4 lies in the namespace "wire", where frames are injected and captured.
// Both names and numbers are the same in both twins.
func topology() lab.Topology {
	dut := lab.Node{Name: lab.Dut, Sysctls: append([]string{}, quietSysctls...)}
	t := lab.Topology{Nodes: []lab.Node{{Name: "wire"}}}
	for _, s := range perDevice {
		if !strings.Contains(s, "/neigh/") { // only the first namespace has those as defaults
			dut.Sysctls = append(dut.Sysctls, fmt.Sprintf(s, "default"))
		}
	}
	for i := range Ports {
		for _, s := range perDevice {
			dut.Sysctls = append(dut.Sysctls, fmt.Sprintf(s, portName(i)))
		}
		t.Links = append(t.Links, lab.Link{
			MTU: wireMTU,
			A:   lab.End{Node: lab.Dut, Name: portName(i), MAC: portMAC(i), Receive: lab.ReceiveGRO},
			B:   lab.End{Node: "wire", Name: fmt.Sprintf("w%d", i), MAC: hostMAC(i, 0), Wire: true, Receive: lab.ReceiveXDP},
		})
	}
	t.Nodes = append(t.Nodes, dut)
	return t
}
