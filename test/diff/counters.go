// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shuntnet/shunt/internal/api"
)

// count is what a rule, policy, named counter or set element has counted.
type count struct {
	packets, bytes uint64
	text           string   // the rule, for people
	own            bool     // what the router itself sends may meet it
	fast           api.Fast // shunt's part
}

// ruleCounters are the counters of a twin's packet filters by where they are. Rules and policies are counted by fast packets too, so that beside shunt those of
// nf_tables are read from shunt, which knows the sums; elsewhere, and what shunt does not list, from the tools that made them, as are those of legacy
// tables, to which shunt adds.
type ruleCounters map[string]count

// unasked marks rules that meet what a router says unasked, by timers (noise): their counters are not compared.
const unasked = "unasked"

// dialects are those that a case has packet filters in, so that only their tools are asked: starting many of them is slow.
func (c *Case) dialects() map[string]bool {
	out := map[string]bool{}
	for _, s := range c.Steps {
		for _, cmd := range s.Commands {
			word, _, _ := strings.Cut(cmd, " ")
			word, _, _ = strings.Cut(word, "\n")
			if strings.Contains(word, "tables-") || word == "nft" || word == "ipset" {
				out[strings.TrimSuffix(word, "-restore")] = true
			}
		}
	}
	return out
}

// compareCounters compares what the packet filters of the twins have counted so far.
func (r *run) compareCounters(step int) error {
	dialects := r.c.dialects()
	if len(dialects) == 0 || r.killed {
		return nil
	}
	said := ruleCounters{}
	if r.shunt.daemon != nil {
		before, err := r.shunt.filters()
		if err != nil {
			return err
		}
		if said, err = r.shunt.daemon.ruleCounters(); err != nil {
			return err
		}
		after, err := r.shunt.filters()
		if err != nil {
			return err
		}
		r.res.Seen.rules.addCounted(before, after, said, r.fastly)
	}
	var all [2]ruleCounters
	keep := [2]kept{{}, {}}
	if err := both(func(i int) (err error) {
		all[i], err = r.twin(i).ruleCounters(dialects, keep[i])
		return err
	}); err != nil {
		return err
	}
	for _, d := range compareKept(keep[0], keep[1]) {
		r.differ("step %d, %s", step, d)
	}
	for key, c := range said {
		was, ok := all[1][key]
		switch {
		case !ok:
		case !legacy(key):
			c.text, c.own = was.text, was.own
			all[1][key] = c
		case c.packets != was.packets || c.bytes != was.bytes:
			r.differ("step %d: %s: shunt says %d packets, %d bytes, the kernel %d, %d: %s", step, key, c.packets, c.bytes, was.packets, was.bytes, was.text)
		}
	}
	most, differ, err := r.limitedMessages()
	if err != nil {
		return err
	}
	itself, err := r.toldItself()
	if err != nil {
		return err
	}
	idle, err := r.idleStages()
	if err != nil {
		return err
	}
	zeroed := r.c.Steps[step-1].zeroes()
	r.before = maps.Clone(r.drifts)
	for _, key := range slices.Sorted(maps.Keys(union(all[0], all[1]))) {
		a, b := all[0][key], all[1][key]
		if strings.Contains(a.text, unasked) {
			continue
		}
		if r.shunt.daemon != nil && idle.has(key) {
			r.drifts[key] = driftOf(a, b)
			continue
		}
		packets, bytes := r.apart(key, a, b, zeroed)
		if itself[drift{driftOf(a, b).packets - r.drifts[key].packets, driftOf(a, b).bytes - r.drifts[key].bytes}] {
			continue
		}
		if a.own && packets <= differ && bytes <= most*longestMessage {
			continue
		}
		if packets+bytes > 0 {
			r.differ("step %d: %s: Linux counts %d packets, %d bytes, beside shunt %d, %d: %s", step, key, a.packets, a.bytes, b.packets, b.bytes, a.text)
		}
	}
	r.counted = all[1]
	return nil
}

// legacy says whether a counter is one of a legacy table.
func legacy(key string) bool { return strings.HasPrefix(key, "legacy ") }

