// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	link  = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]*))?\)|(?:src|srcset)="([^"]+)"`)
	fence = regexp.MustCompile("(?ms)^```.*?^```\\s*$")
	title = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// TestLinks: what the documents point to exists, the section too.
func TestLinks(t *testing.T) {
	sections := map[string]map[string]bool{}
	for _, f := range tree(t) {
		if path.Ext(f.Path) == ".md" {
			sections[f.Path] = anchors(string(f.Text))
		}
	}
	checked := 0
	for _, f := range tree(t) {
		if path.Ext(f.Path) != ".md" || f.Vendored() {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(f.Text), -1) {
			to, section := m[1]+m[3], m[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || to+section == "" {
				continue
			}
			checked++
			file := f.Path
			if to != "" {
				file = path.Join(path.Dir(f.Path), to)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s points to %s, which is not there", f.Path, to)
			} else if known, ok := sections[file]; section != "" && ok && !known[section] {
				t.Errorf("%s points to section %q of %s, which has none of that name", f.Path, section, file)
			}
		}
	}
	if checked == 0 {
		t.Error("no link found in any document: the pattern is wrong")
	}
}

// anchors are the names by which sections are pointed to: the title in lower case without punctuation, with dashes for spaces, and a number from the second of a name on.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	count := map[string]int{}
	for _, m := range title.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, link.ReplaceAllString(strings.TrimSpace(m[1]), ""))
		if n := count[name]; n > 0 {
			out[name+"-"+strconv.Itoa(n)] = true
		} else {
			out[name] = true
		}
		count[name]++
	}
	return out
}

// TestAnchors: sections are called what a forge calls them.
func TestAnchors(t *testing.T) {
	got := anchors("# One, two: `x_y`?\ntext\n## Pass/drop & so on\n```\n# a comment\n```\n## Again\n## Again\n")
	for _, want := range []string{"one-two-x_y", "passdrop--so-on", "again", "again-1"} {
		if !got[want] {
			t.Errorf("no %q in %v", want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("sections that are none: %v", got)
	}
}
