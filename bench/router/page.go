// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// page is the router's page while it is written.
type page struct{ *suite.Page }

func writePage(base *suite.Page) {
	p := &page{base}
	p.Opening("The router")
	p.Provenance()
	p.allTheTargets()
	p.loses()
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.clocks()
	p.Skipped(absent)
}

// renderers draw the sections; those without one have only their remarks.
var renderers = map[string]func(*page, *report.Section){
	"forwarding": (*page).forwarding,
	"scale":      (*page).scale,
	"cores":      (*page).cores,
	"flows":      (*page).watchedFlows,
	"slow":       func(p *page, s *report.Section) { p.Compare(s, "cost", suite.LinuxGRO, true) },
	"bulk": func(p *page, s *report.Section) {
		p.Compare(s, "throughput", suite.LinuxGRO, false)
		p.BarsOf(s, "throughput")
	},
	"latency":   (*page).latency,
	"chains":    (*page).chains,
	"reaction":  (*page).reaction,
	"lifecycle": (*page).lifecycle,
	"obeyed":    (*page).obeyed,
	"memory":    (*page).memory,
	"cost":      (*page).cost,
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "VPP side by side", Why: "it takes over interfaces by DPDK or memif and polls a core; its figures above are from its own packet generator"},
	{What: "Polycube", Why: "unmaintained since 2022; needs LLVM 9 and libraries that no supported distribution has"},
	{What: "nft flowtable", Why: "belongs to the gateway, with conntrack; the development kernel has no nf_flow_table"},
	{What: "Open vSwitch, bpfilter, Cilium", Why: "no routers: they belong to the bridge, gateway and container suites"},
	{What: "physical NICs", Why: "none in the development machine; veths carry XDP frames through the same program"},
}
