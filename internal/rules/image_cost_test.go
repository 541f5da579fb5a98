// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
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

// BenchmarkNode says how long the node takes for ClassBench-like rules, beside no rules, for each of many headers that go one right behind the other; and what making an image
// takes. Once is enough: -benchtime 1x.
func BenchmarkNode(b *testing.B) {
	for _, size := range []int{100, 1000, 10000} {
		for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			start := time.Now()
			im := costImage(b, rs)
			made := time.Since(start)
			b.Run(fmt.Sprint(kind, size), func(b *testing.B) {
				costs(b, frames(rs, costCount), im, 0)
				b.ReportMetric(float64(made.Microseconds()), "made-us")
				b.ReportMetric(float64(len(im.Bytes)), "bytes")
			})
		}
	}
}

// BenchmarkVerdicts is the same for flows that come again and again, by walks and by remembered verdicts.
func BenchmarkVerdicts(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1000, 10000} {
		for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			im := costImage(b, rs)
			for _, flows := range []int{1, 50, 1000, 16000, 100000} {
				list := frames(rs, flows)
				for i := flows; i < costCount; i++ {
					list = append(list, list[i%flows])
				}
				for name, verdicts := range map[string]uint32{"walks": 0, "remembered": 1 << 13} {
					b.Run(fmt.Sprintf("%s%d/%d-flows/%s", kind, size, flows, name), func(b *testing.B) { costs(b, list, im, verdicts) })
				}
			}
		}
	}
}

const costCount, costPasses = 100_000, 7

func costImage(t testing.TB, rs *ruleset.Ruleset) *image.Image {
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

// costs reports what the node takes for an image beside no rules, of the frames, with room for so many remembered verdicts.
func costs(b *testing.B, frames [][]byte, im *image.Image, verdicts uint32) {
	b.Helper()
	n := loadRemembering(b, 1<<25, [stages]image.Shape{image.Post: im.Shape}, verdicts)
	defer n.coll.Close()
	if verdicts > 0 {
		n.number = 1
	}
	replay, err := lab.NewReplay(frames, ebpf.XDP, ebpf.AttachXDP)
	if err != nil {
		b.Fatal(err)
	}
	defer replay.Close()
	best := [2][]float64{}
	for range costPasses {
		for i, installed := range [2]*image.Image{nil, im} {
			n.install(b, [stages]*image.Image{image.Post: installed})
			times, err := replay.Run(n.coll.Programs["shunt_classify"], 0)
			if err != nil {
				b.Fatal(err)
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
	for _, percent := range []int{50, 90, 99} {
		b.ReportMetric(cost[len(cost)*percent/100], fmt.Sprintf("p%d-ns", percent))
	}
	b.ReportMetric(sum/float64(len(cost)), "mean-ns")
	b.ReportMetric(0, "ns/op")
}
