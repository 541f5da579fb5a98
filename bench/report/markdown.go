// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
)

// Page is a Markdown page in the making.
type Page struct{ strings.Builder }

// Para writes a paragraph.
func (p *Page) Para(format string, args ...any) { fmt.Fprintf(p, format+"\n\n", args...) }

// Table is a Markdown table in the making: the first column is text, the others are figures.
type Table struct {
	head []string
	rows [][]string
}

// NewTable begins a table.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row; it must have as many cells as the head.
func (t *Table) Row(cells ...string) {
	if len(cells) != len(t.head) {
		panic(fmt.Sprintf("report: a row of %d cells in a table of %d columns", len(cells), len(t.head)))
	}
	t.rows = append(t.rows, cells)
}

// Empty says whether there are no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Table writes the table, unless it is empty.
func (p *Page) Table(t *Table) {
	if t.Empty() {
		return
	}
	line := func(cells []string) { fmt.Fprintf(p, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	align := make([]string, len(t.head))
	for i := range align {
		align[i] = "---:"
	}
	align[0] = "---"
	line(align)
	for _, r := range t.rows {
		line(r)
	}
	p.WriteString("\n")
}

// Spread prints a median with its smallest and largest value.
func Spread(s measure.Stat) string {
	switch {
	case s.N == 0:
		return "–"
	case s.N == 1 || s.Min == s.Max:
		return Number(s.Median)
	}
	return fmt.Sprintf("%s (%s – %s)", Number(s.Median), Number(s.Min), Number(s.Max))
}
