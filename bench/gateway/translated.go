// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var translatedSection = suite.Section{
	Name:   "translated",
	Title:  "Masqueraded flows",
	Budget: budget(90),
	About: "The same established flows, masqueraded behind the router's address (nft): alone, and with \"established, related accept\" and 100 source rules before. The measured packets go out; each has a new source, and " +
		"checksums to match.",
	Run: runTranslated,
}

var translatedCases = []struct {
	name  string
	rules table
}{{"masqueraded", table{}}, {"masqueraded, established, then 100 rules", stateful(source(100))}}

func runTranslated(b *suite.Bench) error {
	for _, c := range translatedCases {
		if err := b.Part(c.name, func() error { return measureTranslated(b, c.name, c.rules) }); err != nil {
			return err
		}
	}
	return nil
}

func measureTranslated(b *suite.Bench, name string, rules table) error {
	lanes, err := openLanes(b, compared)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if err := l.Node(lab.Dut).Shell("nft 'table ip masq { chain post { type nat hook postrouting priority srcnat; oifname out masquerade; }; }'"); err != nil {
			return fmt.Errorf("having %s masquerade: %w", l.Variant, err)
		}
	}
	if rules.size() > 0 {
		if err := give(nft, rules, lanes...); err != nil {
			return err
		}
	}
	if err := establish(b, lanes, routerOut); err != nil {
		return err
	}
	if err := ready(lanes...); err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(name, l.AtIngress(), l.Forward("plain", false, prefixes)))
	}
	return b.Turns(name, extents[b.Size.Name].rounds, turns)
}
