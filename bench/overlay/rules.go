// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var rulesSection = suite.Section{
	Name:   "rules",
	Title:  "The user's rules on both nodes",
	Budget: budget(240),
	About: "TCP between pods of two nodes by VXLAN, with 0 to 900 rules of the user's own before kube-proxy's and Flannel's in the chain FORWARD of both nodes, none of which matches. " +
		"\"Docker of two hosts, joined by hand\" has the thesis's own arrangement.",
	Run: runRules,
}

var ruleCounts = map[string][]int{"full": {0, 100, 300, 900}, "quick": {0, 900}, "smoke": {0, 10}}

func runRules(b *suite.Bench) error {
	return b.Part("rules", func() error {
		var turns []measure.Turn
		for _, n := range ruleCounts[b.Size.Name] {
			name := fmt.Sprintf("%d rules", n)
			for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
				c, err := kind{backend: vxlan, pairs: 1, rules: n}.build(b, variant)
				if err != nil {
					return err
				}
				l := c.across()
				turns = append(turns, measure.Turn{Name: variant + ", " + name, Run: func(set *measure.Set) error {
					talked, err := b.Talk("tcp", 1, seat(b, l, "tcp", b.DutCPU))
					if err != nil {
						return err
					}
					suite.AddLatency(set, name+": tcp round trips", variant, measure.Of(talked.Times), talked.Rate)
					return nil
				}}, streamTurn(b, name, l))
			}
		}
		return b.Turns("rules", b.Size.Rounds, turns)
	})
}