// zeroes says whether a step's commands may set counters of rules and policies that stay to zero: iptables-restore and -P do.
func (s *Step) zeroes() bool {
	return slices.ContainsFunc(s.Commands, func(cmd string) bool { return strings.Contains(strings.Fields(cmd)[0], "tables-") })
}

// drift is by how much a counter beside shunt is ahead of Linux's own, for a reason that is told in docs/deviations.md.
type drift struct{ packets, bytes int64 }

func driftOf(a, b count) drift {
	return drift{int64(b.packets) - int64(a.packets), int64(b.bytes) - int64(a.bytes)}
}

// apart is by how much the twins' counters differ. When one of nf_tables is set to zero in Linux shunt's part of it goes on: from then on exactly what shunt's
// part was in the step before stands in its sum too. A rule that moves takes that along.
func (r *run) apart(key string, a, b count, zeroed bool) (packets, bytes uint64) {
	now := driftOf(a, b)
	by := func(d drift) (uint64, uint64) { return size(now.packets - d.packets), size(now.bytes - d.bytes) }
	packets, bytes = by(r.drifts[key])
	if zeroed && packets+bytes > 0 {
		known := []drift{{}}
		chain, _, _ := strings.Cut(key, " #")
		for other, was := range r.counted { // rules of the same words may have moved
			if other == key || strings.HasPrefix(other, chain+" #") {
				known = append(known, drift{int64(was.fast.Packets), int64(was.fast.Bytes)}, r.before[other])
			}
		}
		for _, d := range known {
			if p, b := by(d); p+b < packets+bytes {
				packets, bytes, r.drifts[key] = p, b, d
			}
		}
	}
	return packets, bytes
}

func size(n int64) uint64 { return uint64(max(n, -n)) }

// longestMessage bounds what a router says about a packet.
const longestMessage = 1280

// limitedMessages is how many messages that the kernel limits by the clock (limits.go) the twins have sent at most, and by how many a counter of them may differ, whenever
// it began to count: they may have been sent in different steps, and a command between these set it to zero. Which packets they are about, and with that their length, is
// the clock's choice too.
func (r *run) limitedMessages() (most, differ uint64, err error) {
	var t [2]tables
	if err := both(func(i int) (err error) {
		t[i].counters, err = r.twin(i).counters()
		return err
	}); err != nil {
		return 0, 0, err
	}
	var now [3]int64
	for i, name := range []string{"Icmp:OutDestUnreachs", "Icmp:OutRedirects", "Icmp6OutRedirects"} {
		most += max(t[0].counters[name], t[1].counters[name])
		now[i] = int64(t[1].counters[name]) - int64(t[0].counters[name])
	}
	for _, then := range append(r.messages, [3]int64{}) {
		var n uint64
		for i := range now {
			n += size(now[i] - then[i])
		}
		differ = max(differ, n)
	}
	r.messages = append(r.messages, now)
	return most, differ, nil
}

