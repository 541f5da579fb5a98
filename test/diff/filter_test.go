// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestFiltersLoad: the kernel and the tools take what the generator writes; a rule set that does not load compares nothing.
func TestFiltersLoad(t *testing.T) {
	lab.RequireRoot(t)
	kinds := kinds(t)
	commands, refused := 0, 0
	for seed := range uint64(*configsFlag) {
		c := Generate(seed, 10, "xdp", kinds)
		ns, err := lab.NewNS(lab.UniquePrefix("load") + "n")
		if err != nil {
			t.Fatal(err)
		}
		twin := &twin{dut: ns, hosts: hosts{}}
		for i := range Ports {
			if err := ns.Exec("ip link add %s type veth peer name w%d", portName(i), i); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range c.Steps {
			for _, cmd := range s.Commands {
				if tool, _, _ := strings.Cut(strings.ReplaceAll(cmd, "\n", " "), " "); !strings.Contains(tool, "tables") && tool != "nft" && tool != "ipset" {
					continue
				}
				said, err := twin.apply([]string{cmd})
				if err != nil {
					t.Fatal(err)
				}
				commands++
				if said != "" {
					refused++
					if i == 0 {
						t.Errorf("seed %d: %s\n%s", seed, cmd, said)
					} else {
						t.Logf("seed %d: %s\n%s", seed, cmd, said)
					}
				}
			}
		}
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d commands, %d refused", commands, refused)
	if refused*20 > commands {
		t.Errorf("that is more than one in twenty")
	}
}

// TestSpans: what the search for a small case leaves out of a rule are whole conditions.
func TestSpans(t *testing.T) {
	got := spans("-A FORWARD ! -s 10.0.0.0/8 -p udp -m udp ! --dport 5 -m set --match-set a src -j DROP")
	want := []string{" ! -s 10.0.0.0/8", " -p udp", " -m udp ! --dport 5", " -m set --match-set a src", " -j DROP"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := spans("add rule ip t c ip saddr 1.2.3.4 drop"); !slices.Contains(got, " ip saddr 1.2.3.4") {
		t.Errorf("%q lacks a condition", got)
	}
}
