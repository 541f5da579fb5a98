// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// The addresses of virtual services at the router, whose one real server is the server, by translation.
const serviceAddr, serviceAddr6 = "10.0.0.100", "fd00:0:0:1::100"

// A client of virtual services (IPVS) is served as if shunt were not there, with connection tracking for it and without; the hooks of IPVS are named, and what passes them is Linux's. Without services all is fast again.
func TestVirtualServices(t *testing.T) {
	if _, err := exec.LookPath("ipvsadm"); err != nil && os.Getenv("SHUNT_VM") == "" {
		t.Skip("no ipvsadm here (apt-get install ipvsadm)")
	}
	hasAll(t, "IPVS (Linux 2.6, CONFIG_IP_VS)", "ipvsadm -Ln")
	for _, tracked := range []bool{false, true} {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprintf("%s, conntrack=%v", network, tracked), func(t *testing.T) {
				eachHook(t, natTable, func(r *tracker, m *remarks) {
					r.balance(network, tracked)
					conn, other := r.dialTo(network, serviceAddr, clientAddr, 4050), r.dialTo(network, serviceAddr6, clientAddr6, 4051)
					plain := r.dial(network, clientAddr, 4052)
					for _, c := range []net.Conn{conn, other, plain} {
						r.echo(c, []byte("x"), 30)
						r.echo(c, bytes.Repeat([]byte("bulk"), 300), 10)
					}
					m.note("service", r, 4050)
					m.note("service, IPv6", r, 4051)
					m.list = append(m.list, r.virtual()...)
					r.says("netfilter:unknown", "ip_vs")
					m.list = append(m.list, fmt.Sprintf("%d fast packets", r.fast()))
					for _, c := range []net.Conn{conn, other} {
						c.Close()
					}
					m.note("closed", r, 4050)
					m.list = append(m.list, r.virtual()...)
				})
			})
		}
	}
}

// balance sets the services up.
func (r *tracker) balance(network string, tracked bool) {
	r.Helper()
	kind := map[string]string{"tcp": "-t", "udp": "-u"}[network]
	r.exec(fmt.Sprintf(`ip addr add %[2]s/32 dev p0
		ip addr add %[3]s/128 dev p0 nodad
		ipvsadm -A %[1]s %[2]s:7 -s rr
		ipvsadm -A %[1]s [%[3]s]:7 -s rr
		sysctl -qw net.ipv4.vs.conntrack=%[6]d
		ipvsadm -a %[1]s %[2]s:7 -r %[4]s:7 -m
		ipvsadm -a %[1]s [%[3]s]:7 -r [%[5]s]:7 -m`, kind, serviceAddr, serviceAddr6, serverAddr, serverAddr6, map[bool]int{true: 1}[tracked]))
	if r.engine == nil {
		return
	}
	for end := time.Now().Add(patience); !strings.Contains(r.engine.State().Graph.Text(), "ip_vs"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.says("ip_vs")
			return
		}
	}
}

// virtual lists the connections that IPVS keeps, without their timers.
func (r *tracker) virtual() (out []string) {
	r.Helper()
	text, err := r.net.Node("dut").Output("ipvsadm -Lnc")
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && (f[0] == "TCP" || f[0] == "UDP") {
			out = append(out, strings.Join(append(f[:1], f[2:]...), " "))
		}
	}
	slices.Sort(out)
	return out
}
