// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

// coverage counts what shunt says it did: packets by hook and reason, the reasons of interfaces, and how many
// times a graph node was part of an interface that forwarded packets.
type coverage struct {
	packets map[string]uint64 // "xdp fast"
	config  map[string]uint64 // reasons of interfaces
	nodes   map[string]uint64
	rules   hits // conditions and actions of rules that fast packets met
}

func newCoverage() coverage {
	return coverage{packets: map[string]uint64{}, config: map[string]uint64{}, nodes: map[string]uint64{}, rules: hits{}}
}

// add notes the change between two readings and returns how many packets were fast.
func (c *coverage) add(before, now status) (fast int) {
	type key struct {
		index int
		hook  string
	}
	old := map[key]packets{}
	for _, i := range before.Interfaces {
		for hook, p := range i.Hooks {
			old[key{i.Ifindex, hook}] = p
		}
	}
	for _, i := range now.Interfaces {
		forwarded := false
		for hook, p := range i.Hooks {
			was := old[key{i.Ifindex, hook}]
			if was.Fast > p.Fast {
				was = packets{}
			}
			fast += int(p.Fast - was.Fast)
			c.packets[hook+" fast"] += p.Fast - was.Fast
			forwarded = forwarded || p.Fast > was.Fast
			for name, n := range p.Slow {
				c.packets[hook+" "+name] += n - min(n, was.Slow[name])
			}
			for name, n := range p.Dropped {
				c.packets[hook+" "+name] += n - min(n, was.Dropped[name])
			}
		}
		for _, r := range i.Reasons {
			c.config[r.Reason]++
		}
		if forwarded {
			for _, n := range i.Graph {
				c.nodes[n]++
			}
		}
	}
	return fast
}

// addExits notes the reasons that close ways out, as far as the interface as a way in does not share them.
func (c *coverage) addExits(g exits) {
	for _, e := range g.Egress {
		for _, list := range [][]exitReason{e.XDP, e.TC} {
			for _, w := range list {
				c.config[w.Reason]++
			}
		}
	}
}

func (c *coverage) merge(o coverage) {
	for k, v := range o.packets {
		c.packets[k] += v
	}
	for k, v := range o.config {
		c.config[k] += v
	}
	for k, v := range o.nodes {
		c.nodes[k] += v
	}
	c.rules.merge(o.rules)
}

// String is the table that a run prints.
func (c *coverage) String() string {
	var b strings.Builder
	b.WriteString("packets by hook and reason:\n")
	for _, k := range slices.Sorted(maps.Keys(c.packets)) {
		if c.packets[k] > 0 {
			fmt.Fprintf(&b, "  %-32s %9d\n", k, c.packets[k])
		}
	}
	b.WriteString("reasons of interfaces (readings):\n")
	for _, k := range slices.Sorted(maps.Keys(c.config)) {
		fmt.Fprintf(&b, "  %-32s %9d\n", k, c.config[k])
	}
	b.WriteString("graph nodes (readings of interfaces that forwarded):\n")
	for _, k := range slices.Sorted(maps.Keys(c.nodes)) {
		fmt.Fprintf(&b, "  %-32s %9d\n", k, c.nodes[k])
	}
	if len(c.rules) > 0 {
		b.WriteString(c.rules.String())
	}
	return b.String()
}

// missed lists the reasons that no packet met and no interface had, those that the kernel under the rig cannot produce left out.
func (c *coverage) missed(impossible map[string]string) []string {
	var out []string
	for code := reason.Code(0); code < reason.Count; code++ {
		info := code.Describe()
		if impossible[info.Name] != "" {
			continue
		}
		seen := c.packets["xdp "+info.Name] + c.packets["tc "+info.Name]
		if info.Class == reason.Config {
			seen += c.config[info.Name]
		}
		if seen == 0 {
			out = append(out, info.Name)
		}
	}
	return out
}

// String is the state of the interfaces in a few lines.
func (s status) String() string {
	var b strings.Builder
	for _, i := range s.Interfaces {
		fmt.Fprintf(&b, "  %s: hook %s, %s", i.Name, i.Hook, i.State)
		for _, r := range i.Reasons {
			fmt.Fprintf(&b, "; %s %s", r.Reason, r.Detail)
		}
		for hook, p := range i.Hooks {
			fmt.Fprintf(&b, "; %s fast %d %v", hook, p.Fast, p.Slow)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// impossible are the reasons that cannot be provoked in this rig, each with why.
var impossible = map[string]string{
	"wrong-device":   "needs a device that moves to another namespace with its program; tested in internal/datapath",
	"resting":        "needs thousands of slow packets on one CPU; tested in internal/datapath",
	"paused":         "set by `shunt pause`; the command line's tests",
	"egress-frags":   "every veth that can be redirected to sends frames in several buffers",
	"trim-failed":    "bpf_xdp_adjust_tail() and bpf_skb_change_tail() refuse to shorten only below an Ethernet header",
	"rewrite-failed": "room for a VLAN tag is there on every device that XDP frames come from, as drivers leave 256 bytes",
	"lookup-error":   "bpf_fib_lookup() fails so only for arguments that the programs never give",
	"route-unknown":  "needs a route attribute newer than shunt; internal/graph tests it with one that no kernel has",
	"bridge-table":   "a bridge's table of stations is resized within microseconds, and no run has stations enough to fill a bucket",
	"bridge-member":  "needs bridges that filter by VLAN; cases that virtual machines run, and TestVLANBridge of internal/control",
	// What keeps an interface or a family out.
	"af-xdp":              "where the kernel does not list AF_XDP sockets (xdp_diag) all is `unreadable` in the case 'socket af_xdp'; internal/graph tests it",
	"attach-failed":       "needs a driver that says it could and then refuses; tested in test/scenario (xdp.txtar)",
	"bridge-unreadable":   "needs a kernel whose bridges cannot be read by programs, or one that is locked down; internal/graph tests it",
	"bridge-vlan":         "needs bridges that filter by VLAN; as bridge-member",
	"excluded":            "an option of shunt, which the rig does not give; internal/graph tests it",
	"unreadable":          "where it lists them, the other way round",
	"link-vlan-stripping": "a veth's tags are in its packets whatever its switches say, and other cards are not here; internal/graph tests it",
}

// missedNodes lists the nodes of internal/graph that no packet passed; those of VLAN devices only where the kernel has some.
func (c *coverage) missedNodes(vlans bool) []string {
	var out []string
	for _, n := range []string{
		graph.NodeGuard, graph.NodeVLAN, graph.NodeIP4, graph.NodeIP6, graph.NodeTrack, graph.NodeNAT, graph.NodeLocal, graph.NodeFIB, graph.NodeRPFilter, graph.NodeSpecial,
		graph.NodeEgress, graph.NodeRulesIn, graph.NodeRulesOut, graph.NodeRewrite, graph.NodeRedirect, graph.NodeBridge,
	} {
		if c.nodes[n] == 0 && (vlans || n != graph.NodeVLAN) {
			out = append(out, n)
		}
	}
	return out
}
