// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// inflightDialect is how rules are loaded and changed in one dialect.
type inflightDialect struct {
	name    string
	v6      bool
	counted bool   // one flow asks for an ipset's element that counts, so that Linux has it
	tool    string // of the dialects of iptables
	// setup is the first command; more are others behind it.
	setup func(rng *rand.Rand) string
	more  []string
	// change is a command that makes another rule set of the last, in one step for the kernel.
	change func(rng *rand.Rand, t *twin) string
	stays  int // counters that no change touches
}

func (d *inflightDialect) dialects() map[string]bool {
	return map[string]bool{d.tool: d.tool != "", "nft": d.tool == "", "ipset": d.counted}
}

func inflightDialects() []*inflightDialect {
	return []*inflightDialect{
		tablesInFlight("iptables-legacy"), tablesInFlight("iptables-nft"), tablesInFlight("ip6tables-legacy"), nftInFlight(), ipsetInFlight(),
	}
}

// someFlows is a range of destination ports of flows that may be dropped.
func someFlows(rng *rand.Rand) (from, to int) {
	from = alwaysFlows + rng.IntN(streamFlows-alwaysFlows)
	return streamPort + from, streamPort + from + rng.IntN(streamFlows-from)
}

// mixedDSCP is what no rule set gives: in a restored table and a flushed chain a first rule gives each packet a DSCP or a mark of this rule set alone, and a later one this DSCP
// to packets that have another. Half of one rule set and half of the next would show so.
const mixedDSCP = 63

// tablesInFlight changes tables of iptables: mangle is restored and changed, filter is changed only, with a rule in it that stays.
func tablesInFlight(tool string) *inflightDialect {
	d := &inflightDialect{name: tool, v6: strings.HasPrefix(tool, "ip6"), tool: tool, stays: 2}
	made, inserted := 0, 0
	restoreMangle := func(rng *rand.Rand) string {
		made++
		dscp := 1 + made%40
		var lines []string
		line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		at := "FORWARD"
		if chance(rng, 50) {
			at = "stamp"
			line("-A FORWARD -p udp -j stamp")
		}
		line("-A %s -p udp -m udp --dport 2000:2100 -j DSCP --set-dscp %d", at, dscp)
		for range rng.IntN(3) {
			from, to := someFlows(rng)
			line("-A FORWARD -p udp -m udp --dport %d:%d -j DROP", from, to)
		}
		line("-A FORWARD -m dscp ! --dscp %d -j DSCP --set-dscp %d", dscp, mixedDSCP)
		if at == "FORWARD" && chance(rng, 70) { // with the jump a packet would move nine counters, and eight are what a fast one can
			from, to := someFlows(rng)
			line("-A FORWARD -p udp -m udp --dport %d:%d -j DSCP --set-dscp %d", from, to, 41+rng.IntN(20))
		}
		return restore(tool, "mangle", ":FORWARD ACCEPT [0:0]; :stamp - [0:0]", lines...)
	}
	rule := func(rng *rand.Rand) string {
		from, to := someFlows(rng)
		verdict := pick(rng, []string{"DROP", "DROP", "ACCEPT"})
		switch rng.IntN(4) {
		case 0:
			return fmt.Sprintf("-p udp -m multiport --dports %d,%d -j %s", from, to, verdict)
		case 1:
			return fmt.Sprintf("-m dscp --dscp %d -p udp -m udp --dport %d -j %s", 41+rng.IntN(20), from, verdict)
		case 2:
			addr, bits := fmt.Sprintf("10.1.2.%d", 10+from-streamPort), 32
			if d.v6 {
				addr, bits = fmt.Sprintf("2001:db8:1::%d", 10+from-streamPort), 128
			}
			return fmt.Sprintf("-d %s/%d -j %s", addr, bits, verdict)
		}
		return fmt.Sprintf("-p udp -m udp --dport %d:%d -j %s", from, to, verdict)
	}
	d.setup = func(*rand.Rand) string {
		return restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p udp -m udp --dport 2000:2100 -m comment --comment stays-all")
	}
	first := rand.New(rand.NewPCG(1, 1))
	d.more = []string{restoreMangle(first), restore(tool, "filter", ":FORWARD ACCEPT [0:0]",
		fmt.Sprintf("-A FORWARD -p udp -m udp --dport %d:%d -m comment --comment stays-always -j ACCEPT", streamPort, streamPort+alwaysFlows-1))}
	policy := "ACCEPT"
	d.change = func(rng *rand.Rand, _ *twin) string {
		switch n := rng.IntN(10); {
		case n < 4:
			return restoreMangle(rng)
		case n == 4:
			from, _ := someFlows(rng)
			return fmt.Sprintf("%s -t mangle -I %s 1 -p udp -m udp --dport %d -j DROP", tool, pick(rng, []string{"FORWARD", "stamp"}), from)
		case n == 5:
			policy = map[string]string{"ACCEPT": "DROP", "DROP": "ACCEPT"}[policy]
			return fmt.Sprintf("%s -P FORWARD %s", tool, policy)
		case n == 6 && inserted > 0:
			return fmt.Sprintf("%s -R FORWARD %d %s", tool, 2+rng.IntN(inserted), rule(rng))
		case n <= 8 && inserted > 0:
			inserted--
			return fmt.Sprintf("%s -D FORWARD %d", tool, 2+rng.IntN(inserted+1))
		}
		inserted++
		return fmt.Sprintf("%s -I FORWARD %d %s", tool, 2+rng.IntN(inserted), rule(rng))
	}
	return d
}

