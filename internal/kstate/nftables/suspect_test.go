// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
)

// TestSuspect: a set that rules may change, whether its flags say so or not, is taken for changed if a rule of its table is not understood, and such a rule is no change that can be followed.
func TestSuspect(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want bool // of the set that says so
		any  bool // of the one that does not
	}{
		{Rule{}, false, false},
		{Rule{Exprs: []Expr{&Opaque{"telepathy", "not known"}}}, true, false},
		{Rule{Exprs: []Expr{&Opaque{"dynset", "too long"}}}, true, true},
		{Rule{Exprs: []Expr{&Opaque{"malformed", "cut off"}}}, true, true},
		{Rule{Problem: "cut off"}, true, true},
	} {
		r := c.rule
		r.Family, r.Table, r.Chain, r.Handle = familyIP4, "t", "c", 2
		d := &Dump{Tables: []Table{{Family: familyIP4, Name: "t"}, {Family: familyIP4, Name: "u"}}, Chains: []Chain{{Family: familyIP4, Table: "t", Name: "c"}},
			Sets: []Set{{Family: familyIP4, Table: "t", Name: "s", Flags: SetEval, KeyType: 7, KeyLen: 4}, {Family: familyIP4, Table: "t", Name: "p", Flags: SetConstant, KeyType: 7, KeyLen: 4},
				{Family: familyIP4, Table: "u", Name: "s", Flags: SetEval, KeyType: 7, KeyLen: 4},
				{Family: familyIP4, Table: "t", Name: "ends", Flags: SetTimeout, KeyType: 7, KeyLen: 4}}}
		if _, ok := d.Apply([]Change{{Rule: &r}}); ok == c.want {
			t.Errorf("%+v: the change can be followed: %t", c.rule, ok)
		}
		d.Chains[0].Rules = []*Rule{&r}
		out := &rs.Ruleset{}
		Translate(d, out, xtables.Context{})
		if out.Sets[0].Dynamic != c.want || out.Sets[3].Dynamic != c.any || out.Sets[1].Dynamic || out.Sets[2].Dynamic {
			t.Errorf("%+v: sets %+v", c.rule, out.Sets)
		}
	}
}
