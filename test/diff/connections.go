// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// connection is what Linux says of one, but for its addresses.
type connection struct {
	state   string // of TCP, else ""
	timeout int    // seconds
}

// connections are a twin's entries by everything about them that does not move by itself: protocol, addresses, whether answered and assured, mark, zone.
type connections map[string]connection

var (
	connLine = regexp.MustCompile(`^ipv[46] +\d+ +(\w+) +\d+ +(\d+) +(?:([A-Z_0-9]+) +)?(\S+=.*)$`)
	connUse  = regexp.MustCompile(` (?:use|delta-time)=\d+`)
)

// connections reads the table; one that is not there has no entries.
func (t *twin) connections() (connections, error) {
	var text []byte
	err := t.dut.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/nf_conntrack")
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the connections: %w", err)
	}
	out := connections{}
	for line := range strings.Lines(string(text)) {
		m := connLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("reading the connections: cannot read %q", line)
		}
		timeout, _ := strconv.Atoi(m[2])
		out[m[1]+" "+connUse.ReplaceAllString(m[4], "")] = connection{m[3], timeout}
	}
	return out, nil
}

// soon is how many seconds an entry's timeout may differ by: the twins go side by side, not in step, and a fast connection's is extended once a second.
const soon = 4

// tunnelled are the entries of packets that a router put into a tunnel and nobody answered. Some are of what it says by itself, reports of groups above all, at a time of its
// own, with a source port by what is inside: such messages are left out where frames are compared, too. What it forwards into a tunnel is compared there, with its source port.
var tunnelled = regexp.MustCompile(fmt.Sprintf(`^udp src=\S+ dst=\S+ sport=\d+ dport=(?:%d|%d) \[UNREPLIED\] `, vxlanPort, flannelPort))

// compareConnections lists the differences between the twins' connections, beyond those that docs/deviations.md names.
func compareConnections(a, b connections) (diffs []string) {
	for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
		x, inLinux := a[key]
		y, beside := b[key]
		switch {
		case inLinux != beside && tunnelled.MatchString(key):
		case !inLinux && y.timeout > soon:
			diffs = append(diffs, fmt.Sprintf("connection %s: none in Linux, beside shunt %s, %d s", key, y.state, y.timeout))
		case !beside && x.timeout > soon:
			diffs = append(diffs, fmt.Sprintf("connection %s: in Linux %s, %d s, none beside shunt", key, x.state, x.timeout))
		case inLinux && beside && !x.like(y):
			diffs = append(diffs, fmt.Sprintf("connection %s: in Linux %s, %d s, beside shunt %s, %d s", key, x.state, x.timeout, y.state, y.timeout))
		}
	}
	return diffs
}

// like says whether a connection beside shunt is what it is in Linux.
func (c connection) like(shunt connection) bool {
	if c.state == "CLOSE" && shunt.state == "ESTABLISHED" { // after an RST
		return shunt.timeout <= 10
	}
	if c.state != shunt.state {
		return false
	}
	early := c.timeout - shunt.timeout
	return early <= soon && (early >= -soon || c.state == "ESTABLISHED") // Linux gives less while something is unacknowledged
}

var connPorts = regexp.MustCompile(` sport=(\d+) .* dport=(\d+)`)

// checkPorts finds out whether Linux drew a source port for a connection whose own was taken (nf_nat_l4proto_unique_tuple()). Conversations keep theirs.
func (r *run) checkPorts() error {
	if !r.own.hides {
		return nil
	}
	for i := range 2 {
		list, err := r.twin(i).connections()
		if err != nil {
			return err
		}
		for key := range list {
			m := connPorts.FindStringSubmatch(key)
			r.res.Drawn = r.res.Drawn || m != nil && m[1] != m[2] && m[1] != "80" && m[2] != "80" && m[2] != "4000"
		}
	}
	return nil
}
