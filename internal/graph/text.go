// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shuntnet/shunt/internal/model"
)

// Text draws the graph with line characters: a box for each attached port with the nodes of its fast paths, then the ways
// out, then what is left to Linux.
func (g *Graph) Text() string {
	var b strings.Builder
	for _, p := range g.Ports {
		if len(p.Hooks) > 0 {
			p.text(&b, g)
		}
	}
	g.waysOut(&b)
	g.leftToLinux(&b)
	return b.String()
}

func (p Port) text(b *strings.Builder, g *Graph) {
	fmt.Fprintf(b, "╭─ %s ── %s\n", p.Name, p.hookNames())
	out := g.reached(p)
	if p.Bridge != nil {
		fmt.Fprintf(b, "├─ bridge %s\n", p.Bridge.Name)
		p.Bridge.text(b, "frames")
		p.Bridge.shown(b)
		out = append(g.acrossBridge(p), out...)
	}
	for _, in := range p.Inputs {
		if len(in.VLANs) > 0 {
			fmt.Fprintf(b, "├─ %s → %s\n", tagNames(in.VLANs), in.Name)
		} else if p.Bridge != nil {
			fmt.Fprintf(b, "├─ to %s\n", in.Name)
		}
		in.IP4.text(b, "ip4")
		in.IP6.text(b, "ip6")
	}
	fmt.Fprintf(b, "╰─▶ %s\n\n", strings.Join(out, "   "))
}

func (p Path) text(b *strings.Builder, family string) {
	if p.Fast() {
		fmt.Fprintf(b, "│  %s ─▶ %s\n", family, strings.Join(p.nodeNames(), " ─ "))
		for _, w := range p.Except {
			fmt.Fprintf(b, "│      ··▶ Linux: %s\n", w)
		}
		return
	}
	for i, w := range p.Why {
		if i == 0 {
			fmt.Fprintf(b, "│  %s ··▶ Linux: %s\n", family, w)
		} else {
			fmt.Fprintf(b, "│                %s\n", w)
		}
	}
}

// shown says what frames pass that br_netfilter shows to rules and connection tracking.
func (m *Member) shown(b *strings.Builder) {
	for i, c := range []Call{m.Call4, m.Call6} {
		if len(c.Nodes) > 0 && m.Fast() {
			fmt.Fprintf(b, "│      ip%d ─▶ %s\n", 4+2*i, strings.Join(Path{Nodes: c.Nodes}.nodeNames(), " ─ "))
		}
	}
}

// waysOut is a table of the interfaces that can be entered: ● from this hook, ○ not.
func (g *Graph) waysOut(b *strings.Builder) {
	width := 8
	for _, e := range g.Egress {
		width = max(width, utf8.RuneCountInString(e.title(g)))
	}
	fmt.Fprintf(b, "%-*s  xdp  tc  mtu\n", width, "way out")
	for _, e := range g.Egress {
		fmt.Fprintf(b, "%-*s   %s    %s  %d\n", width, e.title(g), dot(e.XDP), dot(e.TC), e.MTU)
		if e.Bridge != nil {
			e.bridge(b, g, width)
			continue
		}
		for _, w := range reasonsOf(e.XDP, e.TC) {
			fmt.Fprintf(b, "  · %s\n", w)
		}
	}
	for i, s := range g.Special {
		if i == 0 {
			b.WriteString("\nroutes with care\n")
		}
		fmt.Fprintf(b, "  %s %s\n", s.Prefix, s.demand())
	}
}

// bridge is the way out by a port of a bridge, for frames of that.
func (e Egress) bridge(b *strings.Builder, g *Graph, width int) {
	fmt.Fprintf(b, "%-*s   %s    %s\n", width, "  of "+g.nameOf(e.Bridge.Index), dot(e.Bridge.XDP), dot(e.Bridge.TC))
	for _, w := range reasonsOf(e.Bridge.XDP, e.Bridge.TC) {
		fmt.Fprintf(b, "  · %s\n", w)
	}
}

