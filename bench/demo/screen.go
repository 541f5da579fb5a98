// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// screen is where the demo speaks: plain text, with colour on a terminal.
type screen struct {
	out    io.Writer
	colour bool
	step   int
	busy   bool // some measurement did not get its CPU
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &screen{out: out, colour: terminal && os.Getenv("NO_COLOR") == ""}
}

func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// title opens a step.
func (s *screen) title(format string, args ...any) {
	s.step++
	fmt.Fprintf(s.out, "\n%s\n", s.paint("1", fmt.Sprintf("%d  %s", s.step, fmt.Sprintf(format, args...))))
}

func (s *screen) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...) + "\n") {
		fmt.Fprintf(s.out, "   %s", line)
	}
}

// command shows what a user would type and what comes.
func (s *screen) command(line, output string) {
	fmt.Fprintf(s.out, "   %s\n", s.paint("36", "# "+line))
	for l := range strings.Lines(strings.TrimRight(output, "\n") + "\n") {
		if strings.TrimSpace(l) != "" {
			fmt.Fprintf(s.out, "   %s", l)
		}
	}
}

// barWidth is the longest bar, in characters.
const barWidth = 36

// barFull is how many times the first measurement fills a bar.
const barFull = 2.5

// rate shows a measurement, beside what it is compared with. Bars and ratios are of packets per CPU
// second: unlike the rate, that does not depend on what else the machine does.
func (s *screen) rate(name string, m lab.Sample, base *lab.Sample) {
	first, ratio := m.PerPacket(), ""
	if base != nil {
		first = base.PerPacket()
		ratio = s.paint("1;32", fmt.Sprintf("%.2fx", first/m.PerPacket()))
	}
	n := min(barWidth, max(1, int(first/m.PerPacket()/barFull*barWidth)))
	fmt.Fprintf(s.out, "   %-16s %5.2f Mpps  %5.0f ns  %s%s %s\n", name, m.Rate()/1e6, m.PerPacket(),
		s.paint("32", strings.Repeat("█", n)), strings.Repeat(" ", barWidth-n), ratio)
	if m.Load() < 0.8 {
		s.busy = true
	}
}
