// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/reason"
)

// docs/semantics-routing.md, -bridging.md and -overlays.md say where each thing that Linux does is decided: every reason that a packet can leave by
// has to be in one of them, and every reason that they name has to exist.
func TestSemanticsDocumentKnowsEveryReason(t *testing.T) {
	doc := ""
	for _, name := range []string{"routing", "bridging", "overlays"} {
		raw, err := os.ReadFile("../../docs/semantics-" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		doc += string(raw)
	}
	for c := reason.Code(0); c < reason.Count; c++ {
		switch c.Describe().Class {
		case reason.Packet, reason.Lookup, reason.Config, reason.Dropped:
		default:
			continue
		}
		name := c.String()
		if family, _, ok := strings.Cut(strings.TrimPrefix(name, "netfilter:ip"), ":"); ok && len(family) == 1 {
			name = "netfilter:ip" + family + ":…"
		}
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("%s is not in the document", c)
		}
	}
	quoted := regexp.MustCompile("`([a-z0-9:-]+)`")
	for _, line := range strings.Split(doc, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[3]) == "reason" {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if _, ok := reason.Parse(m[1]); !ok {
				t.Errorf("the document names %q, which is no reason: %s", m[1], line)
			}
		}
		if strings.TrimSpace(cells[4]) == "" {
			t.Errorf("no proof: %s", line)
		}
	}
}
