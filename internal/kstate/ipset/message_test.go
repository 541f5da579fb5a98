// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// recorded are the messages of a recorded list.
func recorded(t testing.TB) (out [][]byte) {
	t.Helper()
	f, err := os.Open("../testdata/rules/ipset.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Ask  string
			Msgs []struct{ Data []byte }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Ask, "netlink 12 0x607") { // NETLINK_NETFILTER, NFNL_SUBSYS_IPSET, IPSET_CMD_LIST
			for _, m := range e.Msgs {
				out = append(out, m.Data)
			}
		}
	}
	if len(out) < 8 {
		t.Fatalf("%d recorded messages", len(out))
	}
	return out
}

// TestTruncatedListsAreNamed cuts every message at every byte: what is left must be an error or a set with a problem.
func TestTruncatedListsAreNamed(t *testing.T) {
	for i, whole := range recorded(t) {
		var want Dump
		if err := want.Add(whole); err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			var d Dump
			if d.Add(whole[:n]) != nil || len(d.Sets) == 1 && d.Sets[0].Problem != "" {
				continue
			}
			if !reflect.DeepEqual(d.Sets, want.Sets) {
				t.Fatalf("message %d cut at %d of %d is taken for %+v", i, n, len(whole), d.Sets)
			}
		}
	}
}

// TestTypesAreNotGuessed gives sets of types and members that are not known.
func TestTypesAreNotGuessed(t *testing.T) {
	d := Dump{names: map[string]int{}, Sets: []Set{
		{Name: "a", Type: "tree:ip", Index: 1},
		{Name: "b", Type: "hash:ip,mood", Index: 2},
		{Name: "c", Type: "list:set", Index: 3, Elements: []Element{{Member: "nobody"}}},
		{Name: "d", Type: "hash:ip", Family: 2, Index: 4, Elements: []Element{{}}},
		{Name: "e", Type: "hash:net", Family: 2, Index: 5, Elements: []Element{{CIDR: 99}}},
	}}
	var out rs.Ruleset
	ids := Translate(&d, &out)
	for i, s := range out.Sets {
		if s.Unknown == "" || ids[uint16(i+1)] != rs.SetID(i) {
			t.Errorf("set %s of type %s is understood: %+v", s.Name, s.Type, s)
		}
	}
	var short Dump
	if short.Add(nil) == nil || short.Add([]byte{2, 0, 0, 0}) == nil {
		t.Error("a message without a name is not reported")
	}
	if _, err := DecodeIndex([]byte{2, 0, 0, 0}); err == nil {
		t.Error("an answer without index is not reported")
	}
}

// FuzzDump: no message, however broken, may make anything panic.
func FuzzDump(f *testing.F) {
	for _, b := range recorded(f) {
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var d Dump
		d.Add(a)
		d.Add(b)
		DecodeIndex(a)
		Translate(&d, &rs.Ruleset{})
	})
}

// TestHeadsAreAskedLive gives sets of which only the head was read: their elements are the kernel's to know, and what cannot be asked of it has a name.
func TestHeadsAreAskedLive(t *testing.T) {
	d := Dump{names: map[string]int{}, Sets: []Set{
		{Name: "a", Type: "hash:ip", Family: 2, Index: 1, Head: true},
		{Name: "l", Type: "list:set", Index: 2, Head: true},
		{Name: "c", Type: "hash:ip", Family: 2, Index: 3, Head: true, Counters: true},
		{Name: "m", Type: "bitmap:mark", Family: 2, Index: 4, Head: true},
		{Name: "n", Type: "hash:ip", Family: 2, Index: -1, Head: true},
		{Name: "i", Type: "hash:net,iface", Family: 2, Index: 5, Head: true},
		{Name: "k", Type: "hash:ip,mark", Family: 10, Index: 6, Head: true},
		{Name: "e", Type: "hash:mac", Index: 7, Head: true},
		{Name: "f", Type: "hash:ip,mac", Family: 10, Index: 8, Head: true},
		{Name: "b", Type: "bitmap:ip,mac", Family: 2, Index: 9, Head: true},
		{Name: "p", Type: "hash:net,net", Family: 2, Index: 10, Head: true},
		{Name: "q", Type: "hash:net,port,net", Family: 10, Index: 11, Head: true},
	}}
	var out rs.Ruleset
	Translate(&d, &out)
	for i, want := range []string{"", "", "ipset with counters", "bitmap:mark changes without notice", "the kernel does not say where its ipsets are", "", "", "", "", "", "", ""} {
		if s := out.Sets[i]; !s.Live || s.Unknown != want || want == "" && int(s.Index) != d.Sets[i].Index {
			t.Errorf("set %s: %+v, want %q", s.Name, s, want)
		}
	}
}

// TestHeadsHaveNoElements reads messages without elements, as the kernel sends them when only heads are asked for.
func TestHeadsHaveNoElements(t *testing.T) {
	nested := func(kind uint16, b []byte) []byte {
		out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(b)))
		out = binary.NativeEndian.AppendUint16(out, kind)
		return append(append(out, b...), make([]byte, -len(b)&3)...)
	}
	m := slices.Concat([]byte{2, 0, 0, 0}, nested(attrName, []byte("a\x00")), nested(attrType, []byte("hash:ip\x00")), nested(attrFamily, []byte{2}), nested(attrRevision, []byte{6}), nested(attrIndex, []byte{0, 3}), nested(attrData|1<<15, nil))
	masked := slices.Concat(m[:len(m)-4], nested(attrData|1<<15, nested(dataMask, []byte{0xf0, 0, 0, 0})))
	for _, heads := range []bool{true, false} {
		d := Dump{Heads: heads}
		if err := d.Add(m); err != nil || len(d.Sets) != 1 || d.Sets[0].Head != heads || (d.Sets[0].Problem == "") != heads {
			t.Errorf("heads %v: %+v, %v", heads, d.Sets, err)
		}
		d = Dump{Heads: heads} // programs read a mask of marks where it is
		if err := d.Add(masked); err != nil || len(d.Sets) != 1 || (d.Sets[0].Problem == "") != heads {
			t.Errorf("a mask of marks, heads %v: %+v, %v", heads, d.Sets, err)
		}
	}
}
