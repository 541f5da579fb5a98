// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

var (
	shuntFlag    = flag.String("shunt", "", "the shunt to test; without, only the rig's own logic is")
	seedFlag     = flag.Uint64("seed", 0, "seed of the first generated case; 0 takes one from the clock")
	configsFlag  = flag.Int("configs", 30, "generated configurations")
	durationFlag = flag.Duration("duration", 0, "generate configurations for this long, and without -until stop at the first difference")
	untilFlag    = flag.Int64("until", 0, "generate configurations until this many packets have been compared")
	recordFlag   = flag.String("record", "", "file to write what generated configurations came to")
	versionFlag  = flag.String("version", "unknown", "of shunt, for -record")
	packetsFlag  = flag.Int("packets", 500, "packets for each generated configuration")
	shrinkFlag   = flag.Int("shrink", 120, "cases to run in search of a smaller one that differs")
	saveFlag     = flag.String("save", "", "folder for cases that differed; default a temporary one")
	caseFlag     = flag.String("case", "", "run this file only")
	boundFlag    = flag.Duration("bound", 40*time.Millisecond, "how long shunt may take to follow a change")
	showFlag     = flag.Int("show", 6, "differences to print for each case")
	tierFlag     = flag.String("tier", "", "the only tier of programs to use, \"generic\" or \"specialised\", or \"both\" from the start; without, as cases say")
	hooksFlag    = flag.String("hooks", "xdp,tc", "hooks at which cases by hand run")
	turnFlag     = flag.Int("turn", everyTurn, "cases by hand run at one hook, and of the large families only those whose turn it is: a number, of which the rest by eight counts")
	talksFlag    = flag.Int("talks", 10, "generated cases of conversations")
	quietFlag    = flag.Int("quiet", 36, "generated packet filters that alone decide about plain packets")
	workersFlag  = flag.Int("workers", 4, "generated configurations to run at a time")
	bridgesFlag  = flag.Int("bridges", bridgeShare, "percentage of generated configurations that have a bridge")
	overlaysFlag = flag.Int("overlays", overlayShare, "percentage of generated configurations that have tunnels")
	filtersFlag  = flag.Int("filters", filterShare, "percentage of generated configurations that have packet filters")
	onlyFlag     = flag.Bool("uncovered", false, "do not fail for reasons and nodes that were not hit")
)

// quiet is how long nothing must leave a twin before what is missing counts as lost; a first look, see run.step.
const quiet = 20 * time.Millisecond

func TestMain(m *testing.M) {
	flag.Parse()
	filterShare, bridgeShare, overlayShare = *filtersFlag, *bridgesFlag, *overlaysFlag
	if os.Getenv("GOGC") == "" { // a daemon that starts for every case is mostly garbage: an eighth of all CPU time
		os.Setenv("GOGC", "400") // for the daemons
		debug.SetGCPercent(400)
	}
	os.Exit(lab.Main(m))
}

// session adds up what all tests of this process saw, for TestZCoverage. Cases run several at a time: most of a case is waiting.
var (
	sessionMu sync.Mutex
	session   = Result{Seen: newCoverage()}
)

func remember(res *Result) {
	sessionMu.Lock()
	defer sessionMu.Unlock()
	session.add(res)
}

func requireShunt(t *testing.T) {
	lab.RequireRoot(t)
	if *shuntFlag == "" {
		t.Skip("needs -shunt with the path of a built shunt; `make diff` runs this")
	}
}

// newRig makes a rig for a shunt, or for two plain routers.
func newRig(t *testing.T, shunt string) *Rig {
	requireShunt(t)
	rig := &Rig{Shunt: shunt, Bound: *boundFlag, Quiet: quiet, Tier: *tierFlag}
	t.Cleanup(func() {
		if err := rig.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig
}

func firstSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1 << 32)
}

// TestPlainTwins compares two Linux routers without shunt: the rig itself must show no difference.
func TestPlainTwins(t *testing.T) {
	rig := newRig(t, "")
	first := firstSeed()
	for i := range max(1, *configsFlag/20) {
		c := Generate(first+uint64(i), *packetsFlag, "auto", kinds(t))
		res, err := attempt(t, rig, c)
		if err != nil {
			t.Fatalf("seed %d: %v", c.Seed, err)
		}
		remember(&Result{Cases: 1, Seen: newCoverage()})
		if res = confirmed(t, rig, c, res); res == nil {
			continue
		}
		for _, d := range res.Differences {
			t.Errorf("seed %d: %s", c.Seed, d)
		}
	}
}

