// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// quieten sets what must be in force before the interface first comes up.
func (p *Port) quieten(e End) error {
	var settings []string
	if e.Wire {
		settings = append(settings, "net/ipv6/conf/%s/disable_ipv6=1", "net/ipv4/conf/%s/arp_ignore=8")
		link, err := p.NS.nl.LinkByIndex(p.Index)
		if err != nil {
			return err
		}
		if err := p.NS.nl.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("switching ARP off: %w", err)
		}
	}
	if e.Quiet {
		for _, s := range []string{"accept_dad=0", "dad_transmits=0", "router_solicitations=0", "accept_ra=0", "autoconf=0"} {
			settings = append(settings, "net/ipv6/conf/%s/"+s)
		}
	}
	for _, s := range settings {
		if err := p.NS.Sysctl(fmt.Sprintf(s, e.Name)); err != nil {
			return err
		}
	}
	if e.NoTxChecksum {
		if err := p.NS.SetOffload(e.Name, TxChecksum, false); err != nil {
			return err
		}
	}
	switch e.Receive {
	case ReceiveGRO:
		return p.NS.SetOffload(e.Name, GRO, true)
	case ReceiveXDP:
		return p.attachPass()
	}
	return nil
}

func (p *Port) bringUp(e End) error {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return err
	}
	if err := p.NS.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	if e.Threaded {
		return p.NS.SetThreaded(e.Name, true)
	}
	return nil
}

// assign gives the end its addresses and neighbours.
func (p *Port) assign(e End) error {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return err
	}
	for _, prefix := range e.Addrs {
		addr := &netlink.Addr{
			IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		}
		if prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := p.NS.nl.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("adding address %s: %w", prefix, err)
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(e.Neighbours), netip.Addr.Compare) {
		mac := e.Neighbours[addr]
		neigh := &netlink.Neigh{LinkIndex: p.Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}
		if err := p.NS.nl.NeighSet(neigh); err != nil {
			return fmt.Errorf("adding neighbour %s: %w", addr, err)
		}
	}
	return nil
}

// settled waits until the end has carrier and its IPv6 addresses are usable, both
// of which the kernel sees to in its own time: before, it drops what is sent, and
// two builds of one topology may differ.
func (p *Port) settled(e End) error {
	if err := p.await("carrier", p.hasCarrier); err != nil || e.Wire {
		return err
	}
	for name, off := range map[string]string{"disable_ipv6": "1", "addr_gen_mode": "1"} {
		value, err := p.NS.ReadSysctl(fmt.Sprintf("net/ipv6/conf/%s/%s", p.Name, name))
		if errors.Is(err, fs.ErrNotExist) || value == off {
			return nil // it will have no link-local address
		}
		if err != nil {
			return err
		}
	}
	return p.await("IPv6 addresses", p.hasIPv6)
}

// await polls for a condition for up to 10 seconds: duplicate address detection
// alone may take two.
func (p *Port) await(what string, done func() (bool, error)) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		ok, err := done()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("no %s after 10 s", what)
		}
	}
}

func (p *Port) hasCarrier() (bool, error) {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return false, err
	}
	return link.Attrs().OperState == netlink.OperUp, nil
}

// hasIPv6 reports whether there is a link-local address and no tentative one.
func (p *Port) hasIPv6() (bool, error) {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return false, err
	}
	addrs, err := p.NS.nl.AddrList(link, netlink.FAMILY_V6)
	if errors.Is(err, netlink.ErrDumpInterrupted) { // by what is being waited for
		return false, nil
	}
	if err != nil {
		return false, err
	}
	local := false
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			return false, nil
		}
		local = local || a.IP.IsLinkLocalUnicast()
	}
	return local, nil
}
