// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"
)

// Shrink looks for a smaller case that still differs, by leaving out ever smaller groups of packets and commands. It
// runs at most budget cases and returns the smallest that differed, with what it showed.
func (r *Rig) Shrink(c *Case, first *Result, budget int) (*Case, *Result) {
	s := &shrinker{rig: r, best: c, result: first, budget: budget}
	for before := -1; before != s.size() && s.budget > 0; {
		before = s.size()
		s.steps()
		for i := range s.best.Steps {
			s.packets(i)
		}
		for i := range s.best.Steps {
			s.commands(i)
			s.inputs(i)
		}
	}
	return s.best, s.result
}

type shrinker struct {
	rig    *Rig
	best   *Case
	result *Result
	budget int
}

func (s *shrinker) size() int {
	commands, packets := s.best.Size()
	letters := 0
	for _, step := range s.best.Steps {
		for _, c := range step.Commands {
			letters += len(c)
		}
	}
	return commands + packets + len(s.best.Steps) + letters
}

// try keeps a candidate if it differs.
func (s *shrinker) try(candidate *Case) bool {
	if s.budget <= 0 {
		return false
	}
	s.budget--
	res, err := s.rig.Run(candidate)
	if err != nil || len(res.Differences) == 0 {
		return false
	}
	s.best, s.result = candidate, res
	return true
}

func (c *Case) clone() *Case {
	out := *c
	out.Steps = slices.Clone(c.Steps)
	return &out
}

// steps joins neighbouring steps.
func (s *shrinker) steps() {
	for i := len(s.best.Steps) - 1; i > 0; i-- {
		c := s.best.clone()
		a, b := c.Steps[i-1], c.Steps[i]
		if len(a.Packets) > 0 && len(b.Commands) > 0 {
			a.Packets = nil // the earlier packets may not matter at all
		}
		c.Steps[i-1] = Step{Commands: slices.Concat(a.Commands, b.Commands), Packets: slices.Concat(a.Packets, b.Packets), Immediate: b.Immediate, Killed: a.Killed || b.Killed}
		c.Steps = slices.Delete(c.Steps, i, i+1)
		s.try(c)
	}
}

func (s *shrinker) packets(step int) {
	for size := len(s.best.Steps[step].Packets); size >= 1; size /= 2 {
		for at := 0; at < len(s.best.Steps[step].Packets); {
			c := s.best.clone()
			all := c.Steps[step].Packets
			c.Steps[step].Packets = slices.Concat(all[:at], all[min(at+size, len(all)):])
			if !s.try(c) {
				at += size
			}
		}
	}
}

func (s *shrinker) commands(step int) {
	for size := len(s.best.Steps[step].Commands); size >= 1; size /= 2 {
		for at := 0; at < len(s.best.Steps[step].Commands); {
			c := s.best.clone()
			all := c.Steps[step].Commands
			c.Steps[step].Commands = slices.Concat(all[:at], all[min(at+size, len(all)):])
			if !s.try(c) {
				at += size
			}
		}
	}
}

// inputs leaves out lines of what commands read, rules of a rule set, and then parts of the lines that are left. A rule set that no longer loads does not
// load in either twin, and so does not differ.
func (s *shrinker) inputs(step int) {
	for i := range s.best.Steps[step].Commands {
		tool, text, ok := strings.Cut(s.best.Steps[step].Commands[i], "\n")
		if !ok {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		replace := func(with []string) bool {
			c := s.best.clone()
			c.Steps[step].Commands = slices.Clone(c.Steps[step].Commands)
			c.Steps[step].Commands[i] = tool + "\n" + strings.Join(with, "\n") + "\n"
			return s.try(c)
		}
		for size := len(lines); size >= 1; size /= 2 {
			for at := 0; at < len(lines); {
				if without := slices.Concat(lines[:at], lines[min(at+size, len(lines)):]); replace(without) {
					lines = without
				} else {
					at += size
				}
			}
		}
		for n := range lines {
			for _, span := range spans(lines[n]) {
				shorter := slices.Clone(lines)
				if shorter[n] = strings.Replace(lines[n], span, "", 1); shorter[n] != lines[n] && replace(shorter) {
					lines = shorter
				}
			}
		}
	}
}

// spans are the parts of a rule that may be left out: an option of iptables with its values; two, three or four words of nft behind the chain.
func spans(rule string) (out []string) {
	words := strings.Fields(rule)
	if !strings.HasPrefix(rule, "add rule ") {
		for from := 2; from < len(words) && words[0] == "-A"; {
			to := from + 1
			for to < len(words) && !begins(words, from, to) {
				to++
			}
			out = append(out, " "+strings.Join(words[from:to], " "))
			from = to
		}
		return out
	}
	for _, size := range []int{4, 3, 2} {
		for from := 5; from+size <= len(words); from++ {
			out = append(out, " "+strings.Join(words[from:from+size], " "))
		}
	}
	return out
}

// begins says whether a condition begins at a word: with a short option, or the "!" in front of one. Long options belong to the module before them.
func begins(words []string, from, at int) bool {
	if words[at] == "!" && at+1 < len(words) {
		at++
	} else if words[at-1] == "!" {
		return false
	}
	return words[at][0] == '-' && (words[from] != "-m" || !strings.HasPrefix(words[at], "--"))
}
