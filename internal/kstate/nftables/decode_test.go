// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// recorded are the messages of a recorded dump by the low byte of their type (NFT_MSG_*).
func recorded(t testing.TB) map[uint16][][]byte {
	t.Helper()
	f, err := os.Open("../testdata/rules/native.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[uint16][][]byte{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Ask  string
			Msgs []struct {
				Type uint16
				Data []byte
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		for _, m := range e.Msgs {
			if strings.HasPrefix(e.Ask, "netlink 12 0xa") { // NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES
				out[m.Type&0xff] = append(out[m.Type&0xff], m.Data)
			}
		}
	}
	return out
}

const msgNewTable, msgNewChain, msgNewRule, msgNewSet, msgNewElem, msgNewObj = 0, 3, 6, 9, 12, 18

// TestTruncatedRulesAreNamed cuts every recorded rule at every byte: what is left must be an error, have an expression that is
// named as malformed, or lack no more than the comment.
func TestTruncatedRulesAreNamed(t *testing.T) {
	msgs := recorded(t)[msgNewRule]
	if len(msgs) < 60 {
		t.Fatalf("%d recorded rules", len(msgs))
	}
	for i, whole := range msgs {
		want, err := decodeRule(whole)
		if err != nil {
			t.Fatal(err)
		}
		want.Comment = ""
		for n := range whole {
			got, err := decodeRule(whole[:n])
			if err != nil {
				continue
			}
			got.Comment = ""
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("rule %d cut at %d of %d is taken for %+v", i, n, len(whole), got)
			}
		}
	}
}

// TestTruncatedSetsAreNamed does the same with sets and their elements.
func TestTruncatedSetsAreNamed(t *testing.T) {
	msgs := recorded(t)
	for i, whole := range msgs[msgNewElem] {
		want, err := decodeElements(whole)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if got, err := decodeElements(whole[:n]); err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("elements %d cut at %d of %d are taken for %+v", i, n, len(whole), got)
			}
		}
	}
	for _, typ := range []uint16{msgNewTable, msgNewChain, msgNewSet, msgNewObj} {
		if len(msgs[typ]) == 0 {
			t.Errorf("no message %d was recorded", typ)
		}
		for _, whole := range msgs[typ] {
			d := Dump{Tables: []Table{{Family: whole[0], Name: "f"}}}
			for n := range whole {
				d.add(typ, whole[:n])
			}
			Translate(&d, &rs.Ruleset{}, xtables.Context{})
		}
	}
}

func (d *Dump) add(typ uint16, b []byte) error {
	switch typ {
	case msgNewTable:
		return d.AddTable(b)
	case msgNewChain:
		return d.AddChain(b)
	case msgNewRule:
		return d.AddRule(b)
	case msgNewSet:
		return d.AddSet(b)
	case msgNewObj:
		return d.AddObject(b)
	}
	return d.AddFlowtable(b)
}

