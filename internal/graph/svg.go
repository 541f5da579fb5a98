// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Measures of the drawing in pixels. Text is monospaced, so that widths follow from the number of characters.
const (
	svgChar   = 6.7 // width of a character at font size 11
	svgRow    = 26
	svgPill   = 18
	svgGap    = 14 // between pills: the arrow's length
	svgMargin = 16
	svgLead   = 46 // room for a row's label
	svgBus    = 34 // room between the ports and the ways out
)

// svg gathers the drawing and how far it reaches.
type svg struct {
	strings.Builder
	width, height float64
}

// SVG draws the graph by itself: a card for each port with a lane for each family, and beside them the ways out. Lanes that
// end at a way out are drawn through, lanes that end at Linux are dashed.
func (g *Graph) SVG() string {
	var s svg
	y := float64(svgMargin)
	var lanes []lane
	for _, p := range g.Ports {
		y, lanes = s.port(g, p, y, lanes)
	}
	s.height = y
	s.out(g, lanes)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0,0L8,4L0,8z" fill="#2e7d32"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, s.width+svgMargin, s.height+svgMargin, s.String())
}

// lane is the end of a fast path, to be led to the ways out.
type lane struct{ x, y float64 }

// port draws a card and gives the next free line and the lanes so far.
func (s *svg) port(g *Graph, p *Port, y float64, lanes []lane) (float64, []lane) {
	var body svg
	top := y
	title := p.Name + "   " + p.hookNames()
	if len(p.Hooks) == 0 {
		title = p.Name
	}
	y += svgRow
	if len(p.Hooks) == 0 {
		why := p.Why
		if p.Via != 0 {
			body.text(svgMargin+10, y, "#5b6770", "its packets are met at "+g.nameOf(p.Via))
			y += svgRow
			why = nil
		}
		y = body.reasons(svgMargin+10, y, why)
	}
	if p.Bridge != nil && len(p.Hooks) > 0 {
		body.text(svgMargin+10, y, "#33414d", p.Bridge.Name)
		if p.Bridge.Fast() {
			body.pills(svgMargin+svgLead+svgChar*float64(utf8.RuneCountInString(p.Bridge.Name)), y, p.Bridge.Nodes)
			y += svgRow
		} else {
			y = body.reasons(svgMargin+svgLead, y, p.Bridge.Why)
		}
	}
	for _, in := range p.Inputs {
		if len(p.Hooks) == 0 {
			break
		}
		if len(in.VLANs) > 0 {
			body.text(svgMargin+10, y, "#33414d", tagNames(in.VLANs)+" → "+in.Name)
			y += svgRow - 6
		}
		for _, f := range []struct {
			name string
			path Path
		}{{"ip4", in.IP4}, {"ip6", in.IP6}} {
			body.text(svgMargin+10, y, "#33414d", f.name)
			if !f.path.Fast() {
				y = body.reasons(svgMargin+svgLead, y, f.path.Why)
				continue
			}
			x := body.pills(svgMargin+svgLead, y, f.path.Nodes)
			lanes = append(lanes, lane{x, y})
			y += svgRow
		}
	}
	body.reach(svgMargin+20+svgChar*float64(utf8.RuneCountInString(title)), y)
	fill, line := "#f7f9fb", "#7b8fa6"
	if len(p.Hooks) == 0 {
		fill, line = "#fafafa", "#c4c9ce"
	}
	fmt.Fprintf(s, `<rect x="%d" y="%.0f" width="%.0f" height="%.0f" rx="8" fill="%s" stroke="%s"/>`+"\n",
		svgMargin, top-6, body.width-svgMargin+10, y-top, fill, line)
	s.bold(svgMargin+10, top+9, title)
	s.WriteString(body.String())
	s.reach(body.width+10, y)
	return y + 10, lanes
}

