// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
	"github.com/shuntnet/shunt/internal/rules/image"
)

var twoDevices = []rules.Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Type: 1}}

// TestTreesOfManyRules: large sets of rules are found by trees, in less memory than rows take, and the node finds what the rules mean, of packets that satisfy a rule
// and of such as miss it by little.
func TestTreesOfManyRules(t *testing.T) {
	for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
		for _, size := range []int{600, 1000, 10000} {
			t.Run(fmt.Sprint(kind, size), func(t *testing.T) {
				rs := classbench.Rules(kind, size, classbench.Seed)
				pr := rules.Flatten(rs, rules.Class{Family: ruleset.IP4})
				im, err := image.Compile(pr, twoDevices, image.Options{Stage: image.Post})
				if err != nil {
					t.Fatal(err)
				}
				rows, err := image.Compile(pr, twoDevices, image.Options{Stage: image.Post, TreeFrom: -1})
				if err != nil {
					t.Fatal(err)
				}
				if !im.Shape.Tree || rows.Shape.Tree || len(im.Bytes) > len(rows.Bytes) {
					t.Fatalf("trees: %v in %d bytes, rows: %v in %d", im.Shape.Tree, len(im.Bytes), !rows.Shape.Tree, len(rows.Bytes))
				}
				t.Logf("%d entries, trees of %d bytes, rows of %d", im.Entries, len(im.Bytes), len(rows.Bytes))
				n := loadNode(t, 1<<25, [stages]image.Shape{image.Post: im.Shape})
				n.install(t, [stages]*image.Image{image.Post: im})
				random := rand.New(rand.NewPCG(1, uint64(size)))
				dropped := 0
				for _, p := range classbench.Headers(rs, 2000, classbench.Seed+1) {
					switch random.IntN(6) {
					case 0:
						p.Src = beside(p.Src, random)
					case 1:
						p.Dst = beside(p.Dst, random)
					case 2:
						p.DPort += uint16(random.IntN(3)) - 1
					case 3:
						p.Proto = []uint8{1, 6, 17, 47}[random.IntN(4)]
					}
					p.TTL = 64
					got, want := n.run(t, &p), pr.Run(p)
					if got.outcome != want.Outcome || !sameCounts(got.counted, want.Counted) {
						t.Fatalf("%+v: the node says %v and counts %v, the rules %v and %v", p, got.outcome, got.counted, want.Outcome, want.Counted)
					}
					if got.outcome == rules.Dropped {
						dropped++
					}
				}
				if dropped < 100 || dropped > 1900 {
					t.Errorf("%d of 2000 packets were dropped: that tells little", dropped)
				}
			})
		}
	}
}

// beside changes one bit of an address.
func beside(a netip.Addr, random *rand.Rand) netip.Addr {
	b := a.As4()
	bit := random.IntN(32)
	b[bit/8] ^= 128 >> (bit % 8)
	return netip.AddrFrom4(b)
}

// TestTreesGiveUp: what no tree can part keeps its rows: rules that ask for the same, and such as ask for many ranges at once.
func TestTreesGiveUp(t *testing.T) {
	some := make([]ruleset.Rule, 900)
	for i := range some {
		some[i] = ruleset.Rule{Number: i + 1, Steps: []ruleset.Step{
			ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.Nums(1, 2)}}, ruleset.Test{Field: ruleset.TTL, Ranges: []ruleset.Range{ruleset.Nums(uint64(i%200), uint64(i%200))}},
			ruleset.Verdict{Code: ruleset.Drop}}}
	}
	rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: ruleset.IP4, Name: "t", Chains: []ruleset.Chain{
		{Name: "f", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}, Rules: some}}}}}
	im, err := image.Compile(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}), twoDevices, image.Options{Stage: image.Post})
	if err != nil || im.Shape.Tree {
		t.Errorf("900 rules for the same sender have trees: %v, %v", im.Shape.Tree, err)
	}
}
