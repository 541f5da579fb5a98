// SPDX-License-Identifier: Apache-2.0

package reason

import (
	"fmt"
	"strings"
)

// Header renders the C enum. Its values index the counters, so it carries the count as its last member.
func Header() string {
	var b strings.Builder
	b.WriteString("/* SPDX-License-Identifier: GPL-2.0 */\n/* Code generated from internal/reason/table.go; DO NOT EDIT. */\n")
	b.WriteString("#ifndef SHUNT_REASONS_H\n#define SHUNT_REASONS_H\n\nenum shunt_reason {\n")
	for i, r := range table {
		id := strings.ToUpper(strings.NewReplacer("-", "_", ":", "_").Replace(r.Name))
		fmt.Fprintf(&b, "\tSHUNT_R_%s = %d,\n", id, i)
	}
	fmt.Fprintf(&b, "\tSHUNT_R_COUNT = %d,\n};\n\n#endif\n", Count)
	return b.String()
}

// Markdown renders docs/reasons.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Reasons\n\nEvery packet that shunt sees leaves by one of these, each with a counter; `shunt show reasons --all` prints them,\n" +
		"`shunt status` uses them for interfaces. Generated from `internal/reason/table.go`.\n\n| name | class | meaning |\n| --- | --- | --- |\n")
	for _, r := range table {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, r.Class, r.Doc)
	}
	return b.String()
}