// colours groups the nodes by what they do: watch, check, look up, change.
var colours = map[string]string{
	NodeGuard: "#eceff1", NodeVLAN: "#e3edf8", NodeIP4: "#e3edf8", NodeIP6: "#e3edf8", NodeLocal: "#e3edf8",
	NodeFIB: "#e7f4e8", NodeRPFilter: "#e7f4e8", NodeSpecial: "#e7f4e8", NodeBridge: "#e7f4e8", NodeEgress: "#e7f4e8",
	NodeRewrite: "#fff3df", NodeRedirect: "#fff3df",
}

// pills draws a path's nodes from left to right and gives the end of the last.
func (s *svg) pills(x, y float64, nodes []Node) float64 {
	for i, n := range nodes {
		name := n.String()
		width := svgChar*float64(utf8.RuneCountInString(name)) + 14
		if i > 0 {
			s.arrow(x, y, x+svgGap, y)
			x += svgGap
		}
		fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="9" fill="%s" stroke="#7b8fa6"/>`+"\n",
			x, y-svgPill/2, width, svgPill, colours[n.Kind])
		s.text(x+7, y, "#1c2730", name)
		x += width
	}
	s.reach(x, y)
	return x
}

// reasons draws dashed ends at Linux, one line each.
func (s *svg) reasons(x, y float64, why []Why) float64 {
	for _, w := range why {
		fmt.Fprintf(s, `<path d="M%.1f,%.1fh24" stroke="#b3261e" stroke-dasharray="3 3"/>`+"\n", x, y)
		s.text(x+30, y, "#b3261e", "Linux: "+w.String())
		y += svgRow
	}
	return y
}

// out draws the ways out and leads the lanes there by one common line.
func (s *svg) out(g *Graph, lanes []lane) {
	left := s.width + svgBus
	y := float64(svgMargin) + svgRow
	top := y
	var body svg
	for _, e := range g.Egress {
		body.mark(left+16, y, len(e.XDP) == 0)
		body.mark(left+48, y, len(e.TC) == 0)
		body.text(left+70, y, "#1c2730", e.title(g))
		y += svgRow - 6
	}
	body.reach(left+90, y)
	fmt.Fprintf(s, `<rect x="%.1f" y="%d" width="%.1f" height="%.1f" rx="8" fill="#f7f9fb" stroke="#7b8fa6"/>`+"\n",
		left, svgMargin-6, body.width-left+10, y-svgMargin)
	s.bold(left+6, svgMargin+9, "xdp   tc  way out")
	s.WriteString(body.String())
	s.reach(body.width+10, y)
	if len(lanes) == 0 {
		return
	}
	bus := left - svgBus/2
	high, low := top, top
	for _, l := range lanes {
		fmt.Fprintf(s, `<path d="M%.1f,%.1fH%.1f" fill="none" stroke="#2e7d32"/>`+"\n", l.x, l.y, bus)
		high, low = min(high, l.y), max(low, l.y)
	}
	fmt.Fprintf(s, `<path d="M%.1f,%.1fV%.1f" fill="none" stroke="#2e7d32"/>`+"\n", bus, high, low)
	s.arrow(bus, top, left, top)
}

func (s *svg) mark(x, y float64, open bool) {
	fill := "none"
	if open {
		fill = "#2e7d32"
	}
	fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s" stroke="#7b8fa6"/>`+"\n", x, y, fill)
}

func (s *svg) arrow(x1, y1, x2, y2 float64) {
	fmt.Fprintf(s, `<path d="M%.1f,%.1fL%.1f,%.1f" stroke="#2e7d32" marker-end="url(#a)"/>`+"\n", x1, y1, x2, y2)
}

func (s *svg) text(x, y float64, colour, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" fill="%s" xml:space="preserve">%s</text>`+"\n", x, y+4, colour, escape(text))
	s.reach(x+svgChar*float64(utf8.RuneCountInString(text)), y)
}

func (s *svg) bold(x, y float64, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" font-weight="bold" xml:space="preserve">%s</text>`+"\n", x, y+4, escape(text))
	s.reach(x+svgChar*float64(utf8.RuneCountInString(text)), y)
}

// reach widens the drawing to hold a point.
func (s *svg) reach(x, y float64) { s.width, s.height = max(s.width, x), max(s.height, y) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder cannot fail
	return b.String()
}
