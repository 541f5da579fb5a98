// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rules"
)

var inflightFlag = flag.Int("inflight", 15, "changes of rules under traffic in each dialect and at each hook")

// TestInflight changes rules while packets are on their way through the router, in every dialect. Other tests of the rig change them when nothing moves, and so never see
// a packet that meets the moment of a change. The kernel says what has to hold then, so the same is done to a router without shunt, of which it has to hold, too:
//
//   - each packet meets one of the rule sets that were in force between its sending and its arrival, as a whole; once a command has returned, the new one;
//   - of flows that every rule set lets pass no packet is lost, none is there twice, and none is overtaken, but in the burst in which a flow changes between shunt and Linux;
//   - rules that stay count every packet and byte once.
//
// What each rule set does the interpreter says (internal/rules), from what the kernel holds after each command. A new table, or a policy together with rules, is no single
// change to the kernel either: there nothing is promised, and nothing tested.
func TestInflight(t *testing.T) {
	requireShunt(t)
	seed := firstSeed()
	t.Logf("-seed %d repeats these changes", seed)
	for i, d := range inflightDialects() {
		if *turnFlag != everyTurn && (i+*turnFlag)%inflightDialectsEvery != 0 { // CI has time for a part, by turns
			continue
		}
		for j, hook := range []string{"", "xdp", "tc"} {
			if hook != "" && !strings.Contains(*hooksFlag, hook) {
				continue
			}
			t.Run(d.name+"/"+map[bool]string{true: "linux", false: hook}[hook == ""], func(t *testing.T) {
				t.Parallel()
				d := inflightDialects()[i] // with a state of its own
				f := &inflight{t: t, seed: seed + uint64(10*i+j), d: d, hook: hook}
				f.rng = rand.New(rand.NewPCG(f.seed, 0x69_6e_66_6c))
				f.run()
			})
		}
	}
}

// inflightDialectsEvery: where runs take turns each has two or three of the five dialects.
const inflightDialectsEvery = 2

// inflight is one router whose rules change under a stream.
type inflight struct {
	t        *testing.T
	seed     uint64
	d        *inflightDialect
	hook     string // "": without shunt
	rng      *rand.Rand
	twin     *twin
	stream   packetStream
	versions []version
}

// version is a rule set: in force from some moment between the begin and the return of the command that made it.
type version struct {
	command         string
	begun, returned time.Time
	does            [streamFlows]outcome
}

// outcome is what becomes of a flow.
type outcome struct {
	dropped bool
	unknown bool // Linux's alone, and accepted: whatever it is marked with
	ds      byte
}

func (o outcome) String() string {
	switch {
	case o.dropped:
		return "dropped"
	case o.unknown:
		return "accepted"
	}
	return fmt.Sprintf("accepted with TOS %#x", o.ds)
}

func (f *inflight) fatal(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("seed %d: %v", f.seed, err)
	}
}

func (f *inflight) run() {
	var wire *lab.Wire
	name := "inl"
	if f.hook != "" {
		name = "ins"
	}
	twin, err := newTwin(name, &wire)
	f.fatal(err)
	f.twin = twin
	f.t.Cleanup(func() {
		if err := twin.close(); err != nil {
			f.t.Error(err)
		}
		if err := wire.Close(); err != nil {
			f.t.Error(err)
		}
	})
	for _, do := range slices.Concat(common(), []string{f.d.setup(f.rng)}) {
		f.do(do)
	}
	for _, do := range f.d.more {
		f.do(do)
	}
	var before status
	if f.hook != "" {
		f.twin.daemon, err = startDaemon(*shuntFlag, f.twin.dut, &Case{Hook: f.hook}, *tierFlag)
		f.fatal(err)
		before, err = f.twin.daemon.settle(*boundFlag)
		f.fatal(err)
	}
	f.note(version{command: "at first"})
	f.stream.begin(f.twin, f.d.v6)
	f.changes()
	f.fatal(f.stream.end())
	if f.t.Failed() {
		return
	}
	got, odd, err := f.stream.arrivals()
	f.fatal(err)
	for _, o := range odd[:min(*showFlag, len(odd))] {
		f.t.Errorf("seed %d: %s", f.seed, o)
	}
	f.checkVerdicts(got)
	f.checkOrder(got)
	f.checkCounters()
	if f.hook != "" {
		f.checkFast(before)
	}
}

// do runs a command that has to be taken.
func (f *inflight) do(command string) {
	f.t.Helper()
	said, err := f.twin.apply([]string{command})
	f.fatal(err)
	if said != "" {
		f.t.Fatalf("seed %d: %s was refused: %s", f.seed, command, said)
	}
}

