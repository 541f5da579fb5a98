// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"os"
	"strings"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestNFTFilesMeanWhatTheKernelReads loads rules, writes them with `nft -j list ruleset`, and compares the parsed file with what is
// read back.
func TestNFTFilesMeanWhatTheKernelReads(t *testing.T) {
	for _, name := range []string{"testdata/native.nft", "../kstate/testdata/rules/kube-proxy-1.36.nft"} {
		t.Run(name[strings.LastIndex(name, "/")+1:], func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			ns := namespace(t)
			in(t, ns, "nft -f -", string(b))
			file := parse(t, in(t, ns, "nft -j list ruleset", ""))
			want := kernel(t, ns)
			for _, r := range []*rs.Ruleset{file, want} {
				forget(r)
			}
			same(t, lines(t, file, false), lines(t, want, false))
		})
	}
}

// forget takes away what nft 1.0.6 does not write: devices of chains, which flags a table has, that some kernels do not tell the order of chains, and the names of what only Linux
// evaluates, which have no form of their own in the file.
func forget(r *rs.Ruleset) {
	for i := range r.Tables {
		table := &r.Tables[i]
		table.Dormant = false
		for j := range table.Chains {
			c := &table.Chains[j]
			if b := c.Base; b != nil && (table.Family == rs.Netdev || table.Family == rs.Bridge || table.Name == "sleeping") {
				b.Devices, b.Unknown = nil, nil
			}
			for k := range c.Rules {
				for n, s := range c.Rules[k].Steps {
					if _, ok := s.(rs.Unknown); ok {
						c.Rules[k].Steps[n] = rs.Unknown{}
					}
				}
			}
		}
	}
}
