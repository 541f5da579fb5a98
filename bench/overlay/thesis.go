// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var thesisSection = suite.Section{
	Name:   "thesis",
	Title:  "Docker of two hosts, joined by hand",
	Budget: budget(420),
	About: "As in the thesis's multi-host Docker (figures 4-11 and 4-12): two hosts with a bridge for each of two tenants, whose networks have the same addresses; a VXLAN device, made with `ip link add … type vxlan` and a port of the bridge, joins each tenant's bridges, " +
		"and the tenants are told apart by its network's number. br_netfilter and connection tracking are on, as dockerd sets them. Both hosts have 0 to 900 filter rules for what is forwarded, of which the last alone matches, in front of a policy that drops. " +
		"Containers of one tenant talk, both ends on one CPU; \"two tenants\" are a pair of each at once, on two CPUs, with the rates of both together; \"limited\" holds both ends to 70 % of their CPU by a control group, and with them what the kernel does on their behalf, but not what " +
		"its softirq threads take over.",
	Run: runThesis,
}

// thesisExtent is how much of it is measured at a size.
type thesisExtent struct {
	rules  []int
	rounds int
}

var thesisExtents = map[string]thesisExtent{
	"full":  {[]int{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}, 3},
	"quick": {[]int{0, 900}, 2},
	"smoke": {[]int{10}, 1},
}

const (
	tenants  = 2
	cpuShare = 0.7
)

// dockers is two hosts as the thesis has them, without shunt or with.
type dockers struct {
	*lab.Net
	variant string
}

func containerName(host, tenant int) string { return fmt.Sprintf("c%d-%d", host, tenant) }

// containerOf is a container's address, the same for every tenant.
func containerOf(host int) [4]byte { return [4]byte{10, 5, 0, byte(2 + host)} }

func dockersTopology() (t lab.Topology) {
	at := func(i int) []netip.Prefix {
		return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24)}
	}
	for i, name := range nodes {
		t.Nodes = append(t.Nodes, lab.Node{Name: name, Sysctls: []string{"net.ipv4.ip_forward=1"}})
		for tenant := range tenants {
			c := containerName(i, tenant)
			t.Nodes = append(t.Nodes, lab.Node{Name: c})
			t.Links = append(t.Links, lab.Link{MTU: podMTU,
				A: lab.End{Node: c, Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(containerOf(i)), 24)}},
				B: lab.End{Node: name, Name: "veth-" + c, Quiet: true, Receive: lab.ReceiveGRO},
			})
		}
	}
	t.Links = append(t.Links, lab.Link{
		A: lab.End{Node: nodes[0], Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(0)},
		B: lab.End{Node: nodes[1], Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(1)},
	})
	return t
}

// tenantLinks are a host's bridges and tunnels, as `ip -batch` takes them.
func tenantLinks(host int) string {
	var b strings.Builder
	for t := range tenants {
		fmt.Fprintf(&b, `link add br%[1]d mtu %[2]d type bridge
link add vx%[1]d mtu %[2]d type vxlan id %[3]d local 192.0.2.%[4]d remote 192.0.2.%[5]d dev eth0 dstport 4789
link set vx%[1]d master br%[1]d
link set veth-%[6]s master br%[1]d
link set vx%[1]d up
link set br%[1]d up
`, t, podMTU, 10*(1+t), host+1, 2-host, containerName(host, t))
	}
	return b.String()
}

// matchLast are rules of which the last one matches, and connection tracking, as iptables-restore takes them.
func matchLast(rules int) string {
	var b strings.Builder
	policy := "ACCEPT"
	if rules > 0 {
		policy = "DROP"
	}
	fmt.Fprintf(&b, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD %s [0:0]\n:OUTPUT ACCEPT [0:0]\n", policy)
	for i := range rules - 1 {
		fmt.Fprintf(&b, "-A FORWARD -s 192.168.%d.%d -p tcp -m tcp --dport %d -j DROP\n", i/250, 1+i%250, 20000+i)
	}
	if rules > 0 {
		b.WriteString("-A FORWARD -s 10.5.0.0/24 -p tcp -j ACCEPT\n")
	}
	b.WriteString("COMMIT\n*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.5.0.0/24 ! -d 10.5.0.0/24 -j MASQUERADE\nCOMMIT\n")
	return b.String()
}

func buildDockers(b *suite.Bench, variant string, rules int) (*dockers, error) {
	n, err := lab.Build(lab.UniquePrefix("bench"), dockersTopology())
	if err != nil {
		return nil, fmt.Errorf("building hosts: %w", err)
	}
	b.Later(n.Close)
	for i, name := range nodes {
		host := n.Node(name)
		if err := errors.Join(host.Sysctl("net.bridge.bridge-nf-call-iptables=1"), host.Feed(tenantLinks(i), "ip -batch -"), host.Feed(matchLast(rules), "iptables-nft-restore")); err != nil {
			return nil, err
		}
		if variant != shuntAuto {
			continue
		}
		if _, err := b.StartEngine(host, graph.Policy{Hook: "auto"}); err != nil {
			return nil, err
		}
	}
	return &dockers{n, variant}, nil
}

// lane is containers of both hosts; pair i is those of tenant i.
func (d *dockers) lane() *suite.SocketLane {
	return &suite.SocketLane{Net: d.Net, Variant: d.variant, Ends: func(tenant int) (client, server suite.Endpoint) {
		end := func(host int) suite.Endpoint {
			return suite.Endpoint{NS: d.Node(containerName(host, tenant)), Addr: containerOf(host)}
		}
		return end(0), end(1)
	}}
}

func runThesis(b *suite.Bench) error {
	e := thesisExtents[b.Size.Name]
	for _, n := range e.rules {
		name := fmt.Sprintf("%d rules", n)
		if err := b.Part(name, func() error { return measureThesis(b, name, n, e.rounds) }); err != nil {
			return err
		}
	}
	return nil
}

func measureThesis(b *suite.Bench, name string, rules, rounds int) error {
	limit, err := b.NewLimit(cpuShare)
	if err != nil && !b.Without("a limit of CPU time", err) {
		return err
	}
	var alone, together, bulk []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
		d, err := buildDockers(b, variant, rules)
		if err != nil {
			return err
		}
		free := d.lane()
		trips := func(c string, seats ...suite.Seat) measure.Turn {
			return measure.Turn{Name: variant + ", " + c, Run: func(set *measure.Set) error {
				talked, err := b.Talk("tcp", 1, seats...)
				if err != nil {
					return err
				}
				suite.AddLatency(set, c, variant, measure.Of(talked.Times), talked.Rate)
				return nil
			}}
		}
		alone = append(alone, trips(name+": tcp round trips", seat(b, free, "tcp", b.DutCPU)))
		together = append(together, trips(name+", two tenants: tcp round trips", seat(b, free, "tcp", b.DutCPU), seat(b, free.Pair(1), "tcp", b.GenCPU)))
		bulk = append(bulk, streamTurn(b, name, free))
		if limit != nil {
			held := free.Limited(limit)
			alone = append(alone, trips(name+", limited: tcp round trips", seat(b, held, "tcp", b.DutCPU)))
			bulk = append(bulk, streamTurn(b, name+", limited", held))
		}
	}
	return b.Turns(name, rounds, append(append(alone, together...), bulk...))
}
