// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var rulesSection = suite.Section{
	Name:   "rules",
	Title:  "Rules between containers",
	Budget: budget(300),
	About: "The two containers of \"Containers on one bridge\" with br_netfilter, and 0 or 900 filter rules in the chain forward, of which none matches before the last, which accepts. Round trips are of 1 byte by TCP and of 64 by UDP. Each variant is compared with itself " +
		"without rules, whether rules are fast there or not.",
	Run: runRules,
}

// ruled is the bridge with br_netfilter and so many rules.
func ruled(n int) situation {
	s := situation{name: fmt.Sprintf("%d rules", n), calls: true}
	if n > 0 {
		s.rules = ruleFile(n)
	}
	return s
}

// manyRules is how many the targets speak of.
const manyRules = 900

// ruleFile is a chain whose last rule alone matches.
func ruleFile(n int) string {
	var b strings.Builder
	b.WriteString("table ip bench {\n\tchain way { type filter hook forward priority 0;\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "\t\tip saddr 192.168.%d.%d tcp dport %d drop\n", i/250, 1+i%250, 20000+i)
	}
	b.WriteString("\t\tip saddr 10.0.0.0/16 accept\n\t}\n}\n")
	return b.String()
}

func runRules(b *suite.Bench) error {
	return b.Part("rules", func() error {
		var turns []measure.Turn
		for _, n := range []int{0, manyRules} {
			s := ruled(n)
			for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
				l, err := containersOn(b, variant, 1, s.host)
				if err != nil {
					return err
				}
				turns = append(turns, ruleTurns(b, s, l)...)
			}
		}
		return b.Turns("rules", 2*b.Size.Rounds, turns)
	})
}

func ruleTurns(b *suite.Bench, s situation, l *suite.SocketLane) (turns []measure.Turn) {
	for _, m := range []struct {
		kind string
		size int // of messages, as the targets have it
	}{{"tcp", 1}, {"udp", 64}} {
		turns = append(turns, measure.Turn{Name: l.Variant + ", " + s.name, Run: func(set *measure.Set) error {
			talked, err := b.Talk(m.kind, m.size, suite.Seat{SocketLane: l, CPU: b.DutCPU})
			if err != nil {
				return err
			}
			set.Add(s.name+": "+m.kind+" round trips", l.Variant, "rate", "round trips/s", talked.Rate)
			return nil
		}})
	}
	return append(turns, measure.Turn{Name: l.Variant + ", " + s.name, Run: func(set *measure.Set) error {
		rate, err := b.Pump(l, 1, b.DutCPU, b.DutCPU)
		if err != nil {
			return err
		}
		set.Add(s.name+": tcp stream", l.Variant, "throughput", "Gbit/s", rate*8/1e9)
		return nil
	}})
}
