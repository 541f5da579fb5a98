// SPDX-License-Identifier: Apache-2.0

package kstate

import "strings"

// Parts is a set of parts of the Network.
type Parts uint32

// The parts, as they can become out of date independently of each other.
const (
	Links Parts = 1 << iota
	Addrs
	Rules
	Routes
	Netfilter
	Sysctl
	TC
	XDP // XDP and tcx programs: attaching one by a BPF link raises no event; reading it reads all links
	Sockets
	XFRM

	// Lost is a remark and no part: events were lost, and what Wait returns with it was wrong for an unknown time.
	Lost

	// All is every part. Read(All) reads everything anew, whatever the events said.
	All = Lost - 1
)

var partNames = []string{"links", "addrs", "rules", "routes", "netfilter", "sysctl", "tc", "xdp", "sockets", "xfrm", "lost"}

// String lists the parts, joined by "+"; "none" for the empty set.
func (p Parts) String() string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}
