// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var startsSection = suite.Section{
	Name:   "starts",
	Title:  "Starting pods",
	Budget: budget(240),
	About: "What the bridge plugin of CNI does for a pod, by the same netlink requests, on a node of a cluster as under \"Pods of two nodes\", kube-proxy's and Flannel's rules included: a namespace, a veth with one end in it, the other made a port of cni0 and set up, " +
		"an address and a route; until the pod has a connection to a server on its node. One node with the daemon and one without take turns; \"start\" is the time that this took, and what shunt adds is the difference of each pair. " +
		"Meanwhile something else asks for a lock that configuring any network takes (RTNL) every half millisecond: \"rtnl\" is the longest time that it waited in a start. " +
		"Then a node that has very many pods gets one more, again and again: \"reaction\" is the longest time from the kernel's first event of a round of the daemon to its effect, as `shunt show events` tells it, of the rounds that this caused.",
	Run: runStarts,
}

const (
	startsCase = "a pod's start"
	manyCase   = "one pod more"
)

// manyPods is how many pods a node has before it gets one more, and how often; starts is how many pods are started on each node.
type startExtent struct{ starts, pods, more int }

var startExtents = map[string]startExtent{"full": {200, 250, 20}, "quick": {20, 60, 5}, "smoke": {2, 4, 2}}

func runStarts(b *suite.Bench) error {
	e := startExtents[b.Size.Name]
	if err := b.Part(startsCase, func() error { return measureStarts(b, e) }); err != nil {
		return err
	}
	return b.Part(manyCase, func() error { return measureMany(b, e) })
}

// nodeWithDaemon is the first node of a cluster without pods, with the daemon as a process where the variant says so.
func nodeWithDaemon(b *suite.Bench, variant string, more func(*lab.NS) error) (*lab.NS, *suite.Daemon, error) {
	c, err := kind{backend: vxlan}.build(b, suite.LinuxGRO)
	if err != nil {
		return nil, nil, err
	}
	node := c.Node(nodes[0])
	if more != nil {
		if err := more(node); err != nil {
			return nil, nil, err
		}
	}
	if variant != shuntAuto {
		return node, nil, nil
	}
	d, err := suite.NewDaemon(b, node)
	if err != nil {
		return nil, nil, err
	}
	return node, d, d.Start("auto")
}

func measureStarts(b *suite.Bench, e startExtent) error {
	watch, err := b.WatchRTNL()
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
		node, _, err := nodeWithDaemon(b, variant, nil)
		if err != nil {
			return err
		}
		s := &suite.Starter{Variant: variant, Host: node, Bridge: "cni0", Gateway: netip.AddrFrom4(podOf(0, 1)), Addr: func(i int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4(podOf(0, 2+i%250)), 24)
		}}
		if err := s.Serve(b); err != nil {
			return err
		}
		turns = append(turns, s.Turn(startsCase, watch))
	}
	return b.Turns(startsCase, e.starts, turns)
}

// measureMany gives a node with many pods one more. The pods' ends are in one namespace, which makes no difference to the node.
func measureMany(b *suite.Bench, e startExtent) error {
	ends, err := lab.NewNS(fmt.Sprintf("bench%d-ends", os.Getpid()))
	if err != nil {
		return err
	}
	b.Later(ends.Delete)
	if err := ends.Shell("for f in all default; do echo 1 >/proc/sys/net/ipv6/conf/$f/disable_ipv6; done"); err != nil { // so many neighbours in one namespace would talk all the time
		return err
	}
	b.Fact("pods before one more", fmt.Sprint(e.pods))
	plug := func(node *lab.NS, from, to int) error {
		var inside, outside strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&outside, "link add v%d mtu %d type veth peer name w%d mtu %[2]d netns %[4]s\nlink set v%[1]d master cni0\nlink set v%[1]d type bridge_slave hairpin on\nlink set v%[1]d up\n", i, podMTU, i, ends.Name)
			fmt.Fprintf(&inside, "link set w%d up\n", i)
		}
		if err := node.Feed(outside.String(), "ip -batch -"); err != nil {
			return err
		}
		return ends.Feed(inside.String(), "ip -batch -")
	}
	node, d, err := nodeWithDaemon(b, shuntAuto, func(node *lab.NS) error { return plug(node, 0, e.pods) })
	if err != nil {
		return err
	}
	if err := d.UntilQuiet(); err != nil {
		return err
	}
	for range e.more {
		for _, plugged := range []bool{true, false} {
			before := time.Now()
			if plugged {
				err = plug(node, e.pods, e.pods+1)
			} else {
				err = node.Exec("ip link delete v%d", e.pods)
			}
			if err != nil {
				return err
			}
			time.Sleep(300 * time.Millisecond)
			took, err := d.Reaction(before)
			if err != nil {
				return err
			}
			if plugged {
				b.Add(manyCase, shuntAuto, "reaction", "ms", took)
			}
		}
	}
	return nil
}
