// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"
)

// DOT writes the graph in Graphviz's language: a cluster for each port, a chain of nodes for each fast path, dashed red edges
// to Linux.
func (g *Graph) DOT() string {
	var b strings.Builder
	b.WriteString("digraph shunt {\n\trankdir=LR;\n\tgraph [fontname=\"sans-serif\"];\n" +
		"\tnode [shape=box style=\"rounded,filled\" fillcolor=\"#eef3f8\" color=\"#7b8fa6\" fontname=\"sans-serif\" fontsize=10];\n" +
		"\tedge [color=\"#2e7d32\"];\n\tlinux [label=\"Linux\" fillcolor=\"#fdecea\" color=\"#b3261e\"];\n")
	for _, e := range g.Egress {
		if len(e.XDP) == 0 || len(e.TC) == 0 {
			fmt.Fprintf(&b, "\tout%d [label=%s fillcolor=\"#e7f4e8\"];\n", e.Index, quote(e.title(g)))
		}
	}
	for _, p := range g.Ports {
		p.dot(&b, g)
	}
	b.WriteString("}\n")
	return b.String()
}

func (p Port) dot(b *strings.Builder, g *Graph) {
	entry := fmt.Sprintf("port%d", p.Index)
	if len(p.Hooks) == 0 {
		fmt.Fprintf(b, "\t%s [label=%s];\n", entry, quote(p.Name))
		if p.Via != 0 {
			fmt.Fprintf(b, "\t%s -> port%d [style=dotted];\n", entry, p.Via)
		} else {
			slowEdge(b, entry, p.Why)
		}
		return
	}
	fmt.Fprintf(b, "\tsubgraph cluster%d {\n\t\tlabel=%s;\n\t\tcolor=\"#7b8fa6\";\n\t\t%s [label=%s];\n",
		p.Index, quote(p.Name+" · "+p.hookNames()), entry, quote(p.Name))
	var after strings.Builder // edges that leave the cluster
	if p.Bridge != nil {
		p.Bridge.dot(b, &after, entry, entry+"br", p.Bridge.Name, nil)
	}
	for i, in := range p.Inputs {
		from := entry
		if len(in.VLANs) > 0 {
			from = fmt.Sprintf("%sin%d", entry, i)
			fmt.Fprintf(b, "\t\t%s [label=%s];\n\t\t%s -> %s;\n", from, quote(tagNames(in.VLANs)+" → "+in.Name), entry, from)
		}
		in.IP4.dot(b, &after, from, fmt.Sprintf("%sv4x%d", entry, i), "ip4", g.exits(p))
		in.IP6.dot(b, &after, from, fmt.Sprintf("%sv6x%d", entry, i), "ip6", g.exits(p))
	}
	b.WriteString("\t}\n" + after.String())
}

func (p Path) dot(b, after *strings.Builder, from, prefix, family string, exits []int) {
	if !p.Fast() {
		slowEdge(after, from, p.Why)
		return
	}
	for i, n := range p.Nodes {
		id := fmt.Sprintf("%sn%d", prefix, i)
		fmt.Fprintf(b, "\t\t%s [label=%s];\n\t\t%s -> %s", id, quote(n.String()), from, id)
		if i == 0 {
			fmt.Fprintf(b, " [label=%s fontsize=9]", quote(family))
		}
		b.WriteString(";\n")
		from = id
	}
	for _, index := range exits {
		fmt.Fprintf(after, "\t%s -> out%d;\n", from, index)
	}
}

// exits lists the ways out of a port by any of its hooks.
func (g *Graph) exits(p Port) []int {
	var out []int
	for _, e := range g.Egress {
		if len(p.Inputs) == 1 && e.Index == p.Inputs[0].Index {
			continue
		}
		if p.Has(XDP) && len(e.XDP) == 0 || p.Has(TC) && len(e.TC) == 0 {
			out = append(out, e.Index)
		}
	}
	return out
}

func slowEdge(b *strings.Builder, from string, why []Why) {
	var lines []string
	for _, w := range why {
		lines = append(lines, w.String())
	}
	fmt.Fprintf(b, "\t%s -> linux [style=dashed color=\"#b3261e\" fontsize=9 label=%s];\n", from, quote(strings.Join(lines, "\n")))
}

// quote writes a DOT string: the language knows no escapes but these.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `'`, "\n", `\n`).Replace(s) + `"`
}