// note adds a version, whose command has returned, with what the rules in the kernel now do.
func (f *inflight) note(v version) {
	f.t.Helper()
	rs, err := f.twin.filters()
	f.fatal(err)
	in := rules.NewInterpreter(rs)
	for i := range v.does {
		flow := flowOf(0, "10.0.0.10", fmt.Sprintf("10.1.2.%d", 10+i))
		if f.d.v6 {
			flow = flowOf(0, addr6(0, 0, 0x10).String(), fmt.Sprintf("2001:db8:1::%d", 10+i))
		}
		flow.DstPort = uint16(streamPort + i)
		said := in.Run(rulePacket(Packet{Frame: flow.UDP("12345678")}, f.twin.port(0), f.twin.port(1)))
		v.does[i] = outcome{dropped: said.Outcome == rules.Dropped, ds: said.DSField}
		if said.Outcome == rules.IsSlow {
			if v.does[i] = (outcome{unknown: true}); !f.d.counted || i != countedFlow {
				f.t.Fatalf("seed %d, after %s: what becomes of flow %d only Linux knows: %s", f.seed, v.command, i, said.Why)
			}
		}
		if said.Outcome != rules.Accepted {
			v.does[i].ds = 0
		}
		if i < alwaysFlows && v.does[i].dropped {
			f.t.Fatalf("seed %d, after %s: flow %d would be dropped: the test is wrong", f.seed, v.command, i)
		}
	}
	f.versions = append(f.versions, v)
}

// changes runs the commands. No burst is ever on its way in two of them, so that each meets two rule sets at most.
func (f *inflight) changes() {
	rested := int64(0) // how many bursts had gone when the last rest began
	for range *inflightFlag {
		if f.hook != "" && f.rng.IntN(4) > 0 {
			_, err := f.twin.daemon.settle(*boundFlag)
			f.fatal(err)
			now := f.stream.done.Load()
			f.await(now + min(400, 8+now-rested)) // most of the stream meets a shunt at rest, however long it takes to come to it
			rested = f.stream.done.Load()
		} else {
			f.await(f.stream.done.Load() + int64(2+f.rng.IntN(8)))
		}
		v := version{command: f.d.change(f.rng, f.twin), begun: time.Now()}
		f.do(v.command)
		v.returned = time.Now()
		select {
		case f.stream.kick <- struct{}{}: // the first that the new rules alone are for
		default:
		}
		f.note(v)
		f.await(f.stream.done.Load() + 2)
	}
}

// await waits until so many bursts have gone.
func (f *inflight) await(bursts int64) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); f.stream.done.Load() < bursts; time.Sleep(burstEvery / 2) {
		if time.Now().After(end) {
			f.t.Fatalf("seed %d: the stream stands still", f.seed)
		}
	}
}

// checkVerdicts holds what became of each packet against the versions that it may have met.
func (f *inflight) checkVerdicts(got []arrived) {
	times, ds := make([]int, len(f.stream.sent)), make([]byte, len(f.stream.sent))
	for _, a := range got {
		times[a.number]++
		ds[a.number] = a.ds
	}
	told, moved := 0, 0
	from := 0 // versions before it have gone
	for i := range f.stream.bursts {
		b := &f.stream.bursts[i]
		for from+1 < len(f.versions) && f.versions[from+1].returned.Before(b.begin) {
			from++
		}
		to := from
		// What a packet met may be read a little after the router's port has counted it.
		for to+1 < len(f.versions) && f.versions[to+1].begun.Before(b.end.Add(time.Millisecond)) {
			to++
		}
		if to > from {
			moved++
		}
		for n := b.first; n < b.first+burstPackets; n++ {
			is := outcome{dropped: times[n] == 0, ds: ds[n]}
			met := slices.ContainsFunc(f.versions[from:to+1], func(v version) bool {
				want := v.does[flowNumber(n)]
				return want == is || want.unknown && !is.dropped
			})
			if met && times[n] <= 1 {
				continue
			}
			if told++; told > *showFlag {
				continue
			}
			var could []string
			for v := from; v <= to; v++ {
				could = append(could, fmt.Sprintf("change %d (%s, from %v to %v): %s", v, strings.ReplaceAll(f.versions[v].command, "\n", "; "), f.versions[v].begun.Sub(b.begin), f.versions[v].returned.Sub(b.begin), f.versions[v].does[flowNumber(n)]))
			}
			f.t.Errorf("seed %d: packet %d of flow %d, in burst %d (on its way for %v), arrived %d times and was %s; what it could meet:\n  %s", f.seed, n, flowNumber(n), i, b.end.Sub(b.begin), times[n], is, strings.Join(could, "\n  "))
		}
	}
	if told > 0 {
		f.t.Errorf("seed %d: %d packets of %d met rules that were not in force", f.seed, told, len(times))
	}
	f.t.Logf("%d changes, %d packets in %d bursts, %d of which met a change; %d arrived", len(f.versions)-1, len(times), len(f.stream.bursts), moved, len(got))
}

