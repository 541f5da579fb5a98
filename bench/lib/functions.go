// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/geo"
)

var functions = suite.Section{
	Name: "functions", Title: "Network functions as whole programs", Budget: budget(25),
	About: "60-byte UDP packets of 4,096 flows into one veth, where an XDP program reads the flow, does its work and drops the packet; the cost is the run time of the device's polling thread per packet, on a CPU of its own, the least of four measurements in each round. " +
		"\"Alone\" is the program by itself, fed with the same packets by BPF_PROG_TEST_RUN, less the bare one: in each round all variants take turns twenty times (five longer ones with ordered stores, which are larger than caches), and the fastest of each counts. \"Bare\" does all but the work: it is the floor under the others, and the driver's share. Each turn waits until the host of the virtual machine has both CPUs near each other, as far as there is time: else a packet's header comes twice as late, which the bare program does not wait for and a lookup does. That every packet was worked on is read back from counters and sketches; the top-k monitor has to know 31 of the 32 heaviest of 2,080 flows to a tenth. What the variants are is said above, with the structures.",
	Run: runFunctions,
}

// bare is the variant that does nothing with the packet.
const bare = "bare"

// A function is a network function in its variants.
type function struct {
	name        string
	probability float64 // of its sampling; 0: does not sample
	rows        int     // of a count-min sketch, whose sums are read back; 0: is none
	variants    []variant
}

func everyFunction() []function {
	var all []function
	for _, rows := range []int{2, 4, 6, 8} {
		all = append(all, function{name: fmt.Sprintf("count-min, %d rows", rows), rows: rows, variants: []variant{
			{bare, "bare"}, {common, fmt.Sprintf("cms%d_common", rows)}, {best, fmt.Sprintf("cms%d_best", rows)}, {library, fmt.Sprintf("cms%d_shunt", rows)}}})
	}
	for _, percent := range []int{2, 4, 6, 8, 10} {
		all = append(all, function{name: fmt.Sprintf("NitroSketch, 8 rows at %d %%", percent), probability: float64(percent) / 100, variants: []variant{
			{bare, "bare"}, {common, "nitro_common"}, {best, "nitro_best"}, {library, "nitro_shunt"}}})
	}
	return all
}

// A bed is the line on which functions are measured, one at a time.
type bed struct {
	*suite.Lane
	work   suite.Work
	stream suite.Stream
	feeder *lab.Feeder // the same packets without a device
	large  bool        // what the function works on does not fit into a core's caches
}

func newBed(b *suite.Bench, flows int) (*bed, error) {
	n, err := b.BuildLine(lab.LineOptions{Threaded: true, Receive: lab.ReceiveGRO})
	if err != nil {
		return nil, fmt.Errorf("building the line: %w", err)
	}
	l, err := b.AdoptLane("", n)
	if err != nil {
		return nil, err
	}
	d := &bed{Lane: l, work: l.AtIngress(), stream: l.Forward("flows", false, lab.V4Prefixes(flows))}
	if d.feeder, err = d.stream.Traffic.Feeder(ebpf.XDP, ebpf.AttachXDP); err != nil {
		return nil, err
	}
	b.Later(d.feeder.Close)
	return d, nil
}

// A contender is a variant of a function, with what holds its state.
type contender struct {
	variant
	coll   *ebpf.Collection
	before func() error // empties the state, if it has to be
	after  func() error // checks that the work was done
}

func (c contender) run(f func() error) error {
	if c.before != nil {
		if err := c.before(); err != nil {
			return err
		}
	}
	if err := f(); err != nil || c.after == nil {
		return err
	}
	return c.after()
}

// measure lets the variants of a case take turns: on packets of the line, and fed with the same packets.
func (d *bed) measure(b *suite.Bench, c string, all []contender) error {
	var turns []measure.Turn
	for _, v := range all {
		turns = append(turns, d.turn(c, v))
	}
	return b.Turns(c, b.Size.Rounds, append(turns, d.alone(c, all)))
}

