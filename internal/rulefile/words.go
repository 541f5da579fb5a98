// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"strings"
)

// word is a word of a line.
type word struct {
	text   string
	line   int
	column int
	quoted bool
}

// reader gives the words of one line.
type reader struct {
	file  string
	words []word
	at    int
	end   word // where the line ends
}

// split takes a line apart as iptables-restore does: at blanks, but not between double quotes, where a backslash takes what
// follows as it is.
func split(file, line string, number int) (*reader, error) {
	r := &reader{file: file}
	var text strings.Builder
	begin, quoted, inside := -1, false, false
	finish := func() {
		if begin >= 0 {
			r.words = append(r.words, word{text.String(), number, begin + 1, quoted})
		}
		text.Reset()
		begin, quoted = -1, false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		if !inside && (c == ' ' || c == '\t') {
			finish()
			continue
		}
		if begin < 0 {
			begin = i
		}
		switch {
		case c == 0:
			return nil, &Error{file, number, i + 1, "", "a zero byte"}
		case c == '"':
			inside, quoted = !inside, true
		case c == '\\' && inside && i+1 < len(line):
			i++
			text.WriteByte(line[i])
		default:
			text.WriteByte(c)
		}
	}
	if inside {
		return nil, &Error{file, number, begin + 1, line[begin:], "the quotation has no end"}
	}
	finish()
	r.end = word{line: number, column: len(line) + 1}
	return r, nil
}

// peek is the next word, without text at the end.
func (r *reader) peek() word {
	if r.at < len(r.words) {
		return r.words[r.at]
	}
	return r.end
}

func (r *reader) done() bool { return r.at >= len(r.words) }

func (r *reader) next() word {
	w := r.peek()
	r.at++
	return w
}

// value is the word behind an option.
func (r *reader) value(option word, what string) (word, error) {
	if r.done() {
		return r.end, r.fail(r.end, "%s needs %s", option.text, what)
	}
	return r.next(), nil
}

func (r *reader) fail(w word, format string, args ...any) error {
	return &Error{r.file, w.line, w.column, w.text, fmt.Sprintf(format, args...)}
}

// part is a piece of a word, for messages that point into it.
func (w word) part(from, to int) word {
	out := word{text: w.text[from:to], line: w.line, column: w.column, quoted: w.quoted}
	if !w.quoted {
		out.column += from
	}
	return out
}

// each calls f for the parts of a word between separators.
func (w word) each(sep byte, f func(word) error) error {
	from := 0
	for i := 0; i <= len(w.text); i++ {
		if i == len(w.text) || w.text[i] == sep {
			if err := f(w.part(from, i)); err != nil {
				return err
			}
			from = i + 1
		}
	}
	return nil
}

// cut splits a word at the first separator.
func (w word) cut(sep byte) (before, after word, found bool) {
	i := strings.IndexByte(w.text, sep)
	if i < 0 {
		return w, word{}, false
	}
	return w.part(0, i), w.part(i+1, len(w.text)), true
}
