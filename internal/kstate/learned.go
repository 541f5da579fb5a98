// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"strconv"
	"strings"
)

// lessons counts the ICMP messages that can have taught Linux something about the way to single destinations: that it takes smaller packets only, or that
// another gateway is better. No event tells of what it keeps of them (exceptions from a route). Lookups of IPv6 are remembered for
// milliseconds, and judge exceptions themselves; what tunnels send is not looked up by programs.
type lessons struct{ unreachable, redirects, tooBig uint64 }

// Learned says whether there were such messages since the last call, and what has to be read again for them. Like Read it belongs to the thread that the
// Reader was opened on.
func (r *Reader) Learned() (something bool, again Parts) {
	var now lessons
	if text, err := r.k.file("/proc/net/snmp"); err == nil {
		now.unreachable, now.redirects = table(text, "Icmp:", "InDestUnreachs"), table(text, "Icmp:", "InRedirects")
	}
	if text, err := r.k.file("/proc/net/snmp6"); err == nil {
		now.tooBig = line(text, "Icmp6InPktTooBigs")
	}
	last := r.lessons
	r.lessons = now
	if now.redirects != last.redirects {
		r.routes.doubt = true // exceptions are read with the routes
	}
	r.paths.doubt = r.paths.doubt || now.unreachable != last.unreachable || now.tooBig != last.tooBig
	if moved := r.underlaysDue(); r.routes.doubt || moved || r.pathsDue() {
		again = Routes
	}
	return now.unreachable != last.unreachable || now.redirects != last.redirects, again
}

// line gives a value of /proc/net/snmp6, where each is in a line of its own; 0 if it is not there.
func line(text, name string) uint64 {
	for l := range strings.Lines(text) {
		if f := strings.Fields(l); len(f) == 2 && f[0] == name {
			return count(f[1])
		}
	}
	return 0
}

// table gives a value of /proc/net/snmp, where a line of names precedes each line of values; 0 if it is not there.
func table(text, prefix, name string) uint64 {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != prefix {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := range min(len(f), len(names)) {
			if names[i] == name {
				return count(f[i])
			}
		}
	}
	return 0
}

func count(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
