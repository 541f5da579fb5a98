// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// Of a crowd of devices those have programs of their own first that packets come by.
func TestBusiestFirst(t *testing.T) {
	n := lab.BuildT(t, lab.Star(3))
	busy := n.Port(lab.Dut, "p2")
	for range 50 {
		if err := n.Port("wire", "w2").Send(n.Port("wire", "w2").Flow("10.0.2.2", "10.0.0.2").UDP("x")); err != nil {
			t.Fatal(err)
		}
	}
	err := busy.NS.Do(func() error {
		var jobs []*job
		for _, name := range []string{"p0", "p1", "p2"} {
			jobs = append(jobs, &job{key: hookKey{n.Port(lab.Dut, name).Index, graph.TC}})
		}
		busiestFirst(jobs)
		if got := jobs[0].key.index; got != busy.Index {
			t.Errorf("device %d is first, want %d, which packets came by", got, busy.Index)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
