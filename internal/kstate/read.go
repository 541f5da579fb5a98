// SPDX-License-Identifier: Apache-2.0

package kstate

import "github.com/shuntnet/shunt/internal/model"

// manyLinks is the number of changed devices from which on one dump is cheaper than a question for each.
const manyLinks = 16

// Read reads the given parts again and returns a new Network that shares all other parts with the one before, and links that are as they were. Links and
// addresses are read for those devices only of which Wait learned, unless p is All. The first Read reads everything.
func (r *Reader) Read(p Parts) (*model.Network, error) {
	if err := r.onThread(); err != nil {
		return nil, err
	}
	whole := p&All == All
	if !r.began {
		whole, p = true, All
	}
	r.began = true
	n := r.last
	r.stale = 0
	if p&XDP != 0 {
		// XDP programs are in the link dump, but attaching one by a BPF link raises no event: all links are read, whichever told of something.
		p |= Links
		clear(r.links)
	}
	links, addrs := r.links, r.addrs
	if whole || len(links) == 0 || len(links) > max(manyLinks, len(n.Links)/8) {
		links = nil
	}
	if whole || len(addrs) == 0 {
		addrs = nil
	}
	if p&Links != 0 {
		r.begin(Links)
		r.readLinks(&n, links)
		r.links = map[int]bool{}
		p |= r.stale
		if p&XDP == 0 && len(r.fresh) > 0 {
			r.readTCX(&n, r.fresh)
		}
		if links != nil {
			for index := range r.fresh { // its switches are watched only now, and may have changed since they were read
				r.markLink(index)
			}
		}
		clear(r.fresh)
	}
	if p&Addrs != 0 {
		r.begin(Addrs)
		r.readAddrs(&n, addrs)
		r.addrs = map[int]bool{}
	}
	for _, part := range []struct {
		p    Parts
		read func(*model.Network)
	}{
		{Rules, r.readRules},
		{Routes, r.readRoutes},
		{Sysctl, r.readSysctl},
		{TC, r.readTC},
		{XDP, func(n *model.Network) { r.readTCX(n, nil) }},
		{Netfilter, r.readNetfilter},
		{XFRM, r.readXFRM},
		{Sockets, r.readSockets},
	} {
		if p&part.p != 0 {
			r.begin(part.p)
			part.read(&n)
		}
	}
	// Routes that need no care are only counted, and their events make no part dirty.
	n.Routes.Count4, n.Routes.Count6 = r.routes.count[model.IP4], r.routes.count[model.IP6]
	n.Faults, n.Unknown = nil, nil
	for part := Parts(1); part < Lost; part <<= 1 {
		n.Faults = append(n.Faults, r.faults[part]...)
		n.Unknown = append(n.Unknown, r.unknown[part]...)
	}
	n.Links = model.Carry(n.Links, r.last.Links)
	r.last, r.read = n, p
	return &n, nil
}

// HasRead is the parts that the last Read read: those that it was asked for, and those that it found out of date.
func (r *Reader) HasRead() Parts { return r.read }

// begin forgets what the last reading of a part had to say.
func (r *Reader) begin(p Parts) {
	delete(r.faults, p)
	delete(r.unknown, p)
}
