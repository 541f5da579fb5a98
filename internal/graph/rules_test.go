// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// A receiver's type is known behind the route only where routing asks for the router's own addresses first.
func TestLocalAddressesFirst(t *testing.T) {
	local := model.Rule{Family: model.IP4, Action: 1, Table: localTable, Default: true}
	local6, late := local, local
	local6.Family, late.Priority, late.Default = model.IP6, 100, false
	other := model.Rule{Family: model.IP4, Action: 1, Priority: 50, Table: 100}
	early := other
	early.Priority, early.Mark = 0, true
	for _, c := range []struct {
		what   string
		rules  []model.Rule
		family model.Family
		want   bool
	}{
		{"the kernel's own", []model.Rule{local}, model.IP4, true},
		{"another behind", []model.Rule{local, other}, model.IP4, true},
		{"another of the same priority, made later", []model.Rule{local, early}, model.IP4, true},
		{"another before", []model.Rule{other, late}, model.IP4, false},
		{"of the same priority, made earlier", []model.Rule{early, local}, model.IP4, false},
		{"none", nil, model.IP4, false},
		{"IPv6", []model.Rule{local, local6}, model.IP6, false},
		{"IPv6 alone", []model.Rule{local6}, model.IP4, false},
	} {
		if got := readRules(c.rules, c.family).localFirst; got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