// nftInFlight changes a table of nft: a chain is flushed and filled with its user chain in one transaction, in another chain single rules come and go, sets and a verdict
// map get and lose elements, and a policy changes.
func nftInFlight() *inflightDialect {
	d := &inflightDialect{name: "nft", stays: 4}
	made := 0
	whole := func(rng *rand.Rand) string {
		made++
		mark, dscp := 1+made%200, 1+made%40
		lines := []string{"nft -f -", "flush chain inet w f", "flush chain inet w stamp", fmt.Sprintf("add rule inet w f udp dport 2000-2100 meta mark set %d", mark)}
		line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		for range rng.IntN(3) {
			from, to := someFlows(rng)
			line("add rule inet w f udp dport %d-%d %s", from, to+1, pick(rng, []string{"drop", "counter drop", "accept"}))
		}
		line("add rule inet w f counter jump stamp")
		line("add rule inet w f meta mark != %d ip dscp set %d", mark, mixedDSCP)
		line("add rule inet w stamp meta mark %d ip dscp set %d", mark, dscp)
		for range rng.IntN(3) {
			from, _ := someFlows(rng)
			line("add rule inet w stamp udp dport %d ip dscp set %d", from, 41+rng.IntN(20))
		}
		return strings.Join(lines, "\n") + "\n"
	}
	d.setup = func(*rand.Rand) string {
		return "nft -f -\n" +
			"add table inet keep\nadd counter inet keep stays-all\nadd counter inet keep stays-always\n" +
			"add chain inet keep early { type filter hook prerouting priority -300; }\nadd rule inet keep early udp dport 2000-2100 counter name stays-all counter comment \"stays-all\"\n" +
			fmt.Sprintf("add chain inet keep late { type filter hook forward priority 200; }\nadd rule inet keep late udp dport %d-%d counter name stays-always counter comment \"stays-always\"\n", streamPort, streamPort+alwaysFlows-1) +
			"add table inet w\nadd chain inet w f { type filter hook forward priority 0; }\nadd chain inet w stamp\nadd chain inet w g { type filter hook forward priority 10; }\n" +
			"add set inet w ports { type inet_service; }\nadd set inet w nets { type ipv4_addr; flags interval; }\nadd map inet w verdicts { type inet_service : verdict; }\n" +
			"add chain inet w sets { type filter hook forward priority 20; }\nadd rule inet w sets udp dport @ports drop\nadd rule inet w sets ip daddr @nets counter drop\nadd rule inet w sets udp dport vmap @verdicts\n" +
			fmt.Sprintf("add rule inet w g udp dport %d-%d accept\n", streamPort, streamPort+alwaysFlows-1)
	}
	d.more = []string{whole(rand.New(rand.NewPCG(1, 1)))}
	in := map[string][]string{} // what is in the sets
	policy, rulesOfG := "accept", 0
	element := func(rng *rand.Rand) string {
		set := pick(rng, []string{"ports", "nets", "verdicts"})
		from, _ := someFlows(rng)
		key := fmt.Sprint(from)
		if set == "nets" {
			key = fmt.Sprintf("10.1.2.%d", 10+from-streamPort)
		}
		if i := slices.Index(in[set], key); i >= 0 {
			in[set] = slices.Delete(in[set], i, i+1)
			return fmt.Sprintf("nft delete element inet w %s { %s }", set, key)
		}
		in[set] = append(in[set], key)
		if set == "verdicts" {
			key += " : " + pick(rng, []string{"drop", "accept"})
		}
		return fmt.Sprintf("nft add element inet w %s { %s }", set, key)
	}
	d.change = func(rng *rand.Rand, t *twin) string {
		switch n := rng.IntN(12); {
		case n < 4:
			return whole(rng)
		case n < 8:
			return element(rng)
		case n == 8:
			policy = map[string]string{"accept": "drop", "drop": "accept"}[policy]
			return fmt.Sprintf("nft chain inet w g { policy %s; }", policy)
		case n < 11 && rulesOfG > 0:
			if handle := lastHandle(t, "g", 1); handle > 0 {
				rulesOfG--
				return fmt.Sprintf("nft delete rule inet w g handle %d", handle)
			}
		}
		rulesOfG++
		from, to := someFlows(rng)
		return fmt.Sprintf("nft %s rule inet w g %s udp dport %d-%d counter %s", "add", pick(rng, []string{"index 0", ""}), from, to+1, pick(rng, []string{"drop", "drop", "accept"}))
	}
	return d
}

