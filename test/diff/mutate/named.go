// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// named are bugs that anybody could make, each tested besides the sample: what must never be missed.
var named = []struct{ what, file, line, with string }{
	{"TTL not decremented", "bpf/node/ttl.h", `ip->ttl--;`, ``},
	{"hop limit not decremented", "bpf/node/egress_xdp.h", `ip->hop_limit--;`, ``},
	{"TTL of 1 forwarded", "bpf/node/ip4.h", `ip->ttl <= 1`, `ip->ttl < 1`},
	{"checksum not updated", "bpf/node/ttl.h", `check \+= bpf_htons\(0x0100\);`, ``},
	{"checksum without its carry", "bpf/node/ttl.h", `check \+ \(check >= 0xffff\)`, `check`},
	{"bad checksums forwarded", "bpf/node/ip4.h", `ip4_sum\(ip\) != 0xffff`, `0`},
	{"strict reverse path taken for loose", "bpf/node/rpf.h", `mode == SHUNT_RPF_STRICT && rev.ifindex != p->in->ifindex`, `0`},
	{"no reverse path check", "bpf/node/rpf.h", `mode == SHUNT_RPF_NONE`, `1`},
	{"next hops not reported for refreshing: stale MAC addresses", "internal/synth/plan.go", `c.NeighUse = 1`, `c.NeighUse = 0`},
	{"remembered next hops outlive the daemon's knowledge", "bpf/node/route_cache.h", ` \+ \(__u32\)live.epoch`, ``},
	{"remembered next hops outlive routes", "bpf/node/route_cache.h", `n->genid == p->genid && len <= n->max_len`, `len <= n->max_len`},
	{"route mtu ignored", "bpf/node/special.h", `mtu_len\(p\) > s->mtu`, `0`},
	{"device mtu ignored", "bpf/node/fib.h", `p->fib->tot_len = fib_len\(p\);`, `p->fib->tot_len = 0;`},
	{"wrong egress", "bpf/node/egress_xdp.h", `bpf_redirect_map\(&tx_xdp, out,`, `bpf_redirect_map(&tx_xdp, out ^ 1,`},
	{"wrong egress at tc", "bpf/node/egress_tc.h", `bpf_redirect_neigh\(p->out,`, `bpf_redirect_neigh(p->out ^ 1,`},
	{"one family guarded by the other's words", "bpf/node/guard.h", `unchanged6\(p\) : unchanged4\(p\)`, `unchanged4(p) : unchanged6(p)`},
	{"source MAC address left as it came", "bpf/node/egress_xdp.h", `frame\[2\] = p->macs\[2\];`, `;`},
	{"foreign MAC addresses taken", "bpf/node/vlan.h", `return SHUNT_R_DST_MAC;`, `;`},
	{"fragments forwarded", "bpf/node/ip4.h", `ip->frag & IP4_FRAG_MASK`, `0`},
	{"own addresses as sources forwarded", "bpf/node/local.h", `return SHUNT_R_LOCAL_SOURCE;`, `;`},
	{"guards not compared", "bpf/node/guard.h", `live.stale = 1;`, `return NEXT;`},
	{"the generic program keeps an old configuration", "internal/datapath/generic.go", `g.numbers.WriteAt\(b\[:\], at\)`, `if was := g.old; len(was) == 0 { g.numbers.WriteAt(b[:], at) }`},
	{"the generic program meets another port's configuration", "bpf/include/port.h", `__u64 number = current \? \*current : 0;`, `__u64 number = current ? *current - 1 : 0;`},
	{"padding left behind the packet", "bpf/node/egress_xdp.h", `if \(pad && `, `if (0 && `},
}

// namedMutants finds the lines of the named bugs; one that matches no line is an error, or it would silently not be tested.
func namedMutants() ([]mutant, error) {
	var out []mutant
	for _, n := range named {
		text, err := os.ReadFile(n.file)
		if err != nil {
			return nil, err
		}
		re, found := regexp.MustCompile(n.line), false
		for i, line := range strings.Split(string(text), "\n") {
			if re.MatchString(line) && !found {
				found = true
				out = append(out, mutant{n.file, i + 1, "named (" + n.what + ")", line, re.ReplaceAllString(line, strings.ReplaceAll(n.with, "$", "$$")), 0})
			}
		}
		if !found {
			return nil, fmt.Errorf("%q: no line of %s matches %s any more", n.what, n.file, n.line)
		}
	}
	return out, nil
}
