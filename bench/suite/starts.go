// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/internal/lab"
)

// Starter starts containers on one host, one after the other, by the netlink requests of CNI's bridge plugin.
type Starter struct {
	Variant string
	Host    *lab.NS
	Bridge  string
	Gateway netip.Addr                    // the bridge's address
	Addr    func(number int) netip.Prefix // of a container
	started int
}

// Serve accepts connections on the host until the end of the section.
func (s *Starter) Serve(b *Bench) error {
	return s.Host.Do(func() error {
		l, err := net.Listen("tcp4", s.server())
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

func (s *Starter) server() string { return net.JoinHostPort(s.Gateway.String(), "7000") }

// Turn starts a container: how long that took, and how long somebody else had to wait for RTNL meanwhile, go into the case.
func (s *Starter) Turn(c string, w *RTNL) measure.Turn {
	return measure.Turn{Name: s.Variant, Run: func(set *measure.Set) error {
		w.longest.Store(0)
		took, err := s.start()
		time.Sleep(20 * time.Millisecond) // what its end causes is over before another begins
		set.Add(c, s.Variant, "start", "ms", took.Seconds()*1e3)
		set.Add(c, s.Variant, "rtnl", "ms", time.Duration(w.longest.Load()).Seconds()*1e3)
		return err
	}}
}

// start starts a container, ends it, and gives the time until it had a connection.
func (s *Starter) start() (took time.Duration, err error) {
	s.started++
	began := time.Now()
	c, err := lab.NewNS(fmt.Sprintf("%s-%d", s.Host.Name, s.started))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Delete()) }()
	if err := s.plug(c); err != nil {
		return 0, fmt.Errorf("plugging a container in: %w", err)
	}
	err = c.Do(func() error {
		conn, err := net.DialTimeout("tcp4", s.server(), 5*time.Second)
		if err == nil {
			took = time.Since(began)
			conn.Close()
		}
		return err
	})
	return took, err
}

// plug is what the plugin does.
func (s *Starter) plug(c *lab.NS) error {
	file, err := os.Open(c.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	host, inside := s.Host.Netlink(), c.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("veth%d", s.started)
	if err := host.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(file.Fd())}); err != nil {
		return err
	}
	port, err := host.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	br, err := host.LinkByName(s.Bridge)
	if err != nil {
		return err
	}
	eth, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(s.Addr(s.started).String())
	if err != nil {
		return err
	}
	return errors.Join(host.LinkSetMaster(port, br), host.LinkSetUp(port), inside.AddrAdd(eth, addr), inside.LinkSetUp(eth),
		inside.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: s.Gateway.AsSlice()}))
}

// RTNL is somebody who configures another network all the time.
type RTNL struct{ longest atomic.Int64 }

// WatchRTNL asks for it until the end of the section.
func (b *Bench) WatchRTNL() (*RTNL, error) {
	ns, err := lab.NewNS(fmt.Sprintf("bench%d-rtnl", os.Getpid()))
	if err != nil {
		return nil, err
	}
	b.Later(ns.Delete)
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		return nil, err
	}
	w, stop, ended := &RTNL{}, make(chan struct{}), make(chan error, 1)
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
