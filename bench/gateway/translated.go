// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

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
		if err := b.Part(c.name, func() error {
			return measureFlows(b, c.name, routerOut, func(lanes []*suite.Lane) error { return masquerade(c.rules, lanes) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// masquerade has routers translate, and gives them rules beside.
func masquerade(rules table, lanes []*suite.Lane) error {
	for _, l := range lanes {
		if err := l.Node(lab.Dut).Shell("nft 'table ip masq { chain post { type nat hook postrouting priority srcnat; oifname out masquerade; }; }'"); err != nil {
			return fmt.Errorf("having %s masquerade: %w", l.Variant, err)
		}
	}
	if rules.size() == 0 {
		return nil
	}
	return give(nft, rules, lanes...)
}
