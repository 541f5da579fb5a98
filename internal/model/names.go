// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text as it may be shown: what is no UTF-8, and what a terminal would obey instead of showing it, is written as \xNN, byte by byte.
// Linux lets names consist of nearly any bytes.
func Printable(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || odd(r) {
			fmt.Fprintf(&b, strings.Repeat(`\x%02x`, n), bytesOf(s[:n])...)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func bytesOf(s string) (out []any) {
	for _, c := range []byte(s) {
		out = append(out, c)
	}
	return out
}

// PrintableName is the name of a device as it is shown everywhere. No two devices have the same: what looks like an escape already is escaped itself.
func PrintableName(name string) string {
	return Printable(strings.ReplaceAll(name, `\x`, `\x5cx`))
}

// LinkCalled finds a device by its name, or by that as it is shown; nil when there is none.
func (n *Network) LinkCalled(name string) *Link {
	if l := n.LinkByName(name); l != nil {
		return l
	}
	for _, l := range n.Links {
		if PrintableName(l.Name) == name {
			return l
		}
	}
	return nil
}
