// SPDX-License-Identifier: Apache-2.0

package model

import "testing"

// Names can be printed and told apart whatever bytes they consist of, and found by what is printed.
func TestPrintableNames(t *testing.T) {
	var net Network
	seen := map[string]string{}
	for name, want := range map[string]string{
		"eth0": "eth0", "größe": "größe", "t\xff": `t\xff`, "t\xfe": `t\xfe`, `t\xff`: `t\x5cxff`, `a\b`: `a\b`, "\x1b[31m": `\x1b[31m`, "\u009b1m": `\xc2\x9b1m`, "\ufffd": "\ufffd", "a\nb": `a\x0ab`,
	} {
		got := PrintableName(name)
		if got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q are both shown as %s", name, other, got)
		}
		seen[got] = name
		net.Links = append(net.Links, &Link{Index: len(net.Links) + 1, Name: name})
	}
	for shown, name := range seen {
		want := name
		if net.LinkByName(shown) != nil { // a name as it is comes first
			want = shown
		}
		if l := net.LinkCalled(shown); l == nil || l.Name != want {
			t.Errorf("%s finds %v, want %q", shown, l, want)
		}
	}
	if l := net.LinkCalled("eth1"); l != nil {
		t.Errorf("eth1 finds %q", l.Name)
	}
}
