// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// How long the node takes for ClassBench-like rules, beside no rules, for each of many headers that go one right behind the other; and what making an image takes. Asked for by
// SHUNT_COST=1, since nothing is to be had from it on a machine that does other things.
func TestCostOfTheNode(t *testing.T) {
	if os.Getenv("SHUNT_COST") == "" {
		t.Skip("SHUNT_COST is not set")
	}
	for _, size := range []int{100, 1000, 10000} {
		for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			start := time.Now()
			im := costImage(t, rs)
			took := time.Since(start)
			cost := costs(t, frames(rs, costCount), im, 0)
			t.Logf("%-9s %8d bytes, made in %7v; ns beyond none: %s", fmt.Sprint(kind, size), len(im.Bytes), took.Round(10*time.Microsecond), cost)
		}
	}
}

// TestCostOfVerdicts is the same for flows that come again and again, by walks and by remembered verdicts. Asked for by SHUNT_COST=1.
func TestCostOfVerdicts(t *testing.T) {
	if os.Getenv("SHUNT_COST") == "" {
		t.Skip("SHUNT_COST is not set")
	}
	for _, size := range []int{10, 100, 1000, 10000} {
		for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			im := costImage(t, rs)
			for _, flows := range []int{1, 50, 1000, 16000, 100000} {
				list := frames(rs, flows)
				for i := flows; i < costCount; i++ {
					list = append(list, list[i%flows])
				}
				t.Logf("%-9s %6d flows, ns beyond none: by walks %s; remembered %s", fmt.Sprint(kind, size), flows, costs(t, list, im, 0), costs(t, list, im, 1<<13))
			}
		}
	}
}

const costCount, costPasses = 100_000, 7

func costImage(t *testing.T, rs *ruleset.Ruleset) *image.Image {
	t.Helper()
	devices := []rules.Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Type: 1}}
	im, err := image.Compile(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}), devices, image.Options{Stage: image.Post})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// frames are headers near what the rules ask for.
func frames(rs *ruleset.Ruleset, n int) (out [][]byte) {
	for _, h := range classbench.Headers(rs, n, classbench.Seed) {
		out = append(out, frameOf(&h))
	}
	return out
}

// costs says what the node takes for an image beside no rules, of the frames, with room for so many remembered verdicts.
func costs(t *testing.T, frames [][]byte, im *image.Image, verdicts uint32) string {
	t.Helper()
	n := loadRemembering(t, 1<<25, [stages]image.Shape{image.Post: im.Shape}, verdicts)
	defer n.coll.Close()
	if verdicts > 0 {
		n.number = 1
	}
	replay, err := lab.NewReplay(frames, ebpf.XDP, ebpf.AttachXDP)
	if err != nil {
		t.Fatal(err)
	}
	defer replay.Close()
	best := [2][]float64{}
	for range costPasses {
		for i, installed := range [2]*image.Image{nil, im} {
			n.install(t, [stages]*image.Image{image.Post: installed})
			times, err := replay.Run(n.coll.Programs["shunt_classify"], 0)
			if err != nil {
				t.Fatal(err)
			}
			if best[i] == nil {
				best[i] = times
			}
			for j := range times {
				best[i][j] = min(best[i][j], times[j])
			}
		}
	}
	cost, sum := make([]float64, len(frames)), 0.0
	for j := range cost {
		cost[j] = best[1][j] - best[0][j]
		sum += cost[j]
	}
	slices.Sort(cost)
	at := func(percent int) float64 { return cost[len(cost)*percent/100] }
	return fmt.Sprintf("p50 %.0f p90 %.0f p99 %.0f mean %.0f", at(50), at(90), at(99), sum/float64(len(cost)))
}
