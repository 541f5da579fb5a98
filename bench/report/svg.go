// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
)

// The plots have no ground of their own and colours of middle lightness; text and axes follow the reader's scheme.
const style = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.title { font-size: 14px; font-weight: 600; }
.axis { stroke: #8c959f; stroke-width: 1; }
.grid { stroke: #8c959f; stroke-opacity: .25; }
.spread { stroke: #24292f; stroke-opacity: .75; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .small { fill: #9198a1; } .spread { stroke: #e6edf3; }
}
</style>
`

// Colours follow the label where one has been given, so that a variant looks the same in all plots.
var colours = map[string]string{"linux": "#7d8590", "shunt xdp": "#2f81f7", "shunt tc": "#2da44e", "shunt auto": "#9a6fb0"}

// colour of the i-th label.
func colour(label string, i int) string {
	if c := colours[label]; c != "" {
		return c
	}
	return palette[i%len(palette)]
}

var palette = []string{"#7d8590", "#b0803a", "#9a6fb0", "#b05a6f", "#2f81f7", "#2da44e", "#c2621b", "#4aa3a3", "#8a8f3c"}

// Bar is one bar: its length is the median, the whisker spans smallest to largest.
type Bar struct {
	Label string
	Stat  measure.Stat
	Note  string // behind the value
}

// Bars draws horizontal bars that begin at zero.
func Bars(title, unit string, bars []Bar) string {
	const row, top = 26, 40
	left, most := 190.0, 0.0
	for _, b := range bars {
		most = math.Max(most, b.Stat.Max)
		left = math.Max(left, 16+math.Ceil(6.2*float64(len(b.Label)))) // room for the label
	}
	width := 570 + int(left)
	step := niceStep(most / 5)
	scale := func(v float64) float64 { return left + v/most*420 }
	var s strings.Builder
	height := top + row*len(bars) + 36
	open(&s, width, height, title)
	for v := 0.0; v <= most; v += step {
		x := scale(v)
		fmt.Fprintf(&s, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, top-6, x, height-30, x, height-14, Number(v))
	}
	for i, b := range bars {
		y := top + i*row
		fmt.Fprintf(&s, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`, left-8, y+13, html.EscapeString(b.Label))
		fmt.Fprintf(&s, `<rect x="%.0f" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, scale(b.Stat.Median)-left, row-8, colour(b.Label, i))
		fmt.Fprintf(&s, `<line class="spread" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, scale(b.Stat.Min), y+9, scale(b.Stat.Max), y+9)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d">%s</text>`+"\n", scale(b.Stat.Max)+8, y+13, html.EscapeString(strings.TrimSpace(Number(b.Stat.Median)+" "+unit+"  "+b.Note)))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// Line is one line of a plot: a value for each place on the horizontal axis.
type Line struct {
	Label string
	Stats []measure.Stat // with NaN where there is none
}

// Lines draws values over named places at equal distance.
func Lines(title, unit string, places []string, lines []Line) string {
	const left, right, width, height, top, bottom = 70, 190, 760, 320, 40, 44
	var most float64
	for _, l := range lines {
		for _, st := range l.Stats {
			if !math.IsNaN(st.Max) {
				most = math.Max(most, st.Max)
			}
		}
	}
	x := func(i int) float64 {
		return left + (float64(i)+0.5)*(width-left-right)/float64(len(places))
	}
	y := func(v float64) float64 { return height - bottom - v/most*(height-bottom-top) }
	var s strings.Builder
	open(&s, width, height, title)
	for v, step := 0.0, niceStep(most/5); v <= most; v += step {
		fmt.Fprintf(&s, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="small" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y(v), width-right, y(v), left-6, y(v)+4, Number(v))
	}
	for i, p := range places {
		fmt.Fprintf(&s, `<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(i), height-bottom+18, html.EscapeString(p))
	}
	fmt.Fprintf(&s, `<text class="small" x="%d" y="%d">%s</text>`+"\n", left, height-8, html.EscapeString(unit))
	var labels []label
	for n, l := range lines {
		colour := colour(l.Label, n*4)
		var path []string
		lastY := 0.0
		for i, st := range l.Stats {
			if math.IsNaN(st.Median) {
				continue
			}
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(i), y(st.Median)))
			lastY = y(st.Median)
			fmt.Fprintf(&s, `<line stroke="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n",
				colour, x(i), y(st.Min), x(i), y(st.Max), x(i), y(st.Median), colour)
		}
		fmt.Fprintf(&s, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`, colour, strings.Join(path, " "))
		labels = append(labels, label{lastY, colour, l.Label})
	}
	for _, l := range apart(labels, 14) {
		fmt.Fprintf(&s, `<text x="%d" y="%.1f" style="fill:%s">%s</text>`+"\n", width-right+8, l.y+4, l.colour, html.EscapeString(l.text))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// label stands at the end of a line.
type label struct {
	y            float64
	colour, text string
}

// apart moves labels down where they would overlap.
func apart(labels []label, distance float64) []label {
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i := 1; i < len(labels); i++ {
		labels[i].y = math.Max(labels[i].y, labels[i-1].y+distance)
	}
	return labels
}

func open(s *strings.Builder, width, height int, title string) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n<title>%s</title>\n%s",
		width, height, width, height, html.EscapeString(title), style)
	fmt.Fprintf(s, `<text class="title" x="12" y="20">%s</text>`+"\n", html.EscapeString(title))
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// Number prints a value with about three digits that matter.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case v == math.Trunc(v) && a < 1e4:
		return fmt.Sprintf("%.0f", v)
	case a >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}
