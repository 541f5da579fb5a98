// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// Rig runs cases. It is used by one goroutine at a time.
type Rig struct {
	Shunt string        // path of the binary; "" compares two plain Linux routers
	Bound time.Duration // how long shunt may take to follow a change
	Quiet time.Duration // how long nothing must leave a twin before the rest is taken as lost
	Tier  string        // the only tier of programs to use; "": as cases say

	a, b *lab.Wire
}

// chunkSize is how many packets hosts wait for before they answer: until then the router keeps what is for them.
const chunkSize = 300

// Result is what one run of a case showed.
type Result struct {
	Cases       int
	Differences []string
	Packets     int
	Quiet       int // of the cases, those of packet filters that alone decide
	MustFast    int // packets that the model says are fast
	WasFast     int // of those, at most what shunt's counter says
	Seen        coverage
	Explained   int
	Heard       map[string]int    // frames by the listener that heard them, in Linux's twin
	Refused     []string          // commands that Linux did not take, and what it said
	Slow        []string          // some packets that should have been fast, and why they were not
	Final       string            // the interfaces' states and reasons, for reports
	Drawn       bool              // a kernel drew a source port that was taken otherwise: twins draw apart, and a difference proves nothing
	Counters    map[string]uint64 // Linux's own at the end
	Starved     bool              // a kernel had no memory for what it wanted to say: a difference proves nothing
}

