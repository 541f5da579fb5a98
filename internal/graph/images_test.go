// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// TestTenThousandFit: 10,000 ClassBench-like rules of each kind are not too large for the data path.
func TestTenThousandFit(t *testing.T) {
	devices := []rules.Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Type: 1}}
	for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
		f := compiled(classbench.Rules(kind, 10000, classbench.Seed), filterKey{family: model.IP4}, devices, nil)
		if f.Problem != "" {
			t.Errorf("%s: %s", kind, f.Problem)
		}
	}
}
