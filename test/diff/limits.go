// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// limit is a kind of message that the kernel limits by the clock, for each destination, with switches that exist only in the
// first network namespace (net.ipv4.route.error_cost, redirect_load …): how many are sent depends on how fast the rig is.
type limit int

const (
	none     limit = iota
	redirect       // ICMP and ICMPv6 redirects
	refusal        // ip_error(): no route, unreachable and prohibit routes
)

func limited(f []byte, own *addresses) limit {
	if inner, _ := unwrap(f); inner != nil {
		return limited(inner, own)
	}
	h, ok := readIP(f)
	if !ok || !own.has(h.src) || h.l4+1 >= len(f) {
		return none
	}
	switch t := h.icmpType(f); {
	case h.version == 4 && t == 5, h.version == 6 && t == 137:
		return redirect
	case h.version == 4 && t == 3 && (f[h.l4+1] == 0 || f[h.l4+1] == 1 || f[h.l4+1] == 13):
		return refusal
	}
	return none
}

// limitedTo is what a twin sent of such messages to one destination during a whole case.
type limitedTo struct {
	redirects bool
	refusals  [][]byte
}

type limits map[netip.Addr]*limitedTo

func (l limits) add(out *output, own *addresses) {
	for i := range Ports {
		for _, f := range out[i] {
			kind := limited(f, own)
			if kind == none {
				continue
			}
			if inner, _ := unwrap(f); inner != nil {
				f = inner
			}
			h, _ := readIP(f)
			if l[h.dst] == nil {
				l[h.dst] = &limitedTo{}
			}
			if kind == redirect {
				l[h.dst].redirects = true
			} else {
				l[h.dst].refusals = append(l[h.dst].refusals, normalise(f, own))
			}
		}
	}
}

func (l limits) to(a netip.Addr) limitedTo {
	if l[a] == nil {
		return limitedTo{}
	}
	return *l[a]
}

// sent counts those packets of a case that may use up an allowance, by the two addresses that allowances are kept for: the source, which messages
// go to, and for IPv6 redirects the destination too. Those are all that Linux did not simply forward by another port: some have no message, but use up as much.
type sent struct {
	of     map[netip.Addr]int
	toward map[netip.Addr]map[netip.Addr]bool // destinations by source
}

func newSent() *sent {
	return &sent{of: map[netip.Addr]int{}, toward: map[netip.Addr]map[netip.Addr]bool{}}
}

func (s *sent) add(packets []Packet, linux *output) {
	exits := map[string]int{}
	for i := range Ports {
		for _, f := range linux[i] {
			if inner, _ := unwrap(f); inner != nil {
				f = inner
			}
			exits[packetOf(f)] = i
		}
	}
	for _, p := range packets {
		if inner, _ := unwrap(p.Frame); inner != nil {
			p.Frame = inner
		}
		h, ok := readIP(p.Frame)
		if !ok {
			continue
		}
		if plain(p) {
			if port, out := exits[forwarded(p)]; out && port != p.Port {
				continue
			}
		}
		s.of[h.src]++
		s.of[h.dst]++
		if s.toward[h.src] == nil {
			s.toward[h.src] = map[netip.Addr]bool{}
		}
		s.toward[h.src][h.dst] = true
	}
}

// sure is how many messages the kernel lets through at once whatever the clock says: ip_rt_error_burst is five seconds' worth, IPv6 allows six.
const sure = 4

// isSure says whether the packets of a case cannot have used up what a source may be told.
func (s *sent) isSure(src netip.Addr) bool {
	if s.of[src] > sure {
		return false
	}
	for dst := range s.toward[src] {
		if dst.Is6() && s.of[dst] > sure {
			return false
		}
	}
	return true
}

// fromOwn counts the packets of sources that are the router's own IPv4 addresses, where the clock decides which of them are answered.
func (s *sent) fromOwn(own *addresses) (n uint64) {
	for src := range s.toward {
		if src.Is4() && own.has(src) && !s.isSure(src) {
			n += uint64(s.of[src])
		}
	}
	return n
}

// compareLimits compares what does not depend on the clock. What the few packets of one source led to is compared one by one, unless it was told of
// both: the two kinds share an IPv4 allowance. Of other sources, a kind of message is compared as a whole: it must not be missing altogether in one
// twin, unless that one sent the other kind instead.
func compareLimits(a, b limits, s *sent) []string {
	var diffs []string
	for _, v6 := range []bool{false, true} {
		var many [2]limitedTo
		for _, dst := range a.destinations(b, v6) {
			x, y := a.to(dst), b.to(dst)
			both := (x.redirects || y.redirects) && len(x.refusals)+len(y.refusals) > 0
			switch {
			case both || !s.isSure(dst):
				many[0].merge(x)
				many[1].merge(y)
			case x.redirects != y.redirects:
				diffs = append(diffs, fmt.Sprintf("messages to %s: redirects from Linux %v, beside shunt %v", dst, x.redirects, y.redirects))
			case !slices.EqualFunc(x.refusals, y.refusals, bytes.Equal):
				diffs = append(diffs, fmt.Sprintf("messages to %s: refusals differ:\n  Linux: %s\n  shunt: %s", dst, described(x.refusals), described(y.refusals)))
			}
		}
		for i, name := range []string{"Linux", "shunt"} {
			one, other := many[i], many[1-i]
			if one.redirects && !other.redirects && len(other.refusals) == 0 {
				diffs = append(diffs, fmt.Sprintf("redirects (IPv6: %v) from %s only", v6, name))
			}
			if len(one.refusals) > 0 && len(other.refusals) == 0 && !other.redirects {
				diffs = append(diffs, fmt.Sprintf("refusals from %s only: %s", name, described(one.refusals)))
			}
		}
	}
	return diffs
}

// destinations are all of a family that either twin sent messages to.
func (l limits) destinations(o limits, v6 bool) []netip.Addr {
	all := maps.Clone(l)
	maps.Copy(all, o)
	maps.DeleteFunc(all, func(a netip.Addr, _ *limitedTo) bool { return a.Is6() != v6 })
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

func (l *limitedTo) merge(o limitedTo) {
	l.redirects = l.redirects || o.redirects
	l.refusals = slices.Concat(l.refusals, o.refusals)
}

func described(frames [][]byte) (out []string) {
	for _, f := range frames {
		out = append(out, fmt.Sprintf("%s [%x]", lab.Describe(f), f[min(len(f), 42):min(len(f), 82)]))
	}
	return out
}
