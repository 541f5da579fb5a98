// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// paths is what Linux learned of the paths to single destinations: that they take smaller packets than the device does. It keeps that as exceptions from routes, for ten minutes
// each (mtu_expires), and tells nobody. It matters to what tunnels send, whose route programs do not look up.
type paths struct {
	doubt bool // there were messages that may have taught something
	mtu4  uint32
	mtu6  uint32 // the least of any path, bytes; 0 if none was learned
	read  time.Time
	cost  time.Duration // of that reading
}

// pathsRest is how often what was learned is looked at, until it is forgotten. Anybody can send ICMP, and the kernel walks all its routes for what it learned: the reading takes one part of
// the time in pathsShare at most.
const (
	pathsRest  = 10 * time.Second
	pathsShare = 100
)

// pathsDue says whether they have to be read, for tunnels that were there at the last Read.
func (r *Reader) pathsDue() bool {
	p := &r.paths
	if r.now().Sub(p.read) < pathsShare*p.cost {
		return false
	}
	return tunnels(&r.last) && (p.doubt || (p.mtu4 != 0 || p.mtu6 != 0) && r.now().Sub(p.read) > pathsRest)
}

func tunnels(n *model.Network) bool {
	return slices.ContainsFunc(n.Links, func(l *model.Link) bool { return l.Kind == "vxlan" })
}

// readPaths reads exceptions where a tunnel may care.
func (r *Reader) readPaths(n *model.Network) {
	p := &r.paths
	switch {
	case !tunnels(n):
		*p = paths{doubt: p.doubt || p.mtu4 != 0 || p.mtu6 != 0} // one that is made later finds what there is
	case p.doubt && p.read.IsZero() || r.pathsDue():
		start := r.now()
		p.mtu4, p.mtu6 = r.leastPath(unix.AF_INET), r.leastPath(unix.AF_INET6)
		p.doubt, p.read, p.cost = false, start, r.now().Sub(start)
	}
	n.Routes.Path4, n.Routes.Path6 = p.mtu4, p.mtu6
}

func (r *Reader) leastPath(family byte) (mtu uint32) {
	r.exceptions(family, func() { mtu = 0 }, func(rt *rawRoute) {
		if rt.MTU != 0 && (mtu == 0 || rt.MTU < mtu) {
			mtu = rt.MTU
		}
	})
	return mtu
}