// TestHand runs the cases written by hand.
func TestHand(t *testing.T) {
	requireShunt(t)
	cases := Hands()
	turns := turnsOf(cases, strings.Split(*hooksFlag, ","), *turnFlag)
	for i, h := range cases {
		turn := turns[i]
		if len(turn.hooks) == 0 {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			if h.needs != "" && !hasKind(t, h.needs) {
				t.Skipf("this kernel has no %s (%s): tried; run it in a virtual machine (docs/rig.md)", h.needs, has(h.needs))
			}
			t.Parallel()
			if failFast() {
				t.Skip("another case failed before, and -test.failfast is set")
			}
			t.Cleanup(func() { oneFailed.Store(oneFailed.Load() || t.Failed()) })
			rig := newRig(t, *shuntFlag)
			seen := newCoverage()
			unmet := func() []string {
				return slices.DeleteFunc(slices.Clone(h.reasons), func(r string) bool {
					return seen.packets[r]+seen.packets["xdp "+r]+seen.packets["tc "+r]+seen.config[r] > 0
				})
			}
			at := func(hook string) {
				if !strings.Contains(*hooksFlag, hook) {
					return
				}
				c := h.toCase(hook)
				c.Tier = turn.at(hook)
				res := runCase(t, rig, c)
				if res == nil {
					return
				}
				seen.merge(res.Seen)
				for _, what := range c.deaf(res.Heard) {
					t.Errorf("%s: nothing was heard by the listener %q", hook, what)
				}
				if h.loads && len(res.Refused) > 0 {
					t.Errorf("%s: commands were refused: %s", hook, res.Refused)
				}
				if res.WasFast < res.MustFast {
					t.Errorf("%s: only %d of %d packets that must be fast were: %q\n%s", hook, res.WasFast, res.MustFast, res.Slow, res.Final)
				}
			}
			for _, hook := range turn.hooks {
				at(hook)
			}
			for _, hook := range turn.spare {
				if len(unmet()) > 0 {
					at(hook) // what only that hook meets
				}
			}
			for _, r := range unmet() {
				if !t.Failed() {
					t.Errorf("no packet met %q:\n%s", r, &seen)
				}
			}
		})
	}
}

// oneFailed remembers a failed case by hand: -test.failfast by itself does not stop parallel tests that wait for their turn.
var oneFailed atomic.Bool

func failFast() bool {
	return oneFailed.Load() && flag.Lookup("test.failfast").Value.String() == "true"
}

// kinds are those of the links that configurations may stack on this kernel.
func kinds(t *testing.T) []string {
	probeOnce.Do(func() {
		for _, kind := range slices.Concat(stackedKinds, overlayKinds) {
			if hasKind(t, kind) {
				probed = append(probed, kind)
			}
		}
		probed = append(probed, ipsetsHere(t)...)
	})
	return probed
}

var (
	probeOnce sync.Once
	probed    []string

	offloadsSeen = sync.OnceValue(vethShowsOffloads)
)

// has says which kernels have a kind of link, or type of ipset, that cases need.
func has(kind string) string {
	if strings.HasPrefix(kind, "ipset ") {
		return "CONFIG_IP_SET, Linux 2.6.39; hash:net,net and hash:net,port,net 3.13, hash:ip,mark 3.14, netmask of hash:net,net 6.3"
	}
	if kind == "conntrack zones" {
		return "zones in the lookup of connections, Linux 6.11"
	}
	return lab.Since(kind)
}

