// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

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

// starter starts containers on one host, one after the other.
type starter struct {
	variant string
	host    *lab.NS
	started int
}

func runStarts(b *suite.Bench) error {
	watch, err := watchRTNL(b)
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for i, variant := range []string{suite.LinuxGRO, shuntAuto} {
		s, err := newStarter(b, variant, fmt.Sprintf("bench%d-host%d", os.Getpid(), i))
		if err != nil {
			return err
		}
		turns = append(turns, measure.Turn{Name: variant, Run: func(set *measure.Set) error {
			watch.longest.Store(0)
			took, err := s.start()
			time.Sleep(20 * time.Millisecond) // what its end causes is over before another begins
			set.Add(startsCase, variant, "start", "ms", took.Seconds()*1e3)
			set.Add(startsCase, variant, "rtnl", "ms", time.Duration(watch.longest.Load()).Seconds()*1e3)
			return err
		}})
	}
	return b.Turns(startsCase, extents[b.Size.Name].starts, turns)
}

// newStarter makes a host, with a daemon where the variant says so.
func newStarter(b *suite.Bench, variant, name string) (*starter, error) {
	host, err := lab.NewNS(name)
	if err != nil {
		return nil, err
	}
	b.Later(host.Delete)
	if err := errors.Join(host.Shell(startHost), host.Feed(stateful, "nft -f -")); err != nil {
		return nil, err
	}
	if err := serve(b, host); err != nil {
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
	return &starter{variant: variant, host: host}, nil
}

// serve accepts connections at the bridge's address.
func serve(b *suite.Bench, host *lab.NS) error {
	return host.Do(func() error {
		l, err := net.Listen("tcp4", "10.88.0.1:7000")
		if err != nil {
			return fmt.Errorf("listening on the host: %w", err)
		}
		b.Later(l.Close)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		return nil
	})
}

// start starts a container, ends it, and gives the time until it had a connection.
func (s *starter) start() (took time.Duration, err error) {
	s.started++
	began := time.Now()
	c, err := lab.NewNS(fmt.Sprintf("%s-%d", s.host.Name, s.started))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Delete()) }()
	if err := s.plug(c); err != nil {
		return 0, fmt.Errorf("plugging a container in: %w", err)
	}
	err = c.Do(func() error {
		conn, err := net.DialTimeout("tcp4", "10.88.0.1:7000", 5*time.Second)
		if err == nil {
			took = time.Since(began)
			conn.Close()
		}
		return err
	})
	return took, err
}

// plug is what the plugin does.
func (s *starter) plug(c *lab.NS) error {
	file, err := os.Open(c.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	host, inside := s.host.Netlink(), c.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("veth%d", s.started)
	if err := host.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(file.Fd())}); err != nil {
		return err
	}
	port, err := host.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	br, err := host.LinkByName("br0")
	if err != nil {
		return err
	}
	eth, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(fmt.Sprintf("10.88.%d.%d/16", 1+s.started/200, 1+s.started%200))
	if err != nil {
		return err
	}
	return errors.Join(host.LinkSetMaster(port, br), host.LinkSetUp(port), inside.AddrAdd(eth, addr), inside.LinkSetUp(eth),
		inside.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.IPv4(10, 88, 0, 1)}))
}

// rtnl is somebody who configures another network all the time.
type rtnl struct{ longest atomic.Int64 }

// watchRTNL does so until the end of the section.
func watchRTNL(b *suite.Bench) (*rtnl, error) {
	ns, err := lab.NewNS(fmt.Sprintf("bench%d-rtnl", os.Getpid()))
	if err != nil {
		return nil, err
	}
	b.Later(ns.Delete)
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		return nil, err
	}
	w, stop, ended := &rtnl{}, make(chan struct{}), make(chan error, 1)
	b.Later(func() error { close(stop); return <-ended })
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(500 * time.Microsecond):
			}
			asked := time.Now()
			if err := ns.Netlink().LinkSetAlias(lo, fmt.Sprint(i%2)); err != nil {
				<-stop
				ended <- fmt.Errorf("asking for RTNL: %w", err)
				return
			}
			w.longest.Store(max(w.longest.Load(), int64(time.Since(asked))))
		}
	}()
	return w, nil
}
