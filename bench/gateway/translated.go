// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var translatedSection = suite.Section{
	Name:   "translated",
	Title:  "Translated flows",
	Budget: budget(400),
	About: "The same established flows, masqueraded behind the router's address (nft, and once by iptables): alone, one flow too, and with \"established, related accept\" and 100 source rules before. The measured packets go out; each has a new source, and " +
		"checksums to match. Then flows whose destination is mapped (iptables, NETMAP). The last of both kinds belong together: the flows, or one, without a rule, and masqueraded behind 1,000 rules as a container engine writes them for 500 published " +
		"ports, half of them in nat chains, with its chains of FORWARD in its order.",
	Run: runTranslated,
}

const (
	caseMasqueraded = "masqueraded"
	caseStateful    = "masqueraded, established, then 100 rules"
	caseMapped      = "destination mapped"
	caseBare        = "no rule, not tracked"
	caseEngine      = "masqueraded, 1,000 rules of a container engine"
	caseTables      = "masqueraded by iptables"
	caseOne         = "masqueraded, one flow"
	caseBareOne     = "no rule, not tracked, one flow"
	caseEngineOne   = "masqueraded, 1,000 rules of a container engine, one flow"
)

const byTables = "*nat\n-A POSTROUTING -o out -j MASQUERADE\nCOMMIT\n"

// translatedParts are cases that are measured together.
var translatedParts = [][]flowCase{
	{{caseMasqueraded, prefixes.Count, masqueraded, func(lanes []*suite.Lane) error { return masquerade(table{}, lanes) }}},
	{{caseStateful, prefixes.Count, masqueraded, func(lanes []*suite.Lane) error { return masquerade(stateful(source(100)), lanes) }}},
	{{caseTables, prefixes.Count, masqueraded, func(lanes []*suite.Lane) error { return restore(byTables, lanes) }}},
	{{caseOne, 1, masqueraded, func(lanes []*suite.Lane) error { return masquerade(table{}, lanes) }}},
	{{caseMapped, prefixes.Count, mapped, mapDestinations}},
	{{caseBare, prefixes.Count, nil, nil}, {caseEngine, prefixes.Count, masqueraded, func(lanes []*suite.Lane) error { return restore(engineRules(500), lanes) }}},
	{{caseBareOne, 1, nil, nil}, {caseEngineOne, 1, masqueraded, func(lanes []*suite.Lane) error { return restore(engineRules(500), lanes) }}},
}

func runTranslated(b *suite.Bench) error {
	for _, cases := range translatedParts {
		if err := b.Part(cases[len(cases)-1].name, func() error { return measureFlows(b, compared, cases...) }); err != nil {
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

// mapDestinations maps the network of the prefixes to its neighbour.
func mapDestinations(lanes []*suite.Lane) error {
	for _, l := range lanes {
		if err := l.Node(lab.Dut).Exec("ip route add 17.0.0.0/8 via 10.0.1.2"); err != nil {
			return err
		}
	}
	return restore("*nat\n-A PREROUTING -i in -d 16.0.0.0/8 -j NETMAP --to 17.0.0.0/8\nCOMMIT\n", lanes)
}

// mapped answers such flows.
func mapped(f lab.Flow) lab.Flow {
	f = plain(f)
	to := f.Src.As4()
	to[0]++
	f.Src = netip.AddrFrom4(to)
	return f
}

func restore(rules string, lanes []*suite.Lane) error {
	for _, l := range lanes {
		if err := l.Node(lab.Dut).Feed(rules, "iptables-restore"); err != nil {
			return fmt.Errorf("giving %s its rules: %w", l.Variant, err)
		}
	}
	return nil
}

// engineRules are what dockerd 28 writes for a network of that many containers with a published port each; "in" is the network's device.
func engineRules(containers int) string {
	var s strings.Builder
	s.WriteString("*nat\n:DOCKER - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A POSTROUTING -s 10.0.0.0/16 ! -o in -j MASQUERADE\n")
	container := func(i int) string { return fmt.Sprintf("10.0.%d.%d", 2+i/200, 10+i%200) }
	for i := range containers {
		fmt.Fprintf(&s, "-A DOCKER ! -i in -p tcp -m tcp --dport %d -j DNAT --to-destination %s:80\n", 8000+i, container(i))
	}
	s.WriteString("COMMIT\n*filter\n:FORWARD DROP [0:0]\n:DOCKER - [0:0]\n:DOCKER-BRIDGE - [0:0]\n:DOCKER-CT - [0:0]\n:DOCKER-FORWARD - [0:0]\n:DOCKER-USER - [0:0]\n" +
		"-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-FORWARD\n-A DOCKER-FORWARD -j DOCKER-CT\n-A DOCKER-FORWARD -j DOCKER-BRIDGE\n-A DOCKER-FORWARD -i in -j ACCEPT\n" +
		"-A DOCKER-CT -o in -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A DOCKER-BRIDGE -o in -j DOCKER\n")
	for i := range containers {
		fmt.Fprintf(&s, "-A DOCKER -d %s/32 ! -i in -o in -p tcp -m tcp --dport 80 -j ACCEPT\n", container(i))
	}
	s.WriteString("-A DOCKER ! -i in -o in -j DROP\nCOMMIT\n")
	return s.String()
}
