// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"os"
	"strings"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestMalformedSave: an error has the line, the column and the token, and says what would be right.
func TestMalformedSave(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"-A FORWARD -s 10.0.0.300 -j DROP", `rules:2:15: "10.0.0.300": an IPv4 address is expected`},
		{"-A FORWARD -s 10.0.0.0/33 -j DROP", `rules:2:24: "33": a prefix length from 0 to 32 is expected`},
		{"-A FORWARD -s 10.0.0.0/255.0.z -j DROP", `rules:2:24: "255.0.z": a prefix length or a mask is expected`},
		{"-A FORWARD -s www.example.org -j DROP", `rules:2:15: "www.example.org": names are not looked up; write the address`},
		{"-A FORWARD -s ::1 -j DROP", `rules:2:15: "::1": an IPv6 address in a file of iptables; for ip6tables say so with --family ip6`},
		{"-A FORWARD -s 10.0.0.1 -s 10.0.0.2 -j DROP", `rules:2:24: "-s": given twice`},
		{"-A FORWARD -s", `rules:2:14: -s needs an address, with /prefix length or /mask`},
		{"-A FORWARD -p tpc -j DROP", `rules:2:15: "tpc": no protocol is known by this name; write its number, 0 to 255`},
		{"-A FORWARD -p 256 -j DROP", `rules:2:15: "256": no protocol is known by this name; write its number, 0 to 255`},
		{"-A FORWARD -i averyveryverylongname -j DROP", `rules:2:15: "averyveryverylongname": the name of an interface has 1 to 15 characters`},
		{"-A FORWARD -j DROPP", `rules:2:15: "DROPP": neither a chain of table filter nor a target`},
		{"-A FORWARD -j INPUT", `rules:2:15: "INPUT": rules cannot lead to a chain that a hook calls`},
		{"-A FORWARD -j DROP -j ACCEPT", `rules:2:20: "-j": the rule leads somewhere already: DROP`},
		{"-A FROWARD -j DROP", `rules:2:4: "FROWARD": table filter has no such chain; one is declared as :FROWARD - [0:0]`},
		{"-A FORWARD -m tpc -j DROP", `rules:2:15: "tpc": no match of this name is known`},
		{"-A FORWARD -m hl --hl-eq 5 -j DROP", `rules:2:15: "hl": the match is for the other family`},
		{"-A FORWARD -p tcp -m tcp --dports 80 -j DROP", `rules:2:26: "--dports": no such option; there are those of tcp: --destination-port, --dport, --source-port, --sport, --syn, --tcp-flags, --tcp-option`},
		{"-A FORWARD --dport 80 -j DROP", `rules:2:12: "--dport": no such option; those of a match follow -m and its name`},
		{"-A FORWARD -p tcp --dport 80:70 -j DROP", `rules:2:27: "80:70": the range ends before it begins`},
		{"-A FORWARD -p tcp --dport 65536 -j DROP", `rules:2:27: "65536": a number from 0 to 65535 is expected`},
		{"-A FORWARD -p tcp --dport htttp -j DROP", `rules:2:27: "htttp": no port is known by this name; write its number`},
		{"-A FORWARD -p tcp --dport 1 --dport 2 -j DROP", `rules:2:29: "--dport": given twice`},
		{"-A FORWARD -p tcp -m multiport --dports 1,2,x -j DROP", `rules:2:45: "x": `},
		{"-A FORWARD -p tcp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 -j DROP", `"16": 15 ports at most`},
		{"-A FORWARD -m mark -j DROP", `rules:2:15: "mark": needs --mark`},
		{"-A FORWARD -m conntrack --ctstate ESTABLISHD -j DROP", `rules:2:35: "ESTABLISHD": there are INVALID, ESTABLISHED, RELATED, NEW`},
		{"-A FORWARD ! -j DROP", `rules:2:14: "-j": cannot be negated`},
		{"-A FORWARD DROP", `rules:2:12: "DROP": an option is expected`},
		{"-A FORWARD -m comment --comment \"open -j DROP", `rules:2:33: "\"open -j DROP": the quotation has no end`},
		{"-D FORWARD -j DROP", `rules:2:1: "-D": a line is -A CHAIN and a rule`},
		{"[12] -A FORWARD -j DROP", `rules:2:1: "[12]": counters are written [packets:bytes]`},
		{":FORWARD REJECT [0:0]", `rules:2:10: "REJECT": the policy of FORWARD is ACCEPT or DROP`},
		{":USER ACCEPT [0:0]", `rules:2:7: "ACCEPT": only INPUT, FORWARD, OUTPUT have a policy in table filter; for other chains write -`},
		{":DROP - [0:0]", `rules:2:1: ":DROP": that is the name of a target`},
		{"*nat", `rules:2:1: "*nat": table filter (line 1) has no COMMIT`},
		{"-A FORWARD -m iprange --src-range 10.0.0.9-10.0.0.1 -j DROP", `rules:2:35: "10.0.0.9-10.0.0.1": the range ends before it begins`},
		{"-A FORWARD -m mac --mac-source 00:11:22 -j DROP", `rules:2:32: "00:11:22": a MAC address is written`},
		{"-A FORWARD -j DNAT --to-destination 10.0.0.1:", `rules:2:37: "10.0.0.1:": a port follows the colon`},
	} {
		out, _, err := Parse("rules", []byte("*filter\n"+c.line+"\nCOMMIT\n"), false)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != nil {
			t.Errorf("%s\n  got  %v\n  want %s", c.line, err, c.want)
		}
		var where *Error
		if !errors.As(err, &where) || where.Line != 2 {
			t.Errorf("%s: %#v", c.line, err)
		}
	}
	for text, want := range map[string]string{
		"":                                   "rules:1:1: the file is empty",
		"# nothing\n":                        "rules:2:1: there is no table; one begins with * and its name: raw, mangle, nat, filter, security",
		"*filtre\nCOMMIT\n":                  `rules:1:1: "*filtre": no such table; there are raw, mangle, nat, filter, security`,
		"-A FORWARD -j DROP\n":               `rules:1:1: "-A": a table begins with * and its name`,
		"*filter\n":                          "rules:2:1: table filter (line 1) has no COMMIT",
		"*filter\nCOMMIT\n*filter\nCOMMIT\n": `rules:3:1: "*filter": the table is in line 1 already`,
	} {
		if _, _, err := Parse("rules", []byte(text), false); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q\n  got  %v\n  want %s", text, err, want)
		}
	}
}

