// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"fmt"
	"strings"
)

func bang(b bool) string {
	if b {
		return "! "
	}
	return ""
}

func portRange(lo, hi uint16) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d:%d", lo, hi)
}

func maskText(value, mask uint32) string {
	if mask == ^uint32(0) {
		return fmt.Sprintf("0x%x", value)
	}
	return fmt.Sprintf("0x%x/0x%x", value, mask)
}

func names(list []string, bits uint32) string {
	var out []string
	for n := range 32 {
		if bits>>n&1 == 0 {
			continue
		}
		if n < len(list) && list[n] != "" {
			out = append(out, list[n])
		} else {
			out = append(out, fmt.Sprintf("0x%x", uint32(1)<<n))
		}
	}
	return strings.Join(out, ",")
}

// Quote writes a word as iptables-save does.
func Quote(s string) string {
	plain := s != ""
	for _, r := range s {
		plain = plain && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if plain {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(s) + `"`
}