// checkOrder looks at the order in each flow. Only in the burst in which a flow goes over from shunt to Linux or back may one packet overtake another (docs/deviations.md),
// and each change lets a flow go over a few times.
func (f *inflight) checkOrder(got []arrived) {
	last, over := [streamFlows]int{}, map[int]bool{}
	told := 0
	for _, a := range got {
		flow := flowNumber(a.number)
		ahead := last[flow]
		if a.number >= ahead {
			last[flow] = a.number
			continue
		}
		if f.hook != "" && a.number/burstPackets == ahead/burstPackets {
			over[a.number/burstPackets] = true
			continue
		}
		if told++; told <= *showFlag {
			f.t.Errorf("seed %d: of flow %d packet %d came after packet %d", f.seed, flow, a.number, ahead)
		}
	}
	if most := 3 * len(f.versions); len(over) > most {
		f.t.Errorf("seed %d: in %d bursts packets were overtaken, after %d changes", f.seed, len(over), len(f.versions)-1)
	}
	if f.hook != "" {
		f.t.Logf("in %d bursts packets were overtaken where their flow went over", len(over))
	}
}

// checkCounters compares what the rules that stay have counted with what was sent.
func (f *inflight) checkCounters() {
	have, err := f.twin.ruleCounters(f.d.dialects(), kept{})
	if f.twin.daemon != nil {
		said, failed := f.twin.daemon.ruleCounters()
		f.fatal(failed)
		have, err = f.twin.ruleCounters(f.d.dialects(), kept{}) // after Linux has been told
		for key, c := range said {
			was, ok := have[key]
			switch {
			case !ok || !legacy(key):
				c.text = was.text
				have[key] = c
			case was.packets != c.packets || was.bytes != c.bytes:
				f.t.Errorf("seed %d: %s: shunt says %d packets, %d bytes, the kernel %d, %d", f.seed, key, c.packets, c.bytes, was.packets, was.bytes)
			}
		}
	}
	f.fatal(err)
	all := f.stream.bytesOf(func(int) bool { return true })
	always := f.stream.bytesOf(func(flow int) bool { return flow < alwaysFlows })
	counted := f.stream.bytesOf(func(flow int) bool { return flow == countedFlow })
	seen := map[string]bool{}
	for key, c := range have {
		want := all
		switch {
		case strings.Contains(c.text, "stays-all"), strings.Contains(key, "counter stays-all"):
		case strings.Contains(c.text, "stays-always"), strings.Contains(key, "counter stays-always"):
			want = always
		case strings.HasPrefix(key, "ipset counted "):
			want = counted
		default:
			continue
		}
		seen[key] = true
		if c.packets != want.packets || c.bytes != want.bytes {
			f.t.Errorf("seed %d: %s has counted %d packets, %d bytes of %d, %d: %s", f.seed, key, c.packets, c.bytes, want.packets, want.bytes, c.text)
		}
	}
	if len(seen) != f.d.stays {
		f.t.Errorf("seed %d: %d counters stayed of %d: %v", f.seed, len(seen), f.d.stays, seen)
	}
}

// checkFast looks how many packets shunt dealt with: none of this says anything if Linux did it all.
func (f *inflight) checkFast(before status) {
	now, err := f.twin.daemon.status()
	f.fatal(err)
	seen := newCoverage()
	dealt := seen.add(before, now)
	for _, i := range now.Interfaces {
		for _, p := range i.Hooks {
			for _, n := range p.Dropped {
				dealt += int(n)
			}
		}
	}
	// A daemon that the machine did not let run turns its programs off by itself.
	sent := len(f.stream.sent) - int(seen.packets[f.hook+" watchdog"])
	if f.d.counted {
		sent -= sent / streamFlows
	}
	f.t.Logf("%d of %d packets were fast, %.0f%%\n%s", dealt, sent, 100*float64(dealt)/float64(sent), &seen)
	if dealt*10 < sent*6 {
		f.t.Errorf("seed %d: only %d of %d packets were fast\n%s", f.seed, dealt, sent, now)
	}
}
