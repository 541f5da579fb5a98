// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
)

// Page is the results page of a suite while it is written.
type Page struct {
	report.Page
	Results *report.Results
	Suite   Suite
	plots   map[string]string // file name → SVG
	folder  string            // of the results, those of other suites too; "": there are none
	name    string            // of the results' file, without its ending
}

// WritePage makes the page and its plots from the results alone.
func (u Suite) WritePage(results, path string) error {
	r, err := report.Load(results)
	if err != nil {
		return err
	}
	if len(r.Sections) == 0 {
		return fmt.Errorf("%s holds no results: measure first", results)
	}
	p := u.NewPage(r)
	p.folder, p.name = filepath.Dir(results), strings.TrimSuffix(filepath.Base(results), ".json")
	u.Write(p)
	images := filepath.Join(filepath.Dir(path), "img")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return fmt.Errorf("writing plots: %w", err)
	}
	for name, svg := range p.plots {
		if err := os.WriteFile(filepath.Join(images, name), []byte(svg), 0o644); err != nil {
			return fmt.Errorf("writing plots: %w", err)
		}
	}
	if err := os.WriteFile(path, []byte(strings.TrimRight(p.String(), "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	fmt.Printf("%s and %d plots written\n", path, len(p.plots))
	return nil
}

// NewPage is an empty page of results.
func (u Suite) NewPage(r *report.Results) *Page {
	return &Page{Results: r, Suite: u, plots: map[string]string{}, name: u.Name}
}

// Beside finds a section that another suite has measured; what has not been is empty.
func (p *Page) Beside(suite, section string) *report.Section {
	if p.folder != "" {
		if r, err := report.Load(filepath.Join(p.folder, suite+".json")); err == nil && r.Section(section) != nil {
			return r.Section(section)
		}
	}
	return &report.Section{Name: section}
}

// Opening is the page's title, and what to know before reading it.
func (p *Page) Opening(title string) {
	p.Para("# %s, measured", title)
	p.Para("Made by `make bench-page` from [%[1]s.json](../bench/results/%[1]s.json), which `make bench-%[2]s` measures; do not edit. How it is measured, and what to beware of: "+
		"[bench/README.md](../bench/README.md). Figures are medians, in brackets the smallest and largest round; ratios are formed within each round. "+
		"The links are veths in a virtual machine: believe the ratios, not the absolute figures, and do not take veth for a NIC.", p.name, p.Suite.Name)
}

// beside says that the results stand beside the suite's own, of another machine, and are only of what that changes: what they lack is no gap.
func (p *Page) beside() bool { return strings.HasPrefix(p.name, p.Suite.Name+"-") }

// Sections writes the sections that have been measured, in order.
func (p *Page) Sections(render func(*report.Section)) {
	for _, s := range p.Suite.Sections {
		got := p.Results.Section(s.Name)
		if got == nil {
			continue
		}
		p.Para("## %s", s.Title)
		p.Para("%s", s.About)
		render(got)
		p.Remarks(got)
	}
}

// Provenance says where the figures come from.
func (p *Page) Provenance() {
	p.Para("## Where the figures come from")
	t := report.NewTable("section", "commit", "size", "taken", "took", "load before", "machine")
	for _, s := range p.Results.Sections {
		v := s.Provenance
		t.Row(s.Name, v.Commit, v.Size, v.Taken.Format("2006-01-02 15:04"), fmt.Sprintf("%.0f s", v.Seconds), v.Load,
			fmt.Sprintf("%s, %d CPUs, %.0f MHz, Linux %s", v.CPU, v.CPUs, v.MHz, v.Kernel))
	}
	p.Table(t)
	versions := p.Results.Sections[0].Provenance.Versions
	var list []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		list = append(list, fmt.Sprintf("%s: %s", name, versions[name]))
	}
	p.Para("Programs: %s.", strings.Join(list, "; "))
}

// Remarks are a section's facts and notes.
func (p *Page) Remarks(s *report.Section) {
	for _, k := range slices.Sorted(maps.Keys(s.Facts)) {
		fmt.Fprintf(p, "- %s: %s\n", k, s.Facts[k])
	}
	for _, n := range s.Notes {
		fmt.Fprintf(p, "- %s\n", n)
	}
	if len(s.Facts)+len(s.Notes) > 0 {
		p.WriteString("\n")
	}
}

// Plot keeps an SVG and shows it.
func (p *Page) Plot(name, alt, svg string) {
	file := "bench-" + p.name + "-" + name + ".svg"
	p.plots[file] = svg
	p.Para("![%s](img/%s)", alt, file)
}

// Skipped lists what was not measured: in the sections, and what the suite measures nowhere.
func (p *Page) Skipped(absent []report.Skipped) {
	p.Para("## What was not measured")
	t := report.NewTable("what", "why")
	for _, s := range p.Results.Sections {
		for _, x := range s.Skipped {
			t.Row(s.Name+": "+x.What, x.Why)
		}
	}
	for _, s := range p.Suite.Sections {
		if p.Results.Section(s.Name) == nil && !p.beside() {
			t.Row(s.Name, "the section has not been run")
		}
	}
	for _, x := range absent {
		t.Row(x.What, x.Why)
	}
	p.Table(t)
}

// Ratio is how many times better the variant is than the base in a case: more is better for every metric.
func Ratio(s *report.Section, c, variant, base, metric string, less bool) measure.Stat {
	return RatioRows(s.Row(c, variant, metric), s.Row(c, base, metric), less)
}

func RatioRows(variant, base *measure.Row, less bool) measure.Stat {
	if less {
		return measure.Of(measure.Over(base, variant))
	}
	return measure.Of(measure.Over(variant, base))
}

// LinuxBest is Linux with GRO or without, whichever is better in each round.
func LinuxBest(s *report.Section, c, metric string, less bool) *measure.Row {
	return measure.Best(less, s.Row(c, LinuxGRO, metric), s.Row(c, LinuxNoGRO, metric))
}

// Compare is a table of one metric: a row per case and variant, with the ratio to the base.
func (p *Page) Compare(s *report.Section, metric, base string, less bool) {
	variants := s.Variants(metric)
	if len(variants) == 0 {
		return
	}
	unit := ""
	head := []string{"case"}
	for _, v := range variants {
		head = append(head, v)
		if v != base {
			head = append(head, "× "+base)
		}
	}
	t := report.NewTable(head...)
	for _, c := range s.Cases(metric) {
		row := []string{c}
		for _, v := range variants {
			r := s.Row(c, v, metric)
			if r != nil {
				unit = r.Unit
			}
			row = append(row, report.Spread(r.Stat()))
			if v != base {
				row = append(row, report.Spread(Ratio(s, c, v, base, metric, less)))
			}
		}
		t.Row(row...)
	}
	p.Para("%s in %s; the ratio is above 1 where the variant is better.", Capital(metric), unit)
	p.Table(t)
}

// Times is a table of everything in a section.
func (p *Page) Times(s *report.Section) {
	t := report.NewTable("case and variant", "what", "value", "unit")
	for _, r := range s.Rows {
		t.Row(r.Case+": "+r.Variant, r.Metric, report.Spread(r.Stat()), r.Unit)
	}
	p.Table(t)
}

// Added is what a variant's rounds have more than those of another beside them.
func Added(s *report.Section, c, variant, base, metric string) measure.Stat {
	v, w := s.Row(c, variant, metric), s.Row(c, base, metric)
	if v == nil || w == nil {
		return measure.Of(nil)
	}
	var more []float64
	for i := range min(len(v.Rounds), len(w.Rounds)) {
		more = append(more, v.Rounds[i]-w.Rounds[i])
	}
	return measure.Of(more)
}

// BarsOf draws the first case of a metric.
func (p *Page) BarsOf(s *report.Section, metric string) {
	for i, c := range s.Cases(metric) {
		var bars []report.Bar
		unit := ""
		for _, v := range s.Variants(metric) {
			if r := s.Row(c, v, metric); r != nil {
				unit = r.Unit
				bars = append(bars, report.Bar{Label: v, Stat: r.Stat()})
			}
		}
		p.Plot(fmt.Sprintf("%s-%d", s.Name, i+1), c, report.Bars(Capital(metric)+", "+c, unit, bars))
	}
}

func Capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
func Scaled(r *measure.Row, by float64) (out []float64) {
	if r == nil {
		return nil
	}
	for _, v := range r.Rounds {
		out = append(out, v*by)
	}
	return out
}

// Latency is a table of distributions of round trips, and bars of their means.
func (p *Page) Latency(s *report.Section) {
	t := report.NewTable("case and variant", "mean µs", "p99 µs", "sd µs", "round trips/s", "mean, Linux/variant", "p99, Linux/variant")
	for _, c := range s.Cases("mean") {
		for _, v := range s.Variants("mean") {
			if s.Row(c, v, "mean") == nil {
				continue
			}
			cells := []string{c + ", " + v}
			for _, m := range []string{"mean", "p99", "sd", "rate"} {
				cells = append(cells, report.Spread(s.Row(c, v, m).Stat()))
			}
			for _, m := range []string{"mean", "p99"} {
				cells = append(cells, report.Spread(Ratio(s, c, v, LinuxGRO, m, true)))
			}
			t.Row(cells...)
		}
	}
	p.Table(t)
	p.BarsOf(s, "mean")
}
