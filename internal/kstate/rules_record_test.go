// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ruleRecordings are rule sets whose reading is recorded in testdata/rules.
var ruleRecordings = []struct{ name, script string }{
	{"ipset", ipsetScript()},
	{"legacy", "iptables-legacy-restore <<'EOT'\n" + legacyRestore() + "EOT\niptables-legacy -P FORWARD DROP\nip6tables-legacy -A FORWARD -s fd00::/8 -p tcp -m tcp --dport 80 -j ACCEPT"},
	{"native", "nft -f - <<'EOT'\n" + nativeTable(nativeRules) + "\nEOT"},
}

// TestRecordRules records the reading of each rule set and replays it at once: both must give the same. With -update the
// recordings become testdata.
func TestRecordRules(t *testing.T) {
	for _, rec := range ruleRecordings {
		t.Run(rec.name, func(t *testing.T) {
			ns := namespace(t)
			ns.run(t, rec.script)
			var buf bytes.Buffer
			live := ReadRules(NewRecorder(&buf))
			dir := t.TempDir()
			if *update {
				dir = "testdata/rules"
			}
			path := filepath.Join(dir, rec.name+".jsonl")
			if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			replayed, err := ReplayRules(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(live, replayed, cmpopts.EquateComparable(netip.Addr{})); diff != "" || len(live.Faults) > 0 {
				t.Errorf("the replay differs (-live +replayed):\n%s%v", diff, live.Faults)
			}
		})
	}
}

// TestReplayRules decodes the recordings of testdata and compares with the golden text beside them. It needs no privilege.
func TestReplayRules(t *testing.T) {
	for _, rec := range ruleRecordings {
		read, err := ReplayRules(filepath.Join("testdata/rules", rec.name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		got := describe(read)
		golden := filepath.Join("testdata/rules", rec.name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	}
}

// describe writes what was read in lines that can be compared and reviewed.
func describe(r *RuleReading) string {
	var out strings.Builder
	write := func(words ...string) { out.WriteString(strings.TrimRight(strings.Join(words, " "), " ") + "\n") }
	for _, f := range r.Faults {
		write("fault", f.Part+":", f.Err)
	}
	for _, s := range r.Ruleset.Sets {
		write("set", s.Family.String(), s.Table, s.Name, s.Type, setWords(s))
	}
	for _, t := range r.Ruleset.Tables {
		write("table", t.Family.String(), t.Name)
		for _, c := range t.Chains {
			base, _ := json.Marshal(c.Base)
			write("  chain", c.Name, string(base))
			for _, rule := range c.Rules {
				write("    " + rule.Text)
				write("      = " + steps(rule))
			}
		}
	}
	return out.String()
}