// turn measures a program on the bed: its cost and rate go into the case.
func (d *bed) turn(c string, v contender) measure.Turn {
	l := *d.Lane
	l.Variant = v.name
	l.Count = func() (uint64, error) {
		packets, _, err := counted(v.coll)
		return packets, err
	}
	return measure.Turn{Name: c + ", " + v.name, Run: func(set *measure.Set) error {
		if err := l.Bench.WaitNear(); err != nil {
			return err
		}
		return v.run(func() error {
			if err := suite.AttachXDP(l.In(), v.coll.Programs[v.program]); err != nil {
				return err
			}
			return fastest(l.Bench, set, l.Turn(c, d.work, d.stream))
		})
	}}
}

// fastest divides the time of a turn into several of its kind, and keeps the one in which a packet cost least: what else the machine does,
// and the generator on the other CPU, can only add.
func fastest(b *suite.Bench, set *measure.Set, turn measure.Turn) error {
	times := 1
	if b.Size.Name != "smoke" {
		times = 4
	}
	size := b.Size
	defer func() { b.Size = size }()
	b.Size.Measure /= time.Duration(times)
	b.Size.Warm /= time.Duration(times)
	var kept *measure.Set
	least := math.Inf(1)
	for range times {
		var once measure.Set
		if err := turn.Run(&once); err != nil {
			return err
		}
		for _, r := range once.Rows {
			if r.Metric == "cost" && r.Rounds[0] < least {
				kept, least = &once, r.Rounds[0]
			}
		}
	}
	if kept == nil {
		return errors.New("a turn told no cost")
	}
	for _, r := range kept.Rows {
		set.Add(r.Case, r.Variant, r.Metric, r.Unit, r.Rounds...)
	}
	return nil
}

// alone measures the programs without the line. All of them in one turn, a little of each in turn again and again: what is told is a
// difference to the bare one, so both have to be of the same moment.
func (d *bed) alone(c string, all []contender) measure.Turn {
	return measure.Turn{Name: c + ", alone", Run: func(set *measure.Set) error {
		packets, times := 40_000, batches
		if d.Bench.Size.Name != "full" {
			packets, times = 20_000, 3
		}
		if d.large { // see timedWarm: a call begins with caches that others have had
			packets, times = 4*packets, (times+3)/4
		}
		least := make([]float64, len(all))
		for i := range least {
			least[i] = math.Inf(1)
		}
		for range times {
			for i, v := range all {
				if err := v.run(func() error {
					took, err := cpuTime(func() error {
						_, verdict, err := d.feeder.Run(v.coll.Programs[v.program], d.In().Index, packets)
						if err == nil && verdict != 1 { // XDP_DROP
							err = fmt.Errorf("%s, %s: a fed packet ended with %d", c, v.name, verdict)
						}
						return err
					})
					least[i] = min(least[i], float64(took)/float64(packets))
					return err
				}); err != nil {
					return err
				}
			}
		}
		for i, v := range all {
			set.Add(c, v.name, "program", "ns/packet", least[i])
		}
		return nil
	}}
}

// counted is what the programs counted since they were reset: packets, and those that there was work for.
func counted(coll *ebpf.Collection) (packets, done uint64, err error) {
	var all [][2]uint64
	if err := coll.Maps["counts"].Lookup(uint32(0), &all); err != nil {
		return 0, 0, fmt.Errorf("reading the programs' counters: %w", err)
	}
	for _, c := range all {
		packets += c[0]
		done += c[1]
	}
	return packets, done, nil
}

func runFunctions(b *suite.Bench) error {
	for _, f := range some(b, everyFunction()) {
		if err := b.Part(f.name, func() error { return measureFunction(b, f) }); err != nil {
			return err
		}
	}
	for _, f := range some(b, everyStructured()) {
		if err := b.Part(f.what, func() error { return f.measureFunction(b) }); err != nil {
			return err
		}
	}
	return nil
}