// TestWhatIsNewIsUnknown gives decoders attributes and expressions that they cannot know.
func TestWhatIsNewIsUnknown(t *testing.T) {
	attr := func(typ uint16, b []byte) []byte {
		n := 4 + len(b)
		return append(append([]byte{byte(n), byte(n >> 8), byte(typ), byte(typ >> 8)}, b...), make([]byte, (4-n%4)%4)...)
	}
	expr := func(name string, data []byte) []byte {
		return attr(1, append(attr(1, append([]byte(name), 0)), attr(2, data)...))
	}
	rule := func(exprs []byte, more ...byte) []byte {
		b := append([]byte{1, 0, 0, 0}, attr(1, []byte("f\x00"))...)
		b = append(append(b, attr(2, []byte("c\x00"))...), attr(4, exprs)...)
		return append(b, more...)
	}
	chainMessage := append(append([]byte{1, 0, 0, 0}, attr(1, []byte("f\x00"))...), attr(3, []byte("c\x00"))...)
	for _, c := range []struct {
		what string
		b    []byte
		want string
	}{
		{"an expression that is not known", rule(expr("telepathy", nil)), "telepathy"},
		{"a known one with a new attribute", rule(expr("counter", attr(9, []byte{1}))), "counter"},
		{"a number of a wrong size", rule(expr("reject", attr(1, []byte{1}))), "reject"},
		{"a register that does not exist", rule(expr("rt", append(attr(1, []byte{0, 0, 0, 99}), attr(2, []byte{0, 0, 0, 0})...))), "rt"},
		{"a new flag of a lookup", rule(expr("lookup", slices.Concat(attr(1, []byte("s\x00")), attr(2, []byte{0, 0, 0, 1}), attr(5, []byte{0, 0, 0, 3})))), "lookup"},
		{"of what fills a set", rule(expr("dynset", slices.Concat(attr(1, []byte("s\x00")), attr(3, []byte{0, 0, 0, 0}), attr(4, []byte{0, 0, 0, 1}), attr(9, []byte{0, 0, 0, 4})))), "dynset"},
		{"of an extension header", rule(expr("exthdr", slices.Concat(attr(1, []byte{0, 0, 0, 1}), attr(2, []byte{43}), attr(3, []byte{0, 0, 0, 0}), attr(4, []byte{0, 0, 0, 1}), attr(5, []byte{0, 0, 0, 2})))), "exthdr"},
		{"broken attributes", rule([]byte{9, 0, 1, 0, 1}), "malformed"},
		{"a new attribute of the rule", rule(nil, attr(19, []byte{1})...), "malformed"},
	} {
		d := Dump{Tables: []Table{{Family: 1, Name: "f"}}}
		var out rs.Ruleset
		if err := d.AddChain(chainMessage); err != nil {
			t.Fatal(err)
		}
		if err := d.AddRule(c.b); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		Translate(&d, &out, xtables.Context{})
		steps := out.Tables[0].Chains[0].Rules[0].Steps
		if u, ok := steps[0].(rs.Unknown); !ok || u.Name != c.want || u.Text == "" {
			t.Errorf("%s: %+v", c.what, steps)
		}
	}
	strange := Dump{Tables: []Table{{Family: 1, Name: "f", Flags: 0x80}}, Sets: []Set{{Family: 1, Table: "f", Name: "s", KeyType: 7, KeyLen: 1 << 31}},
		Chains: []Chain{{Family: 1, Table: "f", Name: "c", Base: true,
			Rules: []*Rule{{Family: 1, Table: "f", Chain: "c", Exprs: []Expr{&Lookup{Set: "s", Dst: NoReg}}}, {Family: 1, Table: "f", Chain: "c", Exprs: []Expr{&Bitwise{Src2: NoReg}, &Cmp{Data: []byte{1}}}}}}}}
	var out rs.Ruleset
	Translate(&strange, &out, xtables.Context{})
	chain := out.Tables[0].Chains[0]
	if len(chain.Base.Unknown) != 1 || out.Sets[0].Unknown == "" {
		t.Errorf("flags of the table: %v; key of the set: %q", chain.Base.Unknown, out.Sets[0].Unknown)
	}
	for i, what := range []string{"a lookup of a key that cannot be", "no byte of what is in no register"} {
		if _, ok := chain.Rules[i].Steps[0].(rs.Unknown); !ok {
			t.Errorf("%s: %v", what, chain.Rules[i].Steps)
		}
	}
	var d Dump
	if d.AddRule([]byte{1, 0, 0, 0}) == nil || d.AddChain(nil) == nil || d.AddSet([]byte{1}) == nil {
		t.Error("a message without a name is not reported")
	}
}

// FuzzDump: no message, however broken, may crash the decoders or the translation of what they give.
func FuzzDump(f *testing.F) {
	for typ, msgs := range recorded(f) {
		for _, b := range msgs {
			f.Add(uint8(typ), b)
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, b []byte) {
		d := Dump{Tables: []Table{{Family: familyInet, Name: "f"}, {Family: familyIP4, Name: "f"}}}
		d.Sets = []Set{{Family: familyInet, Table: "f", Name: "s", KeyType: 7, KeyLen: 4}}
		d.Chains = []Chain{{Family: familyInet, Table: "f", Name: "forward"}}
		d.AddElements(0, b)
		d.add(uint16(typ), b)
		d.AddRule(b)
		var out rs.Ruleset
		Translate(&d, &out, xtables.Context{})
		for i, c := range out.Tables[0].Chains {
			for j, rule := range c.Rules {
				if len(rule.Steps) == 0 && len(d.Chains[i].Rules[j].Exprs) > 0 && rule.Text != "" {
					t.Errorf("%q has no step", rule.Text)
				}
			}
		}
	})
}