func (g *Graph) leftToLinux(b *strings.Builder) {
	first := true
	for _, p := range g.Ports {
		if len(p.Hooks) > 0 {
			continue
		}
		if first {
			b.WriteString("\nnot attached\n")
			first = false
		}
		if p.Via != 0 {
			fmt.Fprintf(b, "  %s: its packets are met at %s\n", p.Name, g.nameOf(p.Via))
			continue
		}
		for i, w := range p.Why {
			if i == 0 {
				fmt.Fprintf(b, "  %s: %s\n", p.Name, w)
			} else {
				fmt.Fprintf(b, "  %s  %s\n", strings.Repeat(" ", len(p.Name)), w)
			}
		}
	}
}

// String prints a reason as status does: the name and, in brackets, what it is about.
func (w Why) String() string {
	if w.Detail == "" {
		return w.Reason.String()
	}
	return w.Reason.String() + " (" + w.Detail + ")"
}

// String prints a node with its parameters in order of their names.
func (n Node) String() string {
	if len(n.Params) == 0 {
		return n.Kind
	}
	var params []string
	for _, k := range slices.Sorted(maps.Keys(n.Params)) {
		params = append(params, k+"="+n.Params[k])
	}
	return n.Kind + "(" + strings.Join(params, " ") + ")"
}

func (p Path) nodeNames() []string {
	var out []string
	for _, n := range p.Nodes {
		out = append(out, n.String())
	}
	return out
}

func (p Port) hookNames() string {
	var out []string
	for _, h := range p.Hooks {
		out = append(out, string(h))
	}
	return strings.Join(out, " + ")
}

func tagNames(tags []model.VLAN) string {
	var out []string
	for _, t := range tags {
		name := fmt.Sprintf("vlan %d", t.ID)
		if t.Proto != 0x8100 {
			name += fmt.Sprintf(" (%#04x)", t.Proto)
		}
		out = append(out, name)
	}
	return strings.Join(out, " · ")
}

// title names a way out with what is pushed on the way.
func (e Egress) title(g *Graph) string {
	if len(e.VLANs) == 0 {
		return e.Name
	}
	return fmt.Sprintf("%s = %s + %s", e.Name, g.nameOf(e.Port), tagNames(e.VLANs))
}

func (s Special) demand() string {
	var out []string
	if s.Always != 0 {
		out = append(out, s.Always.String())
	}
	if s.MTU != 0 {
		out = append(out, fmt.Sprintf("mtu %d", s.MTU))
	}
	return strings.Join(out, ", ")
}

// acrossBridge lists the other ports of a bridge that frames of one can leave by.
func (g *Graph) acrossBridge(p Port) []string {
	var out []string
	for _, e := range g.Egress {
		switch {
		case e.Index == p.Index || e.Bridge == nil || e.Bridge.Index != p.Bridge.Index:
		case p.Has(XDP) && len(e.Bridge.XDP) == 0:
			out = append(out, e.Name+" (bridge, xdp)")
		case p.Has(TC) && len(e.Bridge.TC) == 0:
			out = append(out, e.Name+" (bridge, tc)")
		}
	}
	return out
}

// reached lists the interfaces that a port's packets can leave by, with the first hook that reaches them.
func (g *Graph) reached(p Port) []string {
	var out []string
	for _, e := range g.Egress {
		switch {
		case len(p.Inputs) == 1 && e.Index == p.Inputs[0].Index:
		case p.Has(XDP) && len(e.XDP) == 0:
			out = append(out, e.Name+" (xdp)")
		case p.Has(TC) && len(e.TC) == 0:
			out = append(out, e.Name+" (tc)")
		}
	}
	return out
}

func (g *Graph) nameOf(index int) string {
	for _, p := range g.Ports {
		if p.Index == index {
			return p.Name
		}
	}
	return fmt.Sprintf("ifindex %d", index)
}

// reasonsOf merges the reasons against entering an interface, each with the hooks that it concerns when not both.
func reasonsOf(xdp, tc []Why) []string {
	var out []string
	for _, w := range xdp {
		if slices.Contains(tc, w) {
			out = append(out, w.String())
		} else {
			out = append(out, "xdp: "+w.String())
		}
	}
	for _, w := range tc {
		if !slices.Contains(xdp, w) {
			out = append(out, "tc: "+w.String())
		}
	}
	return out
}

func dot(why []Why) string {
	if len(why) == 0 {
		return "●"
	}
	return "○"
}
