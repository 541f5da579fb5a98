// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// stages is a table for each direction, with what every stage adds, and one for single packets.
func (p *page) stages(s *report.Section) {
	for _, w := range ways {
		t := report.NewTable("the packet is", "ns/packet", "this stage", "ns of it", "soft interrupts/packet", "Mpps", "fast")
		var bars []report.Bar
		for _, x := range w.steps() {
			r := s.Row(w.name, x.name, "cost")
			if r == nil {
				continue
			}
			own := r.Stat()
			if x.after != "" {
				own = measure.Of(minus(r, s.Row(w.name, x.after, "cost")))
			}
			t.Row(x.name, report.Spread(r.Stat()), x.stage, report.Spread(own), report.Spread(s.Row(w.name, x.name, "soft").Stat()),
				report.Spread(measure.Of(suite.Scaled(s.Row(w.name, x.name, "rate"), 1e-6))), share(s, w.name, x.name))
			bars = append(bars, report.Bar{Label: x.name, Stat: r.Stat()})
		}
		if t.Empty() {
			continue
		}
		p.Para("### %s by a container", suite.Capital(w.name))
		p.Table(t)
		p.Plot("stages-"+w.name, w.name, report.Bars("Cost of a packet, "+w.name, "ns/packet", bars))
	}
	p.beyond(s)
	t := report.NewTable("one packet at a time", "µs/packet, socket to socket", "× Linux", "soft interrupts/packet")
	for _, v := range s.Variants("latency") {
		t.Row(v, report.Spread(s.Row(oneAtATime, v, "latency").Stat()), report.Spread(suite.Ratio(s, oneAtATime, v, suite.LinuxGRO, "latency", true)),
			report.Spread(s.Row(oneAtATime, v, "soft").Stat()))
	}
	if !t.Empty() {
		p.Para("### One packet at a time")
		p.Table(t)
		p.Para("Where a soft interrupt polls one device and so gives another one work, this kernel polls that one too before the soft interrupt ends. So the one that a bridge or bpf_redirect costs more by the article is not counted here; what polling costs is in the times.")
	}
}

// published is by how much less than its bridge the host of ByteDance's article forwarded a packet with programs that redirect everything, looking at nothing; it counted
// the time of functions from the NIC's or the container's device on.
var published = map[string]map[string]string{"received": {byRedirect: "45 %", byPeer: "82 %"}, "sent": {byRedirect: "42 %"}}

// beyond is a table of what a packet costs behind the driver, where all have it alike.
func (p *page) beyond(s *report.Section) {
	t := report.NewTable("behind the driver and tc", "ns/packet", "less than the bridge", "ByteDance's article")
	for _, w := range ways {
		base := s.Row(w.name, atTC, "cost")
		of := func(v string) *measure.Row { return &measure.Row{Rounds: minus(s.Row(w.name, v, "cost"), base)} }
		for _, x := range w.steps() {
			if x.drops || s.Row(w.name, x.name, "cost") == nil {
				continue
			}
			said := published[w.name][x.name]
			if said == "" {
				said = "–"
			}
			var less []float64
			for _, share := range measure.Over(of(x.name), of(suite.LinuxGRO)) {
				less = append(less, 100*(1-share))
			}
			t.Row(w.name+": "+x.name, report.Spread(of(x.name).Stat()), report.Spread(measure.Of(less))+" %", said)
		}
	}
	if !t.Empty() {
		p.Para("### Behind the driver")
		p.Table(t)
	}
}

// minus is, round by round, what one row has more than another.
func minus(a, b *measure.Row) (out []float64) {
	if a == nil || b == nil {
		return nil
	}
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		out = append(out, a.Rounds[i]-b.Rounds[i])
	}
	return out
}

// pairs is a table of rates, and a plot over the number of pairs for each thing that they do.
func (p *page) pairs(s *report.Section) {
	p.rates(s)
	for _, in := range []situation{plain, tracked} {
		for _, x := range []struct{ what, metric, unit, file string }{
			{"tcp round trips", "rate", "round trips/s", "tcp"}, {"udp round trips", "rate", "round trips/s", "udp"}, {"tcp stream", "throughput", "Gbit/s", "stream"},
		} {
			p.pairsPlot(s, in, x.what, x.metric, x.unit, x.file)
		}
	}
}

// pairsPlot draws what is measured over the number of pairs.
func (p *page) pairsPlot(s *report.Section, in situation, what, metric, unit, file string) {
	var cases, places []string
	for n := range 100 {
		if c := pairsCase(in, what, n); s.Row(c, suite.LinuxGRO, metric) != nil {
			cases, places = append(cases, c), append(places, fmt.Sprint(n))
		}
	}
	if in.track {
		file += "-tracked"
	}
	p.over(s, "pairs-"+file, in.name+": "+what+", by pairs at once", metric, unit, cases, places)
}

// over draws Linux and shunt over the cases, each at its place.
func (p *page) over(s *report.Section, file, title, metric, unit string, cases, places []string) {
	if len(cases) == 0 {
		return
	}
	lines := []report.Line{{Label: suite.LinuxGRO}, {Label: shuntAuto}}
	for _, c := range cases {
		for i := range lines {
			lines[i].Stats = append(lines[i].Stats, s.Row(c, lines[i].Label, metric).Stat())
		}
	}
	p.Plot(file, title, report.Lines(title, unit, places, lines))
}

// sizes has tables of what was measured for some sizes, and plots over all of them.
func (p *page) sizes(s *report.Section) {
	p.rates(s)
	t := report.NewTable("messages, and variant", "µs, one way", "Gbit/s", "× Linux")
	for _, in := range []situation{plain, tracked} {
		for bytes := smallest; bytes <= largest; bytes *= 32 {
			c := messageCase(in, bytes)
			for _, v := range s.Variants("latency") {
				if r := s.Row(c, v, "latency"); r != nil {
					t.Row(c+": "+v, report.Spread(r.Stat()), report.Spread(s.Row(c, v, "bandwidth").Stat()), report.Spread(suite.Ratio(s, c, v, suite.LinuxGRO, "latency", true)))
				}
			}
		}
	}
	p.Table(t)
	for i, in := range []situation{plain, tracked} {
		p.messagesPlot(s, in, "latency", "µs one way", fmt.Sprint("latency-", i+1))
		p.messagesPlot(s, in, "bandwidth", "Gbit/s", fmt.Sprint("bandwidth-", i+1))
	}
}

// messagesPlot draws what NetPIPE found over the sizes of messages.
func (p *page) messagesPlot(s *report.Section, in situation, metric, unit, file string) {
	var cases, places []string
	for bytes, i := smallest, 0; bytes <= largest; bytes, i = bytes*2, i+1 {
		c, place := messageCase(in, bytes), ""
		if s.Row(c, suite.LinuxGRO, metric) == nil {
			continue
		}
		if i%4 == 0 {
			place = byteSize(bytes)
		}
		cases, places = append(cases, c), append(places, place)
	}
	p.over(s, "sizes-"+file, in.name+": NetPIPE's "+metric+" by size of messages", metric, unit, cases, places)
}
