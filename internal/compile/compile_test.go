// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/compile"
	"github.com/shuntnet/shunt/internal/rulefile"
)

func compiled(t *testing.T, text string, o compile.Options) (*compile.Result, error) {
	t.Helper()
	rs, _, err := rulefile.Parse("rules", []byte(text), false)
	if err != nil {
		t.Fatal(err)
	}
	return compile.Compile(rs, o)
}

// TestNATThatNeedsConnections: what is no static mapping is an error with the rule, and never left out.
func TestNATThatNeedsConnections(t *testing.T) {
	const d = "-d 192.0.2.1/32 "
	for _, c := range []struct{ chain, rule, why string }{
		{"POSTROUTING", "-o eth0 -j MASQUERADE", "oifname"},
		{"POSTROUTING", "-s 10.0.0.0/8 -j SNAT --to-source 192.0.2.1", "ip saddr is not one value"},
		{"POSTROUTING", "-s 10.0.0.1/32 -j SNAT --to-source 192.0.2.1-192.0.2.5", "one IPv4 address and port"},
		{"POSTROUTING", "-s 10.0.0.1/32 -j ACCEPT", "something else"},
		{"PREROUTING", d + "-p tcp -m tcp --dport 80 -j REDIRECT --to-ports 81", "REDIRECT"},
		{"PREROUTING", d + "-p tcp -m tcp --dport 80:90 -j DNAT --to-destination 10.0.0.1", "dport is not one value"},
		{"PREROUTING", d + "-p tcp -j DNAT --to-destination 10.0.0.1", "without its port"},
		{"PREROUTING", d + "-j DNAT --to-destination 10.0.0.1:80", "many ports become one"},
		{"PREROUTING", d + "-p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80-90", "one IPv4 address and port"},
		{"PREROUTING", d + "-j DNAT --to-destination 10.0.0.1 --random", "one IPv4 address and port"},
		{"PREROUTING", d + "-m limit --limit 5/sec -j DNAT --to-destination 10.0.0.1", "limit"},
		{"PREROUTING", "-p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1", "not for one address"},
		{"PREROUTING", "-i eth0 " + d + "-j DNAT --to-destination 10.0.0.1", "--interface"},
		{"PREROUTING", "-s 10.0.0.1/32 " + d + "-j DNAT --to-destination 10.0.0.1", "ip saddr"},
		{"PREROUTING", "-j U", "something else"},
		{"PREROUTING", "-d 192.0.2.9/32 -j DNAT --to-destination 10.0.0.1\n-A PREROUTING " + d + "-j DNAT --to-destination 10.0.0.1", "another rule maps to the same"},
	} {
		_, err := compiled(t, "*nat\n:U - [0:0]\n-A "+c.chain+" "+c.rule+"\nCOMMIT\n", compile.Options{Hook: compile.XDP})
		if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "only Linux's connection tracking can do this") {
			t.Errorf("%s\n  got  %v\n  want %s", c.rule, err, c.why)
		}
	}
	nft := `{"nftables": [{"table": {"family": "ip", "name": "f"}}, {"chain": {"family": "ip", "table": "f", "name": "p", "type": "filter", "hook": "prerouting", "prio": 0}},
		{"chain": {"family": "ip", "table": "f", "name": "n", "type": "nat", "hook": "prerouting", "prio": -100}},
		{"rule": {"family": "ip", "table": "f", "chain": "p", "expr": [{"drop": null}]}},
		{"rule": {"family": "ip", "table": "f", "chain": "n", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "192.0.2.1"}}, {"dnat": {"addr": "10.0.0.1"}}]}}]}`
	if _, err := compiled(t, nft, compile.Options{Hook: compile.XDP}); err == nil || !strings.Contains(err.Error(), "cannot be compiled together") {
		t.Errorf("a chain behind the mapping: %v", err)
	}
}

// TestFates: every rule is in the explanation, with what became of it.
func TestFates(t *testing.T) {
	text := `*filter
:FORWARD ACCEPT [0:0]
:U - [0:0]
-A INPUT -j DROP
-A FORWARD -m conntrack --ctstate INVALID -s 10.9.0.0/16 -j DROP
-A FORWARD -s 10.0.0.1/32 -j U
-A FORWARD -o eth1 -s 10.8.0.0/16 -j DROP
-A FORWARD -i eth0 -s 10.7.0.0/16 -j DROP
-A FORWARD -s 10.6.0.0/16 -m string --algo bm --string x -j DROP
-A FORWARD -s 10.5.0.0/16 -m addrtype --dst-type LOCAL -j DROP
-A FORWARD -s 10.4.0.0/16 -j REJECT
-A FORWARD -d 10.0.0.9/32 -j DROP
-A FORWARD -s 10.3.0.0/16 -j MARK --set-xmark 0x1/0xffffffff
-A FORWARD -m mark --mark 0x1 -j DROP
-A FORWARD -j ACCEPT
-A FORWARD -p udp -j DROP
-A U -p tcp -j DROP
COMMIT
`
	want := map[string][]string{
		"": {"unmet", "linux only Linux knows connections", "compiled", "linux which interfaces", "linux --interface", "linux string", "linux which addresses", "linux reject",
			"compiled", "linux only Linux writes it", "compiled", "passes Linux needs it", "unmet", "compiled"},
		"eth0": {"unmet", "linux only Linux knows connections", "compiled", "linux which interfaces", "compiled", "linux string", "linux which addresses", "linux reject",
			"compiled", "linux only Linux writes it", "compiled", "passes Linux needs it", "unmet", "compiled"},
	}
	for iface, want := range want {
		r, err := compiled(t, text, compile.Options{Hook: compile.TC, Interface: iface})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Fates) != len(want) {
			t.Fatalf("%d fates, want %d: %+v", len(r.Fates), len(want), r.Fates)
		}
		for i, f := range r.Fates {
			outcome, why, _ := strings.Cut(want[i], " ")
			if f.Outcome != outcome || !strings.Contains(f.Why, why) {
				t.Errorf("for %q rule %s %d %s: %s (%s), want %s", iface, f.Chain, f.Number, f.Text, f.Outcome, f.Why, want[i])
			}
		}
	}
}

// TestSameBytes: one rule set gives one object.
func TestSameBytes(t *testing.T) {
	text := "*nat\n"
	for i := range 300 {
		text += fmt.Sprintf("-A PREROUTING -d 192.0.%d.%d/32 -p tcp -m tcp --dport %d -j DNAT --to-destination 10.0.%d.%d:80\n", i/200, i%200+1, 80+i%3, i/200, i%200+1)
	}
	text += "COMMIT\n*filter\n-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n"
	var first []byte
	for range 5 {
		r, err := compiled(t, text, compile.Options{Hook: compile.XDP})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r.Object
		}
		if !bytes.Equal(first, r.Object) {
			t.Fatal("two objects of the same rules differ")
		}
	}
}
