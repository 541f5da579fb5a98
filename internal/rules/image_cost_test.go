// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// How long the node takes for ClassBench-like rules, beside no rules, header by header and each many times (hot caches); and what making an image
// takes. Asked for by SHUNT_COST=1, since nothing is to be had from it on a machine that does other things.
func TestCostOfTheNode(t *testing.T) {
	if os.Getenv("SHUNT_COST") == "" {
		t.Skip("SHUNT_COST is not set")
	}
	devices := []rules.Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Type: 1}}
	for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
		for _, size := range []int{100, 1000, 10000} {
			rs := classbench.Rules(kind, size, classbench.Seed)
			pr := rules.Flatten(rs, rules.Class{Family: ruleset.IP4})
			start := time.Now()
			im, err := image.Compile(pr, devices, image.Options{Stage: image.Post})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			n := loadNode(t, 1<<25, [stages]image.Shape{image.Post: im.Shape})
			headers := classbench.Headers(rs, 150, classbench.Seed)
			measure := func() (ns []float64) {
				for i := range headers {
					frame := frameOf(&headers[i])
					best := time.Hour
					for range 2 {
						_, d, err := n.coll.Programs["shunt_classify"].Benchmark(frame, 200, nil)
						if err != nil {
							t.Fatal(err)
						}
						best = min(best, d)
					}
					ns = append(ns, float64(best.Nanoseconds()))
				}
				slices.Sort(ns)
				return ns
			}
			n.install(t, [stages]*image.Image{})
			none := measure()
			n.install(t, [stages]*image.Image{image.Post: im})
			with := measure()
			p := func(ns []float64, q float64) float64 { return ns[int(q*float64(len(ns)-1))] - none[len(none)/2] }
			t.Logf("%-9s %8d bytes, made in %7v; ns beyond none (%.0f): p50 %.0f p90 %.0f p99 %.0f", fmt.Sprint(kind, size), len(im.Bytes), took.Round(10*time.Microsecond), none[len(none)/2], p(with, 0.5), p(with, 0.9), p(with, 0.99))
		}
	}
}
