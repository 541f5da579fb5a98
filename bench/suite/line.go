// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// Lane is a line of namespaces of its own for one variant, ready to be measured whenever its turn comes: nothing is attached or
// detached between turns.
type Lane struct {
	*lab.Net
	Bench   *Bench
	Variant string
	Engine  *Engine                   // nil: Linux or a peer
	Hook    graph.Hook                // that the engine was asked to use
	Sinks   []*lab.Sink               // where packets end
	Gens    map[string]*lab.Generator // by name of the traffic
	Want    reason.Code               // by which packets must leave the engine

	// Open lanes keep which share of the packets the fast path decided over, instead of insisting on one reason.
	Open bool
	// Mixed says that a share between none and all is what is measured, and no accident.
	Mixed bool
	// Decides is the ifindex where the fast path decides over the packets; 0: the router's first port.
	Decides int
	// Count counts the packets that the router has dealt with; nil: those that arrive at the sinks.
	Count func() (uint64, error)
	last  treatment
}

// treatment is what became of the packets of one measurement in the fast path.
type treatment struct {
	decided float64     // the share that it forwarded or dropped
	main    reason.Code // the most frequent reason of the others
	none    bool        // no packet met it
}

func (t treatment) why() string {
	if t.none {
		return "nothing is attached"
	}
	return t.main.String()
}

// newLane builds the line; the router works on NAPI kernel threads, whose run time is the cost of its packets.
func (b *Bench) newLane(variant string, o lab.LineOptions) (*Lane, error) {
	o.Threaded = true
	if o.Receive == lab.ReceivePlain {
		o.Receive = lab.ReceiveGRO
	}
	n, err := b.BuildLine(o)
	if err != nil {
		return nil, fmt.Errorf("building a line for %s: %w", variant, err)
	}
	return b.AdoptLane(variant, n)
}