// toldItself is by what the twins' counters may differ since one router said more to itself than the other: it answers a packet that bears its own address and finds no route
// (ip_route_input_slow looks for the route first), and what it says to itself comes in by lo, where the rules of received packets count it. How often is limited by the
// clock like all such messages.
func (r *run) toldItself() (map[drift]bool, error) {
	var heard [2]count
	if err := both(func(i int) error {
		link, err := r.twin(i).dut.Netlink().LinkByName("lo")
		if err != nil {
			return fmt.Errorf("reading the counters of lo: %w", err)
		}
		if s := link.Attrs().Statistics; s != nil {
			heard[i] = count{packets: s.RxPackets, bytes: s.RxBytes}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	now := driftOf(heard[0], heard[1])
	out := map[drift]bool{}
	for _, then := range append(r.itself, drift{}) {
		out[drift{now.packets - then.packets, now.bytes - then.bytes}] = true
	}
	r.itself = append(r.itself, now)
	return out, nil
}

// ruleCounters asks the tools. What else filters remember is put into keep.
func (t *twin) ruleCounters(dialects map[string]bool, keep kept) (ruleCounters, error) {
	out := ruleCounters{}
	if dialects["nft"] {
		text, err := t.dut.Output("nft -j list ruleset")
		if err == nil {
			err = out.addNFT([]byte(text), keep)
		}
		if err != nil {
			return nil, err
		}
	}
	for tool, kind := range map[string]string{"iptables-legacy": "legacy ip", "ip6tables-legacy": "legacy ip6", "iptables-nft": "nft ip", "ip6tables-nft": "nft ip6"} {
		if !dialects[tool] {
			continue
		}
		text, err := t.dut.Output("%s-save -c", tool)
		if err != nil {
			return nil, err
		}
		out.addSaved(kind, text)
	}
	if dialects["ipset"] {
		text, err := t.dut.Output("ipset save")
		if err != nil {
			return nil, err
		}
		out.addIPSets(text, keep)
	}
	return out, t.addRecent(keep)
}

// addSaved reads what iptables-save -c prints.
func (rc ruleCounters) addSaved(kind, text string) {
	table := ""
	number := map[string]int{}
	for line := range strings.Lines(text) {
		c := count{own: table == "mangle" || table == "nat" || table == "security"}
		switch {
		case strings.HasPrefix(line, "*"):
			table = strings.TrimSpace(line[1:])
			clear(number)
		case strings.HasPrefix(line, ":"):
			var chain, policy string
			if _, err := fmt.Sscanf(line, ":%s %s [%d:%d]", &chain, &policy, &c.packets, &c.bytes); err == nil && forwardedAt(chain) && policy != "-" {
				rc[fmt.Sprintf("%s %s %s policy", kind, table, chain)] = c
			}
		case strings.HasPrefix(line, "["):
			var chain string
			if _, err := fmt.Sscanf(line, "[%d:%d] -A %s", &c.packets, &c.bytes, &chain); err == nil {
				number[chain]++
				c.text = strings.TrimSpace(line)
				rc[fmt.Sprintf("%s %s %s #%d", kind, table, chain, number[chain])] = c
			}
		}
	}
}

// forwardedAt says whether forwarded packets meet a chain. What others meet hangs on what the router says and hears unasked.
func forwardedAt(chain string) bool { return chain != "INPUT" && chain != "OUTPUT" }

// nftObject is one of the objects that `nft -j` lists.
type nftObject struct {
	Family, Table, Name, Chain, Hook string
	Handle                           uint64
	Comment                          string
	Packets, Bytes                   uint64
	Expr                             []nftExpr
	Elem                             []json.RawMessage
}

// nftExpr is one expression of a rule by its name; one that this nft cannot say in JSON, which it prints as a string, has none.
type nftExpr map[string]json.RawMessage

func (e *nftExpr) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return nil
	}
	return json.Unmarshal(text, (*map[string]json.RawMessage)(e))
}

type nftCounter struct{ Packets, Bytes uint64 }

// addNFT reads what `nft -j list ruleset` prints.
func (rc ruleCounters) addNFT(text []byte, keep kept) error {
	var list struct {
		NFTables []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("reading nft's list: %w", err)
	}
	skip, own := map[string]bool{}, []string{}
	number := map[string]int{}
	for _, entry := range list.NFTables {
		for kind, raw := range entry {
			var o nftObject
			if kind == "metainfo" {
				continue
			}
			if err := json.Unmarshal(raw, &o); err != nil {
				return fmt.Errorf("reading nft's %s: %w", kind, err)
			}
			at := fmt.Sprintf("nft %s %s ", o.Family, o.Table)
			switch kind {
			case "chain":
				skip[at+o.Name] = o.Hook == "input" || o.Hook == "output"
				if o.Hook == "postrouting" {
					own = append(own, at)
				}
			case "counter":
				rc[at+"counter "+o.Name] = count{packets: o.Packets, bytes: o.Bytes}
			case "set", "map":
				rc.addElements(at+kind+" "+o.Name, o.Elem)
				keep.addSet(at+kind+" "+o.Name, o.Elem)
			case "quota":
				keep.addQuota(at+o.Name, raw)
			case "rule":
				number[at+o.Chain]++
				for _, e := range o.Expr {
					if quota, ok := e["quota"]; ok {
						keep.addQuota(fmt.Sprintf("%s%s #%d", at, o.Chain, number[at+o.Chain]), quota)
					}
				}
				if c, ok := o.firstCounter(); ok && !skip[at+o.Chain] {
					rc[fmt.Sprintf("%s%s #%d", at, o.Chain, number[at+o.Chain])] = c
				}
			}
		}
	}
	for key, c := range rc {
		c.own = c.own || slices.ContainsFunc(own, func(table string) bool { return strings.HasPrefix(key, table) })
		rc[key] = c
	}
	maps.DeleteFunc(keep, func(key string, _ int) bool { // the router's own messages use it too, some of them limited by the clock
		return strings.Contains(key, quotaOf) && slices.ContainsFunc(own, func(table string) bool { return strings.HasPrefix(key, table) })
	})
	return nil
}

// firstCounter is the counter that `shunt show rules` speaks of.
func (o *nftObject) firstCounter() (count, bool) {
	for _, e := range o.Expr {
		var c nftCounter
		if raw, ok := e["counter"]; ok && json.Unmarshal(raw, &c) == nil { // a named one is a string
			return count{packets: c.Packets, bytes: c.Bytes, text: o.Comment}, true
		}
	}
	return count{}, false
}

// addElements reads the elements of a set or map that have counters.
func (rc ruleCounters) addElements(set string, list []json.RawMessage) {
	for _, raw := range list {
		var pair []json.RawMessage // of a map
		if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
			raw = pair[0]
		}
		var e struct {
			Elem struct {
				Val     json.RawMessage
				Counter *nftCounter
			}
		}
		if json.Unmarshal(raw, &e) == nil && e.Elem.Counter != nil {
			rc[set+" "+string(e.Elem.Val)] = count{packets: e.Elem.Counter.Packets, bytes: e.Elem.Counter.Bytes}
		}
	}
}