// hasKind asks the kernel for a link of a kind.
func hasKind(t *testing.T, kind string) bool {
	ns, err := lab.NewNS(lab.UniquePrefix("probe") + "x")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	if err := ns.Exec("ip link add under type veth peer name peer"); err != nil {
		t.Fatal(err)
	}
	if kind == "tcx" || kind == "netfilter programs" {
		return hasForeign(kind)
	}
	if kind == "conntrack zones" {
		if err := ns.Exec("nft add table inet t { chain p { type filter hook prerouting priority raw; ct zone set 5; }; }"); err != nil {
			return false
		}
		f, err := datapath.Probe() // with the module, which the rule has loaded
		if err != nil {
			t.Fatal(err)
		}
		return f.Conntrack && f.Zones
	}
	if kind == "bridge vlans" { // other kernels take the option and ignore it
		return ns.Exec("ip link add probe type bridge vlan_filtering 1") == nil && ns.Exec("bridge vlan add dev probe vid 5 self") == nil
	}
	if name, of := strings.CutPrefix(kind, "ipset "); of {
		return ns.Exec("ipset create probe %s", name) == nil
	}
	options, ok := map[string]string{"vlan": "link under type vlan id 5", "vrf": "type vrf table 5", "macvlan": "link under type macvlan", "ipvlan": "link under type ipvlan", "macsec": "link under type macsec", "vxlan": "type vxlan id 1 dstport 4789", "vxlan gpe": "type vxlan external gpe dstport 4790", "vxlan vnifilter": "type vxlan external vnifilter dstport 4789"}[kind]
	if !ok {
		options = "type " + kind
	}
	return ns.Exec("ip link add probe %s", options) == nil
}

// ipsetsHere are the types of sets that the kernel offers.
func ipsetsHere(t *testing.T) (out []string) {
	ns, err := lab.NewNS(lab.UniquePrefix("probe") + "s")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	for i, k := range ipsetKinds {
		if ns.Exec("ipset create s%d %s %s", i, k.kind, k.create) == nil {
			out = append(out, "ipset "+k.kind)
		}
	}
	return out
}

// TestRegress runs what once differed.
func TestRegress(t *testing.T) {
	rig := newRig(t, *shuntFlag)
	paths, err := filepath.Glob("testdata/regress/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if *caseFlag != "" {
		paths = []string{*caseFlag}
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			runCase(t, rig, c)
		})
	}
}

// runCase runs a case and reports its differences.
func runCase(t *testing.T, rig *Rig, c *Case) *Result {
	t.Helper()
	res, err := attempt(t, rig, c)
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return nil
	}
	remember(res)
	if res = confirmed(t, rig, c, res); res == nil {
		return nil
	}
	for _, d := range res.Differences[:min(*showFlag, len(res.Differences))] {
		t.Errorf("%s: %s", c.Name, d)
	}
	if len(res.Differences) > 0 && res.Final != "" {
		t.Log(res.Final)
	}
	return res
}

// broken counts runs of a case that did not come to their end, and did when run again.
var broken int

// attempt runs a case, and once more if the run itself failed: a command that found the machine busy past its limit is no finding about shunt.
// Told, and counted against TestZCoverage's allowance.
func attempt(t *testing.T, rig *Rig, c *Case) (*Result, error) {
	t.Helper()
	res, err := rig.Run(c)
	if err == nil {
		return res, nil
	}
	t.Logf("%s: run again, since the run failed: %v", c.Name, err)
	if res, err = rig.Run(c); err == nil {
		oneMore(&broken)
	}
	return res, err
}

// unconfirmed counts differences that were not there again when the same case was run again, or that two routers without shunt show, too.
var unconfirmed int

// confirmed runs a case that differed again, twice at most: what the clock or a busy machine did does not come back. What does is looked for between two routers
// without shunt. What is not shunt's is told, and counted against TestZCoverage's allowance.
func confirmed(t *testing.T, rig *Rig, c *Case, res *Result) *Result {
	t.Helper()
	if len(res.Differences) == 0 {
		return res
	}
	for range 2 {
		again, err := attempt(t, rig, c)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			return nil
		}
		if len(again.Differences) > 0 && !again.Starved && !again.Drawn {
			if rig.Shunt == "" || !linuxAlone(t, c, again.Differences) {
				return again
			}
			oneMore(&unconfirmed)
			t.Logf("%s: two routers without shunt differ like this, too: %s", c.Name, again.Differences[0])
			again.Differences = nil
			return again
		}
	}
	if res.Drawn {
		t.Logf("%s: not compared to its end, since ports were drawn: %s", c.Name, res.Differences[0])
		res.Differences = nil
		return res
	}
	oneMore(&unconfirmed)
	t.Logf("%s: a difference that did not come back in two more runs (out of memory: %v): %s", c.Name, res.Starved, res.Differences[0])
	res.Differences = nil
	return res
}

func oneMore(what *int) {
	sessionMu.Lock()
	defer sessionMu.Unlock()
	*what++
}