// TestMalformedJSON: the same for what nft writes.
func TestMalformedJSON(t *testing.T) {
	table := `{"table": {"family": "inet", "name": "f"}}, {"chain": {"family": "inet", "table": "f", "name": "c"}}`
	rule := func(expr string) string {
		return `{"nftables": [` + table + ",\n" + `{"rule": {"family": "inet", "table": "f", "chain": "c", "expr": [` + expr + "]}}]}"
	}
	for _, c := range []struct{ text, want string }{
		{"{", `rules:1:2: the JSON text ends too early`},
		{`{"nftables": [}`, `rules:1:15: "}": `},
		{`{"nftables": 5}`, `rules:1:14: "5": "nftables" is a list`},
		{`{"rules": []}`, `rules:1:1: "{": "nftables" is missing`},
		{`{"nftables": [{"tabel": {}}]}`, `rules:1:15: "tabel": nothing of this name is in a rule set`},
		{`{"nftables": [{"add": {}}]}`, `rules:1:15: "add": commands are not understood`},
		{`{"nftables": [{"metainfo": {"json_schema_version": 2}}]}`, `"2": only version 1 of the schema is known`},
		{`{"nftables": [{"table": {"family": "ipx", "name": "f"}}]}`, `rules:1:36: "ipx": there are inet, ip, ip6, netdev, bridge and arp`},
		{`{"nftables": [{"chain": {"family": "ip", "table": "f", "name": "c"}}]}`, `"f": there is no table ip f in the file`},
		{`{"nftables": [{"table": {"family": "ip", "family": "ip"}}]}`, `rules:1:42: "family": the key is there already`},
		{`{"nftables": []} x`, `"x": nothing may follow the end of the JSON text`},
		{rule(`{"matsch": {}}`), `rules:2:66: "matsch": no statement of this name is known`},
		{rule(`{"match": {"op": "=", "left": 1, "right": 2}}`), `"=": there are ==, !=`},
		{rule(`{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "sadr"}}, "right": "1.2.3.4"}}`), `"sadr": the header ip has no field of this name`},
		{rule(`{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "1.2.3.400"}}`), `"1.2.3.400": an IPv4 address is expected`},
		{rule(`{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 65536}}`), `"65536": a number of 16 bits is expected`},
		{rule(`{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"range": [2, 1]}}}`), `"[": the range ends before it begins`},
		{rule(`{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@s"}}`), `"@s": there is no such set in the table`},
		{rule(`{"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": "establishd"}}`), `"establishd": no value of type ct_state has this name`},
		{rule(`{"jump": {"target": "nowhere"}}`), `"nowhere": the table has no such chain`},
		{rule(`{"counter": "c"}`), `"c": the table has no such counter`},
		{strings.Repeat(`{"a":`, 200), `nested deeper than 100`},
	} {
		out, _, err := Parse("rules", []byte(c.text), false)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != nil {
			t.Errorf("%s\n  got  %v\n  want %s", c.text, err, c.want)
		}
	}
}

// TestNotUnderstoodStays: what is well formed and not understood is in its place.
func TestNotUnderstoodStays(t *testing.T) {
	save := parse(t, "*filter\n-A FORWARD -m u32 --u32 0=0 -p tcp -m set --match-set blocked src -j DROP\n-A FORWARD -m geoip ! --src-cc DE,FR -j TARPIT --tarpit\n-A FORWARD -j QUEUE\nCOMMIT\n")
	chain := save.Table(rs.IP4, "filter").Chain("FORWARD")
	for i, want := range []string{
		"-p tcp -m u32 --u32 0=0 -m set --match-set blocked src -j DROP", "-m geoip ! --src-cc DE,FR -j TARPIT --tarpit", "-j QUEUE"} {
		if got := chain.Rules[i].Text; got != want {
			t.Errorf("rule %d: %s, want %s", i+1, got, want)
		}
		unknown := false
		for _, s := range chain.Rules[i].Steps {
			switch s.(type) {
			case rs.Unknown, rs.Slow:
				unknown = true
			}
		}
		if !unknown {
			t.Errorf("rule %d is taken for understood: %v", i+1, chain.Rules[i].Steps)
		}
	}
}

// FuzzParse: whatever a file holds, there are rules or an error that says where, and no panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte("*filter\n:FORWARD DROP [0:0]\n"+saveOf("FORWARD", rulesBoth+rulesIP4)[len("*filter\n:FORWARD DROP [1:2]\n"):]), false)
	f.Add([]byte(saveOf("FORWARD", rulesBoth+rulesIP6)), true)
	f.Add([]byte(otherTables), false)
	for _, name := range []string{"native.json", "kube-proxy.json"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, six bool) {
		out, _, err := Parse("rules", text, six)
		var where *Error
		switch {
		case err == nil && out == nil, err != nil && out != nil:
			t.Fatalf("rules %v and error %v", out, err)
		case err != nil && (!errors.As(err, &where) || where.Line < 1 || where.Column < 1 || where.Why == "no value"):
			t.Fatalf("an error that does not say where: %v", err)
		}
	})
}
