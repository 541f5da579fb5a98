// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var startsSection = suite.Section{
	Name:   "starts",
	Title:  "Starting containers",
	Budget: budget(240),
	About: "What the bridge plugin of CNI does for a container, by the same netlink requests: a namespace, a veth with one end in it, the other made a port of the host's bridge and set up, an address and a route; until the container has " +
		"a connection to a server on the host. Hosts track connections and have a rule that asks for their state, as Docker's have. One host with the daemon and one without take turns; \"start\" is the time that this took, and what shunt adds is " +
		"the difference of each pair. Meanwhile something else on the machine asks for a lock that configuring any network takes (RTNL) every half millisecond: \"rtnl\" is the longest time that it waited in a start.",
	Run: runStarts,
}

const startsCase = "a container's start"

// startHost is the commands that make a host of containers.
const startHost = `ip link add br0 type bridge
ip address add 10.88.0.1/16 dev br0
ip link set br0 up
sysctl -qw net.ipv4.ip_forward=1
`

func runStarts(b *suite.Bench) error {
	watch, err := b.WatchRTNL()
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for i, variant := range []string{suite.LinuxGRO, shuntAuto} {
		s, err := newStarter(b, variant, fmt.Sprintf("bench%d-host%d", os.Getpid(), i))
		if err != nil {
			return err
		}
		turns = append(turns, s.Turn(startsCase, watch))
	}
	return b.Turns(startsCase, extents[b.Size.Name].starts, turns)
}

// newStarter makes a host, with a daemon where the variant says so.
func newStarter(b *suite.Bench, variant, name string) (*suite.Starter, error) {
	host, err := lab.NewNS(name)
	if err != nil {
		return nil, err
	}
	b.Later(host.Delete)
	if err := errors.Join(host.Shell(startHost), host.Feed(stateful, "nft -f -")); err != nil {
		return nil, err
	}
	s := &suite.Starter{Variant: variant, Host: host, Bridge: "br0", Gateway: netip.MustParseAddr("10.88.0.1"), Addr: func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, byte(1 + i/200), byte(1 + i%200)}), 16)
	}}
	if err := s.Serve(b); err != nil {
		return nil, err
	}
	if variant == shuntAuto {
		d, err := suite.NewDaemon(b, host)
		if err != nil {
			return nil, err
		}
		if err := d.Start("auto"); err != nil {
			return nil, err
		}
	}
	return s, nil
}