// lastHandle is that of the last rule of a chain of table w, 0 where there are no more than some.
func lastHandle(t *twin, chain string, more int) uint64 {
	rs, err := t.filters()
	if err != nil {
		return 0
	}
	if c := rs.Table(ruleset.Inet, "w").Chain(chain); c != nil && len(c.Rules) > more {
		return c.Rules[len(c.Rules)-1].Handle
	}
	return 0
}

// ipsetInFlight changes sets of ipset that rules of legacy tables ask, which stay. Of two sets that are swapped rules ask one: the kernel puts the first into both places before the
// second into its own.
func ipsetInFlight() *inflightDialect {
	d := &inflightDialect{name: "ipset", counted: true, tool: "iptables-legacy", stays: 3}
	d.setup = func(*rand.Rand) string {
		return "ipset restore\ncreate ports bitmap:port range 0-65535\ncreate addrs hash:ip\ncreate other hash:ip\ncreate nets hash:net\ncreate pairs hash:ip,port\ncreate counted hash:ip counters\n" +
			fmt.Sprintf("add counted 10.1.2.%d\nadd other 10.1.2.%d\nadd other 10.1.2.%d\n", 10+countedFlow, 10+alwaysFlows, 10+streamFlows-2)
	}
	const tool = "iptables-legacy"
	d.more = []string{
		restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p udp -m udp --dport 2000:2100 -m comment --comment stays-all"),
		restore(tool, "mangle", ":FORWARD ACCEPT [0:0]", "-A FORWARD -m set --match-set pairs dst,dst -j DSCP --set-dscp 9"),
		restore(tool, "filter", ":FORWARD ACCEPT [0:0]",
			fmt.Sprintf("-A FORWARD -p udp -m udp --dport %d:%d -m comment --comment stays-always", streamPort, streamPort+alwaysFlows-1),
			fmt.Sprintf("-A FORWARD -p udp -m udp --dport %d:%d -j ACCEPT", streamPort, streamPort+alwaysFlows-1),
			fmt.Sprintf("-A FORWARD -p udp -m udp --dport %d -m set --match-set counted dst -j ACCEPT", streamPort+countedFlow),
			"-A FORWARD -p udp -m set --match-set ports dst -j DROP", "-A FORWARD -m set --match-set addrs dst -j DROP",
			"-A FORWARD -m set ! --match-set nets dst -m dscp --dscp 9 -j DROP", "-A FORWARD -m set --match-set nets dst -j DROP"),
	}
	in := map[string]bool{}
	d.change = func(rng *rand.Rand, _ *twin) string {
		if rng.IntN(6) == 0 {
			return "ipset swap addrs other"
		}
		set := pick(rng, []string{"ports", "addrs", "nets", "pairs", "other", "pairs"})
		flow := rng.IntN(streamFlows)
		if set != "pairs" {
			flow = alwaysFlows + rng.IntN(streamFlows-1-alwaysFlows)
		}
		if set == "nets" && rng.IntN(3) == 0 {
			flow &^= 1
		}
		addr, port := fmt.Sprintf("10.1.2.%d", 10+flow), streamPort+flow
		key := map[string]string{"ports": fmt.Sprint(port), "addrs": addr, "other": addr, "nets": addr + "/31", "pairs": fmt.Sprintf("%s,udp:%d", addr, port)}[set]
		do := "add"
		if in[set+key] {
			do = "del"
		}
		in[set+key] = !in[set+key]
		return fmt.Sprintf("ipset %s %s %s -exist", do, set, key)
	}
	return d
}