// Close frees what the rig shares between runs.
func (r *Rig) Close() error {
	var errs []error
	for _, w := range []*lab.Wire{r.a, r.b} {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}

// tier is the tier of programs that shunt keeps to in a case.
func (r *Rig) tier(c *Case) string {
	if r.Tier != "" {
		return r.Tier
	}
	return c.Tier
}

// oneTier says whether shunt has one tier of programs only.
func (r *run) oneTier() bool {
	tier := datapath.Tier(r.rig.tier(r.c))
	return tier != "" && tier != datapath.Both
}

// both runs f for the two twins at once.
func both(f func(i int) error) error {
	done := make(chan error, 1)
	go func() { done <- f(1) }()
	return errors.Join(f(0), <-done)
}

// Run builds the twins, runs the case in both and compares. An error means that the
// rig failed, not that there was a difference.
func (r *Rig) Run(c *Case) (res *Result, err error) {
	var twins [2]*twin
	wires := [2]**lab.Wire{&r.a, &r.b}
	defer func() {
		for _, t := range twins {
			if t != nil {
				err = errors.Join(err, t.close())
			}
		}
	}()
	names := [2]string{"linux", "shunt"}
	if err := both(func(i int) (err error) {
		twins[i], err = newTwin(names[i], wires[i])
		return err
	}); err != nil {
		return nil, err
	}
	run := &run{rig: r, c: c, linux: twins[0], shunt: twins[1], own: newAddresses(), known: map[string]bool{}, limits: [2]limits{{}, {}}, sent: newSent(), drifts: map[string]drift{}, fastly: map[string]uint64{}, res: &Result{Seen: newCoverage(), Heard: map[string]int{}}}
	run.own.hides = c.translates()
	run.own.cuts = c.bridged() || run.own.hides
	if r.Shunt != "" && !c.Late {
		if run.shunt.daemon, err = startDaemon(r.Shunt, run.shunt.dut, c, r.tier(c)); err != nil {
			return nil, err
		}
	}
	if c.bridged() {
		run.linux.stations, run.shunt.stations = stations{}, stations{}
	}
	for i := range c.Steps {
		if err := run.step(i, &c.Steps[i]); err != nil {
			return nil, fmt.Errorf("step %d of %s: %w", i+1, c.Name, err)
		}
		if len(run.res.Differences) > 0 {
			return run.res, errors.Join(run.checkMemory(), run.checkPorts())
		}
	}
	return run.res, errors.Join(run.finish(), run.checkMemory(), run.checkPorts())
}

// checkMemory finds out whether the kernel failed to send ICMP messages: its sockets for that are each processor's, shared by all
// namespaces, and what waits for silent hosts anywhere on the machine fills them.
func (r *run) checkMemory() error {
	var counters [2]map[string]uint64
	if err := both(func(i int) (err error) {
		counters[i], err = r.twin(i).counters()
		return err
	}); err != nil {
		return err
	}
	for _, name := range []string{"Icmp:OutErrors", "Icmp6OutErrors"} {
		r.res.Starved = r.res.Starved || counters[0][name]+counters[1][name] > 0
	}
	return nil
}

// run is one case under way.
type run struct {
	rig          *Rig
	c            *Case
	linux, shunt *twin
	own          *addresses
	known        map[string]bool // neighbours' MAC addresses that packets have been sent to
	limits       [2]limits
	sent         *sent
	last         status
	counted      ruleCounters              // what shunt's twin had counted after the last step
	mapped       hits                      // of verdict maps, which no counter shows, by packets of this step that must be fast
	fastly       map[string]uint64         // what rules of nf_tables had counted on the fast path after the last step
	drifts       map[string]drift          // between counters, as far as they are explained
	before       map[string]drift          // the same after the last step
	messages     [][3]int64                // by how many of limitedMessages' kinds shunt's twin was ahead after each step
	itself       []drift                   // by how much what came in by lo was ahead
	devices      [2]map[string]deviceCount // before the packets of a bridged step
	merged       bool                      // GRO may have merged some
	forgotten    uint64                    // what daemons that were killed had decided without Linux, at most
	killed       bool                      // a daemon was, and with it died what it had counted and not given to Linux
	res          *Result
}

func (r *run) differ(format string, args ...any) {
	r.res.Differences = append(r.res.Differences, fmt.Sprintf(format, args...))
}

func (r *run) twin(i int) *twin { return [2]*twin{r.linux, r.shunt}[i] }

func (r *run) step(n int, s *Step) error {
	if s.Frozen && r.shunt.daemon != nil {
		if err := r.shunt.daemon.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stopping shunt: %w", err)
		}
		defer r.shunt.daemon.cmd.Process.Signal(syscall.SIGCONT)
	}
	if s.Killed && r.shunt.daemon != nil {
		fast, err := r.fastSoFar()
		if err != nil {
			return err
		}
		r.forgotten = fast + uint64(len(s.Packets)) // its programs live on for a moment
		if err := r.shunt.daemon.kill(); err != nil {
			return err
		}
		r.killed = true
	}
	var said [2]string
	var before [2]map[string]uint64
	if err := both(func(i int) (err error) {
		if before[i], err = r.twin(i).counters(); err != nil {
			return err
		}
		said[i], err = r.twin(i).apply(s.Commands)
		return err
	}); err != nil {
		return err
	}
	if said[0] != said[1] {
		r.differ("step %d: the commands answered differently:\n  Linux: %s\n  shunt: %s", n+1, said[0], said[1])
	}
	if said[0] != "" {
		r.res.Refused = append(r.res.Refused, said[0])
	}
	if err := r.prepare(n, s); err != nil {
		return err
	}
	if err := both(func(i int) error { return r.twin(i).ownReports(before[i]) }); err != nil {
		return err
	}
	if err := r.own.learn(r.linux.dut); err != nil {
		return err
	}
	if n == 0 {
		if err := r.permanent(); err != nil {
			return err
		}
	}
	generic := r.oneTier() // and it does not know where routes to bridges end
	known := learned{host: !generic, onto: !generic && r.c.Hook == "tc", tunnels: r.c.Hook == "tc"}
	if r.c.bridged() {
		var err error
		if known.before, err = r.linux.fdb(); err != nil {
			return err
		}
		if err = both(func(i int) (err error) {
			r.devices[i], err = r.twin(i).deviceCounts()
			return err
		}); err != nil {
			return err
		}
	}
	var out [2]output
	send := (*injection).add
	if s.Alone {
		send = (*injection).single
	}
	if err := both(func(i int) error {
		for chunk := range slices.Chunk(s.Packets, chunkSize) {
			if err := r.twin(i).injectBy(send, chunk); err != nil {
				return err
			}
			if err := r.twin(i).collect(&out[i], r.rig.Quiet); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	r.res.Packets += len(s.Packets)
	if diffs := compare(&out[0], &out[1], r.own); len(diffs) > 0 {
		// A busy machine may deliver late: only what is still different after a longer look counts.
		if err := both(func(i int) error { return r.twin(i).collect(&out[i], 50*r.rig.Quiet) }); err != nil {
			return err
		}
		for _, d := range compare(&out[0], &out[1], r.own) {
			r.differ("step %d, %s", n+1, d)
		}
	}
	if err := r.listenersAgree(n, s, &out); err != nil {
		return err
	}
	if s.Frozen && r.shunt.daemon != nil {
		if err := r.shunt.daemon.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return fmt.Errorf("letting shunt go on: %w", err)
		}
	}
	if s.Killed && r.shunt.daemon != nil {
		again, err := r.shunt.daemon.again()
		if err != nil {
			return err
		}
		r.shunt.daemon = again
	}
	if err := r.compareCounters(n + 1); err != nil {
		return err
	}
	if r.c.bridged() {
		var err error
		if known.after, err = r.bridgesAgree(n, s); err != nil {
			return err
		}
	}
	return r.judge(n, s, &out, known)
}

// prepare starts a late daemon, and waits for one that runs.
func (r *run) prepare(n int, s *Step) (err error) {
	if r.c.bridged() && !s.Immediate && !s.Frozen && !s.Killed && len(s.Commands) > 0 {
		if err := both(func(i int) error { return r.twin(i).awaitBridges() }); err != nil {
			return err
		}
	}
	if r.rig.Shunt == "" {
		if !s.Immediate {
			time.Sleep(r.rig.Bound) // Linux, too, finishes some changes later: IPv6 addresses, carriers
		}
		return nil
	}
	if r.shunt.daemon == nil {
		r.shunt.daemon, err = startDaemon(r.rig.Shunt, r.shunt.dut, r.c, r.rig.tier(r.c))
		if err != nil {
			return err
		}
	}
	if s.Immediate || s.Frozen || s.Killed {
		return nil
	}
	if within := s.listens(); within != 0 {
		time.Sleep(within)
		if err := r.shunt.daemon.caughtUp(125 * r.rig.Bound); err != nil {
			return err
		}
	}
	r.last, err = r.shunt.daemon.settle(r.rig.Bound)
	return err
}

// judge looks at how many packets were fast and in which order they left.
func (r *run) judge(n int, s *Step, out *[2]output, l learned) error {
	for i := range out {
		r.limits[i].add(&out[i], r.own)
	}
	r.sent.add(s.Packets, &out[0])
	r.mapped = hits{}
	allowed, err := r.rulesAllow()
	if err != nil {
		return err
	}
	e := r.c.Slow.expect(s.Packets, &out[0], r.known, l, allowed)
	bridged, err := r.rulesAllowBridged()
	if err != nil {
		return err
	}
	e.expectBridged(&r.c.Slow, s.Packets, &out[0], l, bridged)
	for i := range Ports {
		for _, f := range out[0][i] {
			if len(f) >= 6 {
				r.known[string(f[:6])] = true
			}
		}
	}
	if r.rig.Shunt == "" {
		return nil
	}
	for _, d := range compareOrder(&out[0], &out[1], func(f []byte) bool { return e.frames[packetOf(f)] }) {
		r.differ("step %d, %s", n+1, d)
	}
	before := r.last
	now, err := r.shunt.daemon.status()
	if err != nil {
		return err
	}
	r.last = now
	r.res.Final = now.String()
	seen := newCoverage()
	fast := seen.add(before, now)
	if len(r.c.Steps[n].Commands) > 0 {
		ways, err := r.shunt.daemon.exits()
		if err != nil {
			return err
		}
		seen.addExits(ways)
	}
	r.res.Seen.merge(seen)
	if r.c.Exact && seen.packets["xdp watchdog"]+seen.packets["xdp stale"] == 0 {
		r.comparePredicted(n, s.Packets, seen)
	}
	// A daemon that this machine did not let run turns its programs off by itself.
	if s.Immediate || s.Frozen || s.Killed || seen.packets["xdp watchdog"]+seen.packets["tc watchdog"] > 0 {
		return nil
	}
	// What met a stale program came before a busy machine let shunt catch up; cases name the reasons that they must see, "fast" among them.
	must := max(0, len(e.packets)-int(seen.packets["xdp stale"]+seen.packets["tc stale"]))
	r.res.MustFast += must
	r.res.WasFast += min(must, fast)
	if fast < must {
		return r.nameSlow(n, e.packets)
	}
	r.res.Seen.rules.merge(r.mapped)
	return nil
}

// nameSlow asks shunt which packets it should have forwarded and would not.
func (r *run) nameSlow(n int, packets []Packet) error {
	for _, p := range packets {
		if len(r.res.Slow) >= 5 {
			break
		}
		said, err := r.shunt.daemon.explain(p.Port, p.Frame)
		if err != nil {
			return err
		}
		if !said.Fast {
			r.res.Slow = append(r.res.Slow, fmt.Sprintf("step %d: %s was left to Linux: %s", n+1, p, said.Reason))
		}
	}
	return nil
}

func (r *run) finish() error {
	var tables [2]tables
	for looks := range 10 {
		if err := both(func(i int) (err error) {
			tables[i], err = r.twin(i).tables()
			return err
		}); err != nil {
			return err
		}
		// What IPv6 does after a link has come up waits for a carrier, of which the kernel tells once a second: one twin's may be there before the other's.
		if looks == 9 || maps.Equal(tables[0].routes, tables[1].routes) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.res.Counters = tables[0].counters
	tables[0].groups = r.c.groupsToBridges()
	r.res.Differences = append(r.res.Differences, compareLimits(r.limits[0], r.limits[1], r.sent)...)
	r.res.Differences = append(r.res.Differences, compareTables(tables[0], tables[1], r.sent.fromOwn(r.own))...)
	if r.shunt.daemon == nil {
		return nil
	}
	return r.compareExplain()
}

// permanent notes the neighbours that never have to be resolved.
func (r *run) permanent() error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := r.linux.dut.Netlink().NeighList(0, family)
		if err != nil {
			return fmt.Errorf("reading neighbours: %w", err)
		}
		for _, n := range list {
			if n.State&netlink.NUD_PERMANENT != 0 {
				r.known[string(n.HardwareAddr)] = true
			}
		}
	}
	return nil
}

// collect appends what leaves a twin until nothing has for the time quiet; hosts answer meanwhile.
func (t *twin) collect(out *output, quiet time.Duration) error {
	answered := map[string]bool{}
	for {
		frames, err := t.capture.Take(0, quiet)
		if err != nil {
			return err
		}
		var replies []Packet
		for _, f := range frames {
			port := portOf(f.Port)
			if noise(f.Data) {
				continue
			}
			out[port] = append(out[port], completed(f))
			if reply := t.hosts.answer(port, f.Data); reply != nil && !answered[string(f.Data)] {
				answered[string(f.Data)] = true
				replies = append(replies, Packet{Port: port, How: WireFrame, Frame: reply})
			}
		}
		if len(replies) == 0 {
			return nil
		}
		if err := t.inject(replies); err != nil {
			return err
		}
	}
}

// completed is a frame as it would be on a wire: with the checksum that was left to the device.
func completed(f lab.Frame) []byte {
	if h, ok := readIP(f.Data); f.PartialChecksum && ok && h.first && h.headerLen >= 20 && (h.proto == 6 || h.proto == 17) {
		return lab.Edited(f.Data, lab.FixTransportChecksum())
	}
	return f.Data
}

func portOf(p *lab.Port) (port int) {
	fmt.Sscanf(p.Name, "w%d", &port)
	return port
}

// unmount lets go of the BPF file system that a daemon mounted below its runtime directory.
func unmount(dir string) {
	for _, pattern := range []string{"*", "*/*"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				unix.Unmount(path, unix.MNT_DETACH)
			}
		}
	}
}

func (r *Result) add(o *Result) {
	r.Cases += max(1, o.Cases) // a single case's result counts none
	r.Quiet += o.Quiet
	r.Packets += o.Packets
	r.MustFast += o.MustFast
	r.WasFast += o.WasFast
	r.Explained += o.Explained
	r.Seen.merge(o.Seen)
}
