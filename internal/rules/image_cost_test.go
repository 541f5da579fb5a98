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
	const count, passes = 100_000, 7
	devices := []rules.Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Type: 1}}
	for _, size := range []int{100, 1000, 10000} {
		for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			pr := rules.Flatten(rs, rules.Class{Family: ruleset.IP4})
			start := time.Now()
			im, err := image.Compile(pr, devices, image.Options{Stage: image.Post})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			n := loadNode(t, 1<<25, [stages]image.Shape{image.Post: im.Shape})
			var frames [][]byte
			for _, h := range classbench.Headers(rs, count, classbench.Seed) {
				frames = append(frames, frameOf(&h))
			}
			replay, err := lab.NewReplay(frames, ebpf.XDP, ebpf.AttachXDP)
			if err != nil {
				t.Fatal(err)
			}
			best := [2][]float64{}
			for range passes {
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
			replay.Close()
			cost := make([]float64, count)
			for j := range cost {
				cost[j] = best[1][j] - best[0][j]
			}
			slices.Sort(cost)
			slices.Sort(best[0])
			t.Logf("%-9s %8d bytes, made in %7v; ns beyond none (%.0f): p50 %.0f p90 %.0f p99 %.0f", fmt.Sprint(kind, size), len(im.Bytes), took.Round(10*time.Microsecond), best[0][count/2], cost[count/2], cost[count/10*9], cost[count/100*99])
		}
	}
}
