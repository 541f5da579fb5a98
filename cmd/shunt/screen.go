// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// screen is where answers for people go; coloured and refreshed in place only on a terminal that can.
type screen struct {
	io.Writer
	colour  bool
	inPlace bool  // what was printed can be wiped
	err     error // of the first write that failed, for the command to end with
}

// Write keeps the first error, so that those who print need not look at each line's; after it nothing is written.
func (s *screen) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.Writer.Write(b)
	s.err = err
	return n, err
}

func newScreen(w io.Writer) *screen {
	s := &screen{Writer: w}
	f, ok := w.(*os.File)
	if !ok {
		return s
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	s.inPlace = err == nil && os.Getenv("TERM") != "dumb"
	s.colour = s.inPlace && os.Getenv("NO_COLOR") == ""
	return s
}

// wipe empties a terminal, for the next of several answers; elsewhere they follow one another.
func (s *screen) wipe() {
	if s.inPlace {
		fmt.Fprint(s, "\x1b[H\x1b[2J")
	}
}

// The colours, as SGR parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// painted is a text that may be shown as it is, colours and all.
type painted string

// paint colours a text; the text itself is returned where there are no colours.
func (s *screen) paint(sgr, text string) painted {
	shown := painted(model.Printable(text))
	if !s.colour || sgr == "" || text == "" {
		return shown
	}
	return "\x1b[" + painted(sgr) + "m" + shown + "\x1b[0m"
}

// printf prints a line, or part of one. Names of chains and sets can hold whatever a terminal obeys, and be another's than who looks at them: but for what was painted, strings are shown printable.
func (s *screen) printf(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = model.Printable(text)
		}
	}
	fmt.Fprintf(s, format, args...)
}

// cell is one field of a table.
type cell struct {
	text  string
	sgr   string
	right bool // aligned, for numbers
}

// table prints rows in aligned columns, the first one as the head. The last column is not padded.
func (s *screen) table(rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i].text = model.Printable(row[i].text)
			c := row[i]
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for n, row := range rows {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			sgr := c.sgr
			if n == 0 {
				sgr = bold
			}
			switch {
			case c.right:
				b.WriteString(pad + string(s.paint(sgr, c.text)))
			case i == len(row)-1:
				b.WriteString(string(s.paint(sgr, c.text)))
			default:
				b.WriteString(string(s.paint(sgr, c.text)) + pad)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		fmt.Fprintln(s, strings.TrimRight(b.String(), " "))
	}
}

// heads makes the first row of a table; names that begin with > are aligned to the right.
func heads(names ...string) []cell {
	row := make([]cell, len(names))
	for i, n := range names {
		row[i] = cell{text: strings.TrimPrefix(n, ">"), right: strings.HasPrefix(n, ">")}
	}
	return row
}

// number is a right-aligned cell.
func number[N ~int | ~int64 | ~uint64 | ~uint32](n N) cell {
	return cell{text: fmt.Sprint(n), right: true}
}

// printJSON prints an answer for programs.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
