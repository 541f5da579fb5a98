// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestCostOfReadingRules reads ten thousand rules and twenty thousand elements. The bound is generous, for busy machines; the
// log has the figures.
func TestCostOfReadingRules(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many rules")
	}
	ns := namespace(t)
	var script strings.Builder
	script.WriteString("table inet f {\nset s { type ipv4_addr; elements = { 192.0.2.1")
	for i := range 20_000 {
		fmt.Fprintf(&script, ", 10.%d.%d.%d", i>>16, i>>8&255, i&255)
	}
	script.WriteString(" }\n}\nchain forward { type filter hook forward priority 0;\n")
	for i := range 10_000 {
		fmt.Fprintf(&script, "ip saddr 10.%d.%d.0/24 tcp dport %d counter accept\n", i>>8, i&255, i+1)
	}
	script.WriteString("}\n}\n")
	ns.batchNFT(t, script.String())
	r := costOfReading(t, "nf_tables with 20,000 elements")
	if len(r.Sets[0].Elements) != 20_001 || len(r.Tables[0].Chains[0].Rules) != 10_000 {
		t.Errorf("%d elements, %d rules", len(r.Sets[0].Elements), len(r.Tables[0].Chains[0].Rules))
	}
}

// TestCostOfReadingLegacyRules reads ten thousand rules of a legacy table.
func TestCostOfReadingLegacyRules(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many rules")
	}
	ns := namespace(t)
	var script strings.Builder
	script.WriteString("*filter\n")
	for i := range 10_000 {
		fmt.Fprintf(&script, "-A FORWARD -s 10.%d.%d.0/24 -p tcp -m tcp --dport %d -j ACCEPT\n", i>>8, i&255, i+1)
	}
	script.WriteString("COMMIT\n")
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.run(t, "iptables-legacy-restore "+path)
	r := costOfReading(t, "a legacy table")
	if n := len(r.Table(ruleset.IP4, "filter").Chain("FORWARD").Rules); n != 10_000 {
		t.Errorf("%d rules", n)
	}
}

func costOfReading(t *testing.T, what string) *ruleset.Ruleset {
	t.Helper()
	var out *RuleReading
	var took, kernel []time.Duration
	for range 5 {
		user, system := cpuTime(t)
		out = ReadRules(nil)
		user2, system2 := cpuTime(t)
		took, kernel = append(took, user2-user), append(kernel, system2-system)
		if len(out.Faults) > 0 {
			t.Fatal(out.Faults)
		}
	}
	t.Logf("10,000 rules of %s: %s of CPU time in Go, %s in the kernel", what, medianOf(took), medianOf(kernel))
	if took := medianOf(took); took > time.Second {
		t.Errorf("reading takes %s of CPU time in Go", took)
	}
	return &out.Ruleset
}

// cpuTime is that of the calling thread, which other work on the machine does not lengthen much.
func cpuTime(t *testing.T) (user, system time.Duration) {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// batchNFT loads a long script.
func (ns netns) batchNFT(t *testing.T, script string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.run(t, "nft -f "+path)
}