// linuxAlone says whether two routers without shunt show all of these differences, in three runs of the case: then they are what Linux draws at random or
// does by the clock. Numbers in them may be others.
func linuxAlone(t *testing.T, c *Case, differences []string) bool {
	t.Helper()
	plain := newRig(t, "")
	missing := map[string]bool{}
	for _, d := range differences {
		missing[numbers.ReplaceAllString(d, "#")] = true
	}
	for range 3 {
		res, err := plain.Run(c)
		if err != nil {
			t.Logf("%s: without shunt: %v", c.Name, err)
			return false
		}
		for _, d := range res.Differences {
			delete(missing, numbers.ReplaceAllString(d, "#"))
		}
		if len(missing) == 0 {
			return true
		}
	}
	return false
}

var numbers = regexp.MustCompile(`[0-9]+`)

// TestGenerated compares over generated configurations. A difference is made small, saved and printed as a script.
func TestGenerated(t *testing.T) {
	requireShunt(t)
	rec := &record{Version: *versionFlag, First: firstSeed(), Size: *packetsFlag, Began: time.Now(), Result: &Result{Seen: newCoverage()}}
	t.Logf("seeds from %d on; -seed %d repeats this", rec.First, rec.First)
	before := unconfirmed
	var next atomic.Int64
	var stop atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range *workersFlag {
		wg.Go(func() {
			rig := newRig(t, *shuntFlag)
			for !stop.Load() {
				i := next.Add(1) - 1
				mu.Lock()
				done := enough(i, int64(rec.Result.Packets), rec.Began)
				mu.Unlock()
				if done {
					return
				}
				seed := rec.First + uint64(i)
				var res *Result
				var differs bool
				each(t, seed, func(t *testing.T) { res, differs = generated(t, rig, seed) })
				if res == nil {
					continue
				}
				mu.Lock()
				rec.Configurations++
				rec.Last = max(rec.Last, seed)
				rec.Result.add(res)
				if differs {
					rec.Differed = append(rec.Differed, seed)
				}
				mu.Unlock()
				if differs && *untilFlag == 0 && *durationFlag > 0 {
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	remember(rec.Result)
	rec.Took, rec.Unconfirmed = time.Since(rec.Began), unconfirmed-before
	if *recordFlag != "" {
		if err := rec.save(*recordFlag); err != nil {
			t.Error(err)
		}
	}
	total := rec.Result
	t.Logf("%d configurations, %d packets, %d of %d packets that must be fast were, %d explained, in %v", rec.Configurations, total.Packets, total.WasFast, total.MustFast, total.Explained, rec.Took.Round(time.Second))
	if rec.Configurations == 0 {
		t.Error("no configuration ran")
	}
	if rec.Configurations > 1 && total.WasFast*10 < total.MustFast*6 { // a share of one alone says nothing
		t.Errorf("only %d of %d packets that must be fast were", total.WasFast, total.MustFast)
	}
}

// enough says whether configuration i of a run need not be made.
func enough(i, packets int64, began time.Time) bool {
	if *untilFlag == 0 && *durationFlag == 0 {
		return i >= int64(*configsFlag)
	}
	return *untilFlag > 0 && packets >= *untilFlag || *durationFlag > 0 && time.Since(began) > *durationFlag
}

// generated runs one generated configuration and reports what differs.
func generated(t *testing.T, rig *Rig, seed uint64) (res *Result, differs bool) {
	c := Generate(seed, *packetsFlag, []string{"xdp", "tc", "xdp", "tc", "auto"}[seed%5], kinds(t))
	if c.Hook == "xdp" && !offloadsSeen() {
		c = c.withoutOffloads()
	}
	return compared(t, rig, c)
}

// compared runs a case that was made from a seed and reports what differs.
func compared(t *testing.T, rig *Rig, c *Case) (res *Result, differs bool) {
	seed := c.Seed
	res, err := attempt(t, rig, c)
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return nil, false
	}
	if testing.Verbose() {
		fmt.Printf("seed %d: %s%s, %d packets, %d fast, %d of %d that must be fast, %d differences%s\n", seed, c.Hook, inTier(c.Tier), res.Packets, res.Seen.fast(), res.WasFast, res.MustFast, len(res.Differences), map[bool]string{true: ", out of memory"}[res.Starved])
		for _, slow := range res.Slow {
			fmt.Println("  " + slow)
		}
	}
	for _, said := range res.Refused {
		if strings.Contains(said, "tc: ") {
			t.Errorf("seed %d: tc refused a command, so that it tests nothing: %s", seed, said)
		}
	}
	if again := confirmed(t, rig, c, res); again != nil && len(again.Differences) > 0 {
		t.Error(report(t, rig, c, again))
		return res, true
	}
	return res, false
}

// TestQuietFilters compares over generated packet filters that alone decide what becomes of plain packets.
func TestQuietFilters(t *testing.T) {
	requireShunt(t)
	first := firstSeed()
	t.Logf("seeds from %d on; -seed %d repeats this", first, first)
	sum := quietFilters(t, first, *quietFlag)
	t.Logf("%d cases, %d packets, %d of %d packets that must be fast were\n%s", *quietFlag, sum.Packets, sum.WasFast, sum.MustFast, &sum.Seen)
	if sum.WasFast*10 < sum.MustFast*9 {
		t.Errorf("only %d of %d packets that must be fast were", sum.WasFast, sum.MustFast)
	}
}

// quietFilters runs so many of them.
func quietFilters(t *testing.T, first uint64, n int) *Result {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := &Result{Seen: newCoverage()}
	for range *workersFlag {
		wg.Go(func() {
			rig := newRig(t, *shuntFlag)
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				var res *Result
				seed := first + uint64(i)
				each(t, seed, func(t *testing.T) {
					res, _ = compared(t, rig, QuietFilters(seed, *packetsFlag, []string{"xdp", "tc"}[i%2], kinds(t)))
				})
				if res != nil {
					mu.Lock()
					sum.add(res)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	sum.Quiet = n
	remember(sum)
	return sum
}

// TestConversations compares over generated conversations through routers that track and translate them.
func TestConversations(t *testing.T) {
	requireShunt(t)
	first := firstSeed()
	t.Logf("seeds from %d on; -seed %d repeats this", first, first)
	sum := conversations(t, first, *talksFlag)
	fast := sum.Seen.fast()
	t.Logf("%d cases, %d packets, %d of them fast\n%s", *talksFlag, sum.Packets, fast, &sum.Seen)
	if *talksFlag > 1 && fast*4 < uint64(sum.Packets) { // a share of one alone says nothing
		t.Errorf("only %d of %d packets were fast", fast, sum.Packets)
	}
}

// conversations runs so many of them.
func conversations(t *testing.T, first uint64, n int) *Result {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := &Result{Seen: newCoverage()}
	places := map[venue]*Result{byRouter: {Seen: newCoverage()}, byBridge: {Seen: newCoverage()}, byStations: {Seen: newCoverage()}, byTunnel: {Seen: newCoverage()}}
	for range 2 * *workersFlag { // they wait more than they work
		wg.Go(func() {
			rig := newRig(t, *shuntFlag)
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				seed := first + uint64(i)
				var res *Result
				hook := []string{"xdp", "tc", "auto"}[i%3]
				place := newPlacing(seed, hook, kinds(t)).place
				each(t, seed, func(t *testing.T) {
					res, _ = compared(t, rig, Conversations(seed, hook, kinds(t)))
				})
				if res != nil {
					mu.Lock()
					sum.add(res)
					places[place].add(res)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	remember(sum)
	for _, place := range []venue{byRouter, byBridge, byStations, byTunnel} {
		r := places[place]
		t.Logf("of them by %s: %d cases, %d packets, %d of them fast", cmp.Or(place, "router"), r.Cases, r.Packets, r.Seen.fast())
		if r.Cases >= 20 && r.Seen.fast()*6 < uint64(r.Packets) { // fewer say nothing; what comes by a tunnel is counted twice, and fast once
			t.Errorf("by %s only %d of %d packets were fast", cmp.Or(place, "router"), r.Seen.fast(), r.Packets)
		}
	}
	return sum
}

// fast is how many packets were.
func (c *coverage) fast() uint64 { return c.packets["xdp fast"] + c.packets["tc fast"] }

// each makes a seed a test of its own, so that one that fails can be run again without the others.
func each(t *testing.T, seed uint64, run func(t *testing.T)) {
	t.Run(fmt.Sprintf("seed-%d", seed), run)
}

// report makes a difference small and says how to see it again.
func report(t *testing.T, rig *Rig, c *Case, res *Result) string {
	small, sres := rig.Shrink(c, res, *shrinkFlag)
	dir := *saveFlag
	if dir == "" {
		dir = os.TempDir()
	}
	path := filepath.Join(dir, fmt.Sprintf("shunt-%s-%s.json", c.Name, c.Hook))
	if err := small.Save(path); err != nil {
		t.Error(err)
	}
	text := fmt.Sprintf("seed %d differs; the smallest case found is saved as %s\n%s", c.Seed, path, small.Script())
	for _, d := range sres.Differences[:min(6, len(sres.Differences))] {
		text += d + "\n"
	}
	return text + sres.Final
}

// TestZCoverage runs last: every reason that a packet can leave by and every node must have been hit by the tests before it, or what
// they did not show says nothing.
func TestZCoverage(t *testing.T) {
	if session.Packets == 0 {
		t.Skip("no other test of the rig ran")
	}
	t.Logf("%d packets\n%s", session.Packets, &session.Seen)
	t.Logf("%d of %d cases differed in one run and not in two more", unconfirmed, session.Cases)
	t.Logf("%d runs failed and did not when run again", broken)
	if unconfirmed*50 > session.Cases || broken*50 > session.Cases {
		t.Errorf("that is more than one in fifty")
	}
	if *onlyFlag {
		return
	}
	runLeftOut(t)
	checkKinds(t)
	for _, name := range session.Seen.missed(impossible) {
		t.Errorf("no packet left by reason %q, and no interface had it", name)
	}
	for _, node := range session.Seen.missedNodes(hasKind(t, "vlan")) {
		t.Errorf("no packet passed node %q", node)
	}
}

// mostMore is how many cases run at most because of kinds of conditions that were not met; where runs take turns fewer, and so few kinds may be left to the next.
const mostMore, mostMoreByTurns, mostUnmetByTurns = 160, 32, 6

// moreSeeds are where the first of them begin: these have kinds that few others have.
var moreSeeds = []uint64{5000, 6000, 5008, 6008}

// checkKinds looks whether fast packets have met each kind of condition and action that generated rules have, and while they have not runs more cases of packet filters and of
// conversations: which kinds a few of them have is a matter of their seeds.
func checkKinds(t *testing.T) {
	if session.Quiet == 0 {
		return
	}
	seed := rand.Uint64N(1 << 32)
	most, allowed := mostMore, 0
	if *turnFlag != everyTurn {
		most, allowed = mostMoreByTurns, mostUnmetByTurns
	}
	for done := 0; ; done += 8 {
		filters, talks := session.Seen.rules.unmet(kinds(t))
		left := len(filters) + len(talks)
		if left == 0 {
			return
		}
		if done >= most {
			if t.Logf("no fast packet met %q", append(filters, talks...)); left > allowed {
				t.Errorf("that are more than %d kinds", allowed)
			}
			return
		}
		seed := seed + uint64(done)
		if i := done / 8; i < len(moreSeeds) {
			seed = moreSeeds[i]
		}
		t.Logf("eight more cases from seed %d on run, since no fast packet met %q", seed, append(filters, talks...))
		if len(filters) > 0 {
			quietFilters(t, seed, 8)
		}
		if len(talks) > 0 {
			conversations(t, seed, 8)
		}
	}
}

// mostLeftOut is how many cases run out of turn at most: more is no matter of turns.
const mostLeftOut = 30

// runLeftOut runs cases by hand whose turn it was not, for as long as something has not been met, those first that must meet it.
func runLeftOut(t *testing.T) {
	hooks := strings.Split(*hooksFlag, ",")
	cases := Hands()
	all, now := turnsOf(cases, hooks, everyTurn), turnsOf(cases, hooks, *turnFlag)
	vlans, left := hasKind(t, "vlan"), mostLeftOut
	unmet := func() []string {
		return append(session.Seen.missed(impossible), session.Seen.missedNodes(vlans)...)
	}
	about := func(h *hand) bool {
		missing := unmet()
		return slices.ContainsFunc(h.reasons, func(r string) bool { return slices.Contains(missing, r) })
	}
	for _, first := range []bool{true, false} {
		for i := range cases {
			h := &cases[i]
			if len(now[i].hooks) > 0 || h.needs != "" && !hasKind(t, h.needs) || first && !about(h) {
				continue
			}
			if left--; left < 0 || len(unmet()) == 0 {
				return
			}
			t.Logf("%s runs although it is not its turn, since nothing met %q", h.name, unmet())
			now[i] = all[i]
			for _, hook := range all[i].hooks {
				if c := h.toCase(hook); slices.Contains(hooks, hook) {
					c.Tier = all[i].at(hook)
					runCase(t, newRig(t, *shuntFlag), c)
				}
			}
		}
	}
}