// some is every eighth of a list, for the test that only keeps the suite from rotting, and else all of it.
func some[T any](b *suite.Bench, all []T) (few []T) {
	if b.Size.Name != "smoke" {
		return all
	}
	for i := 0; i < len(all); i += 8 {
		few = append(few, all[i])
	}
	return few
}

// everyStructured are the functions that work on a structure: run is the program on packets, and n how many flows there are.
func everyStructured() []filled {
	plain := []string{common, best}
	var all []filled
	for _, percent := range []int{10, 25, 50, 75, 100} {
		all = append(all, filled{fmt.Sprintf("cuckoo switch at %d %%", percent), "table_fill", "packet_table", 4096 * percent / 100, plain, false})
	}
	for _, percent := range []int{25, 50, 75} {
		all = append(all, filled{fmt.Sprintf("membership (htss) at %d %%", percent), "htss_fill", "packet_htss", 4096 * percent / 100, plain, false})
	}
	for n := 1 << 12; n <= 1<<16; n *= 4 {
		all = append(all,
			filled{fmt.Sprintf("ordered store of %d, lookup", n), "skip_fill", "packet_skip_get", n, plain, false},
			filled{fmt.Sprintf("ordered store of %d, update", n), "skip_fill", "packet_skip_update", n, plain, false})
	}
	return append(all,
		filled{"priority queue", "queue_fill", "packet_queue", 2048, plain, false},
		filled{"timing wheel", "wheel_fill", "packet_wheel", 2048, plain, false},
		filled{topMonitor, "", "packet_heavy", 4096, plain, true})
}

const topMonitor = "top-k monitor"

// enoughHeavy of the 32 heaviest flows have to be known, as in the library's own tests: one may be off by chance.
const enoughHeavy = 31

// measureFunction measures a structure's function on packets.
func (s filled) measureFunction(b *suite.Bench) error {
	d, err := newBed(b, s.n)
	if err != nil {
		return err
	}
	d.large = s.large()
	all := []contender{}
	for _, name := range append(append([]string{bare}, s.ways...), library) {
		v := variant{name, s.run}
		object := structureObjects[name]
		if name == bare {
			v.program, object = "packet_bare", structuresObject
		}
		coll, err := s.load(object, v.program)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.Later(func() error { coll.Close(); return nil })
		if err := s.put(coll); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, contender{variant: v, coll: coll, after: func() error { return s.verify(v, coll) }})
	}
	return d.measure(b, s.what, all)
}

// verify reads back that there was something to do for every packet, and of the top-k monitor what it found.
func (s filled) verify(v variant, coll *ebpf.Collection) error {
	packets, done, err := counted(coll)
	if err != nil {
		return err
	}
	if done < packets*98/100 { // what a full table had no place for is not found
		return fmt.Errorf("%s, %s: worked on %d of %d packets", s.what, v.name, done, packets)
	}
	check := coll.Programs["heavy_check"]
	if check == nil || v.name == bare || packets < 1<<16 { // of fewer, a tenth is a matter of chance
		return nil
	}
	found, err := check.Run(&ebpf.RunOptions{Data: frame(int(packets))})
	if err == nil && found < enoughHeavy {
		err = fmt.Errorf("%s, %s: knows %d of the 32 heaviest flows after %d packets", s.what, v.name, found, packets)
	}
	return err
}

// memorySize is struct memory of bpf/functions.bpf.c: a sampler's 16 bytes, the counters and the best plain way's sampler.
const memorySize, memoryCounters = memoryBest + bestSize, 16
const memoryBest = memoryCounters + 4*8<<12