// addIPSets reads what `ipset save` prints.
func (rc ruleCounters) addIPSets(text string, keep kept) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "add" {
			keep.addIPSet(words)
		}
		at := slices.Index(words, "packets")
		if len(words) < 5 || words[0] != "add" || at < 0 {
			continue
		}
		var c count
		fmt.Sscan(words[at+1], &c.packets)
		fmt.Sscan(words[at+3], &c.bytes)
		rc["ipset "+words[1]+" "+words[2]] = c
	}
}

// ruleCounters asks shunt for the sums, until it has told Linux of all that Linux can be told: at once, unless a tool is at work somewhere on the machine.
func (d *daemon) ruleCounters() (ruleCounters, error) {
	for end := time.Now().Add(tellWithin); ; time.Sleep(10 * time.Millisecond) {
		var said api.Rules
		if err := d.ask(api.VerbShow, api.ShowArgs{What: api.ShowRules}, &said); err != nil {
			return nil, err
		}
		out := sums(&said)
		untold := ""
		for key, c := range out {
			if legacy(key) && c.fast != (api.Fast{}) {
				untold = key
			}
		}
		if untold == "" {
			return out, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("in %v Linux was not told what the fast path counted for %s", tellWithin, untold)
		}
	}
}

const tellWithin = 10 * time.Second

// sums are the counters that shunt lists.
func sums(said *api.Rules) ruleCounters {
	out := ruleCounters{}
	for _, t := range said.Tables {
		for _, c := range t.Chains {
			at := fmt.Sprintf("%s %s %s %s ", t.Dialect, t.Family, t.Name, c.Name)
			if c.Packets != nil {
				out[at+"policy"] = sumOf(c.Packets, c.Bytes, c.Fast)
			}
			for _, rule := range c.Rules {
				if rule.Packets != nil {
					out[fmt.Sprintf("%s#%d", at, rule.Number)] = sumOf(rule.Packets, rule.Bytes, rule.Fast)
				}
			}
		}
		for _, c := range t.Counters {
			out[fmt.Sprintf("%s %s %s counter %s", t.Dialect, t.Family, t.Name, c.Name)] = sumOf(c.Packets, c.Bytes, c.Fast)
		}
	}
	return out
}

func sumOf(packets, bytes *uint64, fast *api.Fast) count {
	c := count{packets: *packets, bytes: *bytes}
	if fast != nil {
		c.fast = *fast
	}
	return c
}
