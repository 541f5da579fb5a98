// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// mutant is one change of one line.
type mutant struct {
	File     string `json:"file"`
	Line     int    `json:"line"` // from 1
	Operator string `json:"operator"`
	Before   string `json:"before"` // the line
	After    string `json:"after"`
	Nth      int    `json:"nth,omitempty"` // how many lines before it in the file read the same
}

// key names a mutant in the journal, also after lines have moved.
func (m mutant) key() string {
	return fmt.Sprint(m.File, m.Nth, "\n", strings.TrimSpace(m.Before), "\n", strings.TrimSpace(m.After), "\n", m.named())
}

func (m mutant) named() bool { return strings.HasPrefix(m.Operator, "named (") }

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s  →  %s", m.File, m.Line, m.Operator, strings.TrimSpace(m.Before), strings.TrimSpace(m.After))
}

// operator makes all its changes of a line.
type operator struct {
	name string
	make func(line string) []string
}

// replace changes each single match of a pattern by a template.
func replace(name, pattern, with string) operator {
	re := regexp.MustCompile(pattern)
	return operator{name, func(line string) []string {
		var out []string
		for _, m := range re.FindAllStringSubmatchIndex(line, -1) {
			changed := string(re.ExpandString(nil, with, line, m))
			out = append(out, line[:m[0]]+changed+line[m[1]:])
		}
		return out
	}}
}

var number = regexp.MustCompile(`\b(0x[0-9a-fA-F]+|[0-9]+)\b`)

// offByOne changes each number of a line.
func offByOne(line string) []string {
	var out []string
	for _, m := range number.FindAllStringIndex(line, -1) {
		n, err := strconv.ParseUint(line[m[0]:m[1]], 0, 32)
		if err != nil {
			continue
		}
		out = append(out, line[:m[0]]+fmt.Sprint(n+1)+line[m[1]:])
	}
	return out
}

// dropped removes a statement that stands alone on its line.
var statement = regexp.MustCompile(`^\s+(ip->|p->|rev\.|use->|eth->|tag\[|nh\.|check |ctx->|__builtin_mem|note_|ttl|remember|NODE\(|out\.|c\.|b\.|t\.|p\.)[^{}]*[;)]?$`)

func dropped(line string) []string {
	if !statement.MatchString(line) || strings.Contains(line, ":=") || strings.Contains(line, "range ") || strings.HasSuffix(strings.TrimSpace(line), ",") || strings.Contains(line, "case ") {
		return nil
	}
	return []string{"\t;"}
}

// operators in the order in which they appear in reports.
var operators = []operator{
	replace("comparison", `(\S) <= `, "$1 < "), replace("comparison", `(\S) < `, "$1 <= "),
	replace("comparison", `(\S) >= `, "$1 > "), replace("comparison", `(\S) > `, "$1 >= "),
	replace("negation", ` == `, " != "), replace("negation", ` != `, " == "),
	replace("check removed", `\bif \(.*\)$`, "if (0)"), replace("check removed", `\bif [^(].* \{$`, "if false {"),
	replace("logic", ` && `, " || "), replace("logic", ` \|\| `, " && "), replace("logic", `\(!`, "("), replace("logic", ` !([^=])`, " $1"),
	{"constant", offByOne},
	replace("arithmetic", ` \+ `, " - "), replace("arithmetic", ` - `, " + "), replace("arithmetic", ` & `, " | "), replace("arithmetic", `--;`, "++;"), replace("arithmetic", ` \+= `, " -= "),
	replace("field", `\bsrc\b`, "dst"), replace("field", `\bdst\b`, "src"), replace("field", `\bsport\b`, "dport"), replace("field", `\bdport\b`, "sport"),
	replace("field", `\bsmac\b`, "dmac"), replace("field", `\bdmac\b`, "smac"), replace("field", `ipv4_dst`, "ipv4_src"), replace("field", `ipv4_src`, "ipv4_dst"),
	replace("field", `fib->ifindex`, "in->ifindex"), replace("field", `in->ifindex`, "fib->ifindex"),
	replace("field", `Conf4`, "Conf6"), replace("field", `IP4`, "IP6"), replace("field", `IP6`, "IP4"), replace("field", `All4`, "Default4"), replace("field", `TxXDP`, "TxTC"),
	replace("reason", `return (LEAVE\()?SHUNT_R_\w+\)?;`, "return NEXT;"),
	{"statement dropped", dropped},
}

// elsewhere are lines that nothing can reach on a kernel without VLAN, VRF and bond devices and ipsets of two networks, or that choose between ways of reading the same
// thing on different kernels. They are tested on the emulated machines' kernels, where building a mutant's rig takes too long.
var elsewhere = regexp.MustCompile(`(?i)vlan|\btags?\b|bond|vrf|outer|inner|kern_ctx|probe_read|SHUNT_PEEK|SHUNT_CTX|skip_neigh|lowers\(|rpf_in|IOAM|no_frags|Frags|Transparent|AFXDP|taps?\b|SET_BOTH|SET_LONGER|SET_PAIRS|set_pair|nets_end|->except|S\((except|pair|nets)\)`)

// code says whether a line is worth changing: no comment, no declaration of names, no error handling of map look-ups that
// cannot fail.
func code(file, line string) bool {
	t := strings.TrimSpace(line)
	switch {
	case t == "", strings.HasPrefix(t, "//"), strings.HasPrefix(t, "/*"), strings.HasPrefix(t, "*"), strings.HasPrefix(t, "#"), strings.HasPrefix(t, "import"),
		strings.HasPrefix(t, "__uint("), strings.HasPrefix(t, "__type("), strings.HasPrefix(t, "static "), strings.HasPrefix(t, "always_inline"),
		strings.HasPrefix(t, "return nil, "), strings.HasPrefix(t, "func "), strings.HasPrefix(t, "package "), strings.Contains(t, "because("):
		return false
	case strings.HasSuffix(file, ".go"):
		return strings.HasPrefix(line, "\t")
	}
	return strings.HasPrefix(line, "\t") && !strings.HasPrefix(t, "PROTO_") && !strings.HasPrefix(t, "__be") && !strings.HasPrefix(t, "__u") && !strings.HasPrefix(t, "struct ")
}

// mutate makes every mutant of a file.
func mutate(file, text string) []mutant {
	var out []mutant
	same := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		same[strings.TrimSpace(line)]++
		if !code(file, line) || !*allFlag && elsewhere.MatchString(line) {
			continue
		}
		plain, comment := line, ""
		if at := strings.Index(line, "/*"); at >= 0 {
			plain, comment = line[:at], line[at:]
		} else if at := strings.Index(line, "//"); at >= 0 {
			plain, comment = line[:at], line[at:]
		}
		for _, op := range operators {
			for _, changed := range op.make(strings.TrimRight(plain, " \t")) {
				if changed != plain {
					out = append(out, mutant{file, i + 1, op.name, line, changed + comment, same[strings.TrimSpace(line)] - 1})
				}
			}
		}
	}
	return out
}