func measureFunction(b *suite.Bench, f function) error {
	coll, err := load(b, functionsObject, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables["threshold"].Set(uint32(f.probability * (1 << 32)))
	})
	if err != nil {
		return err
	}
	if f.probability > 0 {
		if err := coll.Maps["geo"].Update(uint32(0), geo.NewTable(f.probability), ebpf.UpdateAny); err != nil {
			return err
		}
	}
	d, err := newBed(b, functionFlows)
	if err != nil {
		return err
	}
	reset := func() error {
		raw := make([]byte, memorySize)
		binary.NativeEndian.PutUint64(raw, 88172645463325252)
		if f.probability > 0 {
			binary.NativeEndian.PutUint32(raw[12:], uint32(math.Round(256/f.probability)))
			copy(raw[memoryBest:], bestSampler(f.probability))
		}
		if err := coll.Maps["counts"].Update(uint32(0), make([][2]uint64, ebpf.MustPossibleCPU()), ebpf.UpdateAny); err != nil {
			return err
		}
		return coll.Maps["memory"].Update(uint32(0), raw, ebpf.UpdateAny)
	}
	var all []contender
	for _, v := range f.variants {
		c := contender{variant: v, coll: coll, before: reset}
		if v.name != bare {
			c.after = func() error { return f.verify(v, coll) }
		}
		all = append(all, c)
	}
	return d.measure(b, f.name, all)
}

// verify reads back what was done: every row of a count-min sketch holds every packet; of a NitroSketch the share of packets taken is right,
// and what its rows hold.
func (f function) verify(v variant, coll *ebpf.Collection) error {
	packets, done, err := counted(coll)
	if err != nil {
		return err
	}
	raw, err := coll.Maps["memory"].LookupBytes(uint32(0))
	if err != nil {
		return fmt.Errorf("reading the sketch: %w", err)
	}
	row := func(i int) []byte { return raw[memoryCounters+4*(i<<12):][:4<<12] }
	for i := range f.rows {
		var sum uint64
		for at := row(i); len(at) > 0; at = at[4:] {
			sum += uint64(binary.NativeEndian.Uint32(at))
		}
		if sum != packets {
			return fmt.Errorf("%s, %s: row %d counted %d of %d packets", f.name, v.name, i, sum, packets)
		}
	}
	if f.probability == 0 {
		return nil
	}
	share := 1 - math.Pow(1-f.probability, 8)
	n := float64(packets)
	if off := math.Abs(float64(done) - n*share); off > 6*math.Sqrt(n*share*(1-share))+1 {
		return fmt.Errorf("%s, %s: worked on %d of %d packets, ought to on a share of %.3f", f.name, v.name, done, packets, share)
	}
	for i := range 8 {
		if err := f.countSketch(row(i), n); err != nil {
			return fmt.Errorf("%s, %s: row %d %w", f.name, v.name, i, err)
		}
	}
	return nil
}

// countSketch checks a row of a NitroSketch after so many packets, each of a flow drawn at random: it holds whole updates, and the sum of
// their squares is what the flows' sizes say. Without signs it would be higher, the more so the more packets there were.
func (f function) countSketch(row []byte, packets float64) error {
	step := int32(math.Round(256 / f.probability))
	var squares float64
	for ; len(row) > 0; row = row[4:] {
		v := int32(binary.NativeEndian.Uint32(row))
		if v%step != 0 {
			return fmt.Errorf("has a counter of %d, no multiple of %d", v, step)
		}
		squares += float64(v/step) * float64(v/step)
	}
	each := packets / functionFlows
	want := functionFlows * (each*f.probability + each*f.probability*each*f.probability)
	// Two deviations come together: of columns that flows share, and of how many packets were taken.
	if off := math.Abs(squares - want); off > 8*want*math.Sqrt(2.0/(1<<12)+1/(packets*f.probability)) {
		return fmt.Errorf("holds squares of %.0f in all, ought to of %.0f", squares, want)
	}
	return nil
}

// functionFlows is how many flows there are, and columns of a sketch.
const functionFlows = 1 << 12
