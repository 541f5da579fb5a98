// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// TestClassifierCostCountsForwardedHeaders: where the two routers do not differ at all, every header counts as fast and has a cost; where the
// second one does not forward, none.
func TestClassifierCostCountsForwardedHeaders(t *testing.T) {
	lab.RequireRoot(t)
	var frames []frameMaker
	for _, h := range classbench.Headers(classbench.Rules(classbench.FW, 50, classbench.Seed), 300, classbench.Seed) {
		frames = append(frames, func(p *lab.Port) []byte { return frameOf(p, h) })
	}
	section := suite.Section{Name: "equal", Run: func(b *suite.Bench) error {
		if err := compareClassifiers(b, "same", frames, func(*lab.NS) error { return nil }); err != nil {
			return err
		}
		return compareClassifiers(b, "off", frames, func(ns *lab.NS) error { return ns.Sysctl("net.ipv4.ip_forward=0") })
	}}
	path := filepath.Join(t.TempDir(), "results.json")
	u := suite.Suite{Name: "test", Sections: []suite.Section{section}}
	if err := u.MeasureAll(suite.Options{Size: suite.Sizes["smoke"], DutCPU: 1}, path, "", false); err != nil {
		t.Fatal(err)
	}
	r, err := report.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Section("equal")
	for _, variant := range []string{suite.ShuntXDP, suite.ShuntTC} {
		if share := s.Row("same", variant, suite.FastShare); share == nil || share.Rounds[0] != 1 || s.Row("same", variant, "p50") == nil {
			t.Errorf("%s: equal routers: %+v", variant, share)
		}
		if share := s.Row("off", variant, suite.FastShare); share == nil || share.Rounds[0] != 0 || s.Row("off", variant, "p50") != nil {
			t.Errorf("%s: a router that does not forward: %+v", variant, share)
		}
	}
}