// BuildLine is lab.BuildLine with a fast way to make many IPv4 routes.
func (b *Bench) BuildLine(o lab.LineOptions) (*lab.Net, error) {
	routes := o.V4
	o.V4 = lab.Prefixes{}
	n, err := lab.BuildLine(lab.UniquePrefix("bench"), o)
	if err != nil || routes.Count == 0 {
		return n, err
	}
	if err := n.Node(lab.Dut).ChangeRoutes(routes, "10.0.1.2", true); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// AdoptLane makes a lane of a line that is there already.
func (b *Bench) AdoptLane(variant string, n *lab.Net) (*Lane, error) {
	b.Later(n.Close)
	l := &Lane{Net: n, Bench: b, Variant: variant, Gens: map[string]*lab.Generator{}, Want: reason.Fast}
	for _, p := range []*lab.Port{n.Port(lab.SinkNode, "rx"), n.Port(lab.Src, "tx")} {
		if err := l.sinkAt(p); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *Lane) sinkAt(p *lab.Port) error {
	s, err := p.Sink()
	if err != nil {
		return err
	}
	l.Bench.Later(s.Close)
	l.Sinks = append(l.Sinks, s)
	return nil
}

// The ports of the line: the router's two, and their peers at the source and the sink.
func (l *Lane) In() *lab.Port  { return l.Port(lab.Dut, "in") }
func (l *Lane) Out() *lab.Port { return l.Port(lab.Dut, "out") }
func (l *Lane) TX() *lab.Port  { return l.Port(lab.Src, "tx") }
func (l *Lane) RX() *lab.Port  { return l.Port(lab.SinkNode, "rx") }

// Shunt starts shunt in the lane's router, at one hook.
func (l *Lane) Shunt(policy graph.Policy) (err error) {
	l.Hook = graph.Hook(policy.Hook)
	l.Engine, err = l.Bench.StartEngine(l.Node(lab.Dut), policy)
	return err
}

// Stream is traffic that enters at a port, made on a CPU. Its name tells it from the lane's other streams.
type Stream struct {
	Name    string
	Port    *lab.Port
	Traffic lab.Traffic
	CPU     int
}

// Forward is the usual stream: from the source to the sink.
func (l *Lane) Forward(name string, v6 bool, prefixes lab.Prefixes) Stream {
	src := "10.0.0.2"
	if v6 {
		src = "fd00:0:0:1::2"
	}
	return Stream{name, l.TX(), l.TX().Traffic(src, prefixes), l.Bench.GenCPU}
}

// Generator is the stream's generator, made at its first use.
func (l *Lane) Generator(s Stream) (*lab.Generator, error) {
	if g := l.Gens[s.Name]; g != nil {
		return g, nil
	}
	g, err := s.Port.Generator(s.Traffic, s.CPU)
	if err != nil {
		return nil, err
	}
	l.Bench.Later(g.Close)
	l.Gens[s.Name] = g
	return g, nil
}

// arrived is how many packets the sinks have seen, or what the lane counts instead.
func (l *Lane) arrived() (total uint64, err error) {
	if l.Count != nil {
		return l.Count()
	}
	for _, s := range l.Sinks {
		c, err := s.Count()
		if err != nil {
			return 0, err
		}
		total += c.Packets
	}
	return total, nil
}

// Work says where the router works: NAPI thread i of a polled port runs on cpus[i mod len(cpus)].
type Work struct {
	Ports []*lab.Port
	CPUs  []int
}

// AtIngress is the router's work where all of it begins at its first port, on the CPU of the device under test.
func (l *Lane) AtIngress() Work { return Work{[]*lab.Port{l.In()}, []int{l.Bench.DutCPU}} }

// Threads pins the router's threads and returns their ids, with those of the softirq threads of their CPUs, which take over what is left of
// a packet's way when there is much of it. They change when programs come and go, so this is done each time.
func (w Work) Threads() (pids []int, err error) {
	for _, p := range w.Ports {
		if err := p.PinNAPI(w.CPUs...); err != nil {
			return nil, err
		}
		more, err := p.NAPIThreads()
		if err != nil {
			return nil, err
		}
		pids = append(pids, more...)
	}
	for _, cpu := range w.CPUs {
		pid, err := lab.SoftirqThread(cpu)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// measure is once, repeated where the machine's other work got between the daemon and its watchdog: then the figure would be a mix of
// shunt and Linux. How often that happened is kept.
func (l *Lane) measure(w Work, streams ...Stream) (s lab.Sample, err error) {
	err = l.Retry(func() (err error) { s, err = l.once(w, streams...); return err })
	return s, l.accept(err, s.Packets > 0)
}

// Retry repeats what was spoiled.
func (l *Lane) Retry(once func() error) error { return l.Bench.Retry(l.Variant, once) }

// Retry repeats what was spoiled for a variant.
func (b *Bench) Retry(variant string, once func() error) (err error) {
	for range b.Size.attempts {
		if err = once(); err == nil || !errors.As(err, new(Spoiled)) {
			return err
		}
		b.Say("%s: measuring again: %v", variant, err)
		b.repeated++
		time.Sleep(b.Size.Warm)
	}
	return err
}

// Spoiled is a measurement that is not one of what the variant claims.
type Spoiled string

func (s Spoiled) Error() string { return string(s) }

// once sends the streams at full rate and returns what the router's threads took for what arrived.
func (l *Lane) once(w Work, streams ...Stream) (s lab.Sample, err error) {
	pids, err := w.Threads()
	if err != nil {
		return s, err
	}
	var gens []*lab.Generator
	for _, st := range streams {
		g, err := l.Generator(st)
		if err != nil {
			return s, err
		}
		gens = append(gens, g)
	}
	before, err := l.Counters()
	if err != nil {
		return s, err
	}
	for _, g := range gens {
		if err := g.Start(); err != nil {
			return s, err
		}
	}
	time.Sleep(l.Bench.Size.Warm)
	s, err = lab.NewMeter(pids...).Measure(l.Bench.Size.Measure, l.arrived)
	for _, g := range gens {
		err = errors.Join(err, g.Stop())
	}
	if err == nil && s.Packets == 0 {
		err = Spoiled("no packet arrived")
	}
	if err != nil {
		return s, err
	}
	return s, l.Check(before)
}

// Counters are those of the router's ingress, by reason.
func (l *Lane) Counters() (c [reason.Count]uint64, err error) {
	if l.Engine == nil {
		return c, nil
	}
	return l.Engine.counters(cmp.Or(l.Decides, l.In().Index))
}

// Check makes sure that shunt did with the packets what the variant claims.
func (l *Lane) Check(before [reason.Count]uint64) error {
	if l.Engine == nil {
		return nil
	}
	after, err := l.Counters()
	if err != nil {
		return err
	}
	if l.Open {
		l.last = treatmentOf(before, after)
		if d := l.last.decided; d > 0.01 && d < 0.99 && !l.Mixed {
			return Spoiled(fmt.Sprintf("%.1f %% of the packets were fast, the others not, mostly by %s", 100*d, l.last.main))
		}
		return nil
	}
	if code, share := mainReason(before, after); code != l.Want || share < 0.99 {
		return Spoiled(fmt.Sprintf("%.1f %% of the packets left by %s, the most frequent reason; all should have by %s", 100*share, code, l.Want))
	}
	return nil
}

// Undisturbed makes sure that no packet since a reading of the counters met a fast path that had turned itself off: a daemon that the
// machine held up, or a change that it had yet to take in, is no property of the variant.
func (l *Lane) Undisturbed(before [reason.Count]uint64) error {
	after, err := l.Counters()
	if err != nil {
		return err
	}
	for i := range after {
		if n := after[i] - before[i]; n > 0 && reason.Code(i) != reason.Resting && reason.Code(i).Describe().Class == reason.State {
			return Spoiled(fmt.Sprintf("%d packets were left to Linux by %s", n, reason.Code(i)))
		}
	}
	return nil
}

// Why says in words why packets since a reading of the counters were not fast.
func (l *Lane) Why(before [reason.Count]uint64) string {
	after, err := l.Counters()
	if err != nil {
		return err.Error()
	}
	return treatmentOf(before, after).why()
}

// Turn is a measurement of the lane as a turn: rate and cost go into the case.
func (l *Lane) Turn(c string, w Work, streams ...Stream) measure.Turn {
	return measure.Turn{Name: l.Variant + ", " + c, Run: func(set *measure.Set) error {
		s, err := l.measure(w, streams...)
		if err != nil {
			return err
		}
		set.Add(c, l.Variant, "cost", "ns/packet", s.PerPacket())
		set.Add(c, l.Variant, "rate", "packets/s", s.Rate())
		l.keepShare(set, c)
		return nil
	}}
}

// accept takes what an open lane measured for what it is: a mix is an answer too, with its share beside it.
func (l *Lane) accept(err error, some bool) error {
	if l.Open && some && errors.As(err, new(Spoiled)) {
		return nil
	}
	return err
}

// keepShare keeps, for open lanes, what share of the last measurement was fast, and why the rest was not.
func (l *Lane) keepShare(set *measure.Set, c string) {
	if !l.Open || l.Engine == nil {
		return
	}
	set.Add(c, l.Variant, FastShare, "share", l.last.decided)
	if l.last.decided < 0.99 {
		l.Bench.Fact("not fast: "+c+", "+l.Variant, l.last.why())
	}
}

// FastShare is the metric of open lanes: which share of the packets the fast path decided over.
const FastShare = "fast"
