// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/lab"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// namespace is a network namespace for the length of a test.
func namespace(t *testing.T) *lab.NS {
	t.Helper()
	lab.RequireRoot(t)
	ns, err := lab.NewNS(lab.UniquePrefix(t.Name()) + "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// in runs shell lines in the namespace and gives what they print.
func in(t *testing.T, ns *lab.NS, lines, stdin string) string {
	t.Helper()
	c := exec.Command("nsenter", "--net="+ns.Path(), "bash", "-euc", lines)
	c.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, stderr.String())
	}
	return string(out)
}

// kernel reads the namespace's rules.
func kernel(t *testing.T, ns *lab.NS) *rs.Ruleset {
	t.Helper()
	var out *kstate.RuleReading
	if err := ns.Do(func() error { out = kstate.ReadRules(nil); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Faults {
		t.Fatalf("not read: %s: %s", f.Part, f.Err)
	}
	return &out.Ruleset
}

// plain is a rule set without what a file cannot say the same way: handles, numbers of counters, orders of registration.
func plain(in *rs.Ruleset) *rs.Ruleset {
	for i := range in.Counters {
		in.Counters[i] = rs.Counter{}
	}
	for i := range in.Sets {
		s := &in.Sets[i]
		s.Handle = 0
		for j := range s.Elements {
			s.Elements[j].Counter = min(s.Elements[j].Counter, 0)
			s.Elements[j].Expires = 0
		}
	}
	for i := range in.Tables {
		for j := range in.Tables[i].Chains {
			c := &in.Tables[i].Chains[j]
			c.Handle = 0
			if c.Base != nil {
				c.Base.Order = 0
				c.Base.Counter = min(c.Base.Counter, 0)
			}
			for k := range c.Rules {
				r := &c.Rules[k]
				r.Handle = 0
				for n, s := range r.Steps {
					if _, ok := s.(rs.Count); ok {
						r.Steps[n] = rs.Count{}
					}
				}
			}
		}
	}
	return in
}

// lines writes the rules of a rule set, sets by their content, one line each.
func lines(t *testing.T, in *rs.Ruleset, texts bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	plain(in)
	set := func(id rs.SetID) string {
		s := in.Sets[id]
		if strings.HasPrefix(s.Name, "__") {
			s.Name = "" // numbered as they come
		}
		keys := map[string]int{}
		for _, e := range s.Elements {
			verdict := ""
			if e.Verdict != nil {
				verdict = fmt.Sprint(*e.Verdict)
			}
			e.Verdict = nil
			keys[fmt.Sprintf("%+v %s", e, verdict)]++
		}
		s.Elements = nil
		return fmt.Sprintf("%+v %v", s, keys)
	}
	for _, s := range in.Sets {
		if !strings.HasPrefix(s.Name, "__") {
			id := rs.SetID(0)
			for i := range in.Sets {
				if reflect.DeepEqual(in.Sets[i], s) {
					id = rs.SetID(i)
				}
			}
			out[fmt.Sprintf("set %s %s %s", s.Family, s.Table, s.Name)] = set(id)
		}
	}
	for _, table := range in.Tables {
		name := table.Family.String() + " " + table.Name
		out[name] = fmt.Sprintf("%d %v", table.Dialect, table.Dormant)
		for _, c := range table.Chains {
			at := name + " " + c.Name
			out[at] = "user"
			if c.Base != nil {
				out[at] = fmt.Sprintf("%+v", *c.Base)
			}
			for _, r := range c.Rules {
				var steps []string
				for _, s := range r.Steps {
					switch s := s.(type) {
					case rs.Lookup:
						steps = append(steps, fmt.Sprintf("lookup %v %v in %s", s.Key, s.Not, set(s.Set)))
					case rs.VerdictMap:
						steps = append(steps, fmt.Sprintf("vmap %v in %s", s.Key, set(s.Set)))
					case rs.Unknown:
						steps = append(steps, "unknown "+s.Name)
					case rs.Slow:
						s.Text = ""
						steps = append(steps, fmt.Sprintf("slow %+v", s))
					default:
						steps = append(steps, fmt.Sprintf("%T%+v", s, s))
					}
				}
				out[fmt.Sprintf("%s %3d", at, r.Number)] = strings.Join(steps, "; ")
				if texts {
					out[fmt.Sprintf("%s %3d text", at, r.Number)] = r.Text
				}
			}
		}
	}
	return out
}

// same compares what a file says with what the kernel holds.
func same(t *testing.T, file, kernel map[string]string) {
	t.Helper()
	for k, want := range kernel {
		if got, ok := file[k]; !ok {
			t.Errorf("%s is not in the file; the kernel has\n  %s", k, want)
		} else if got != want {
			t.Errorf("%s\n  file   %s\n  kernel %s", k, got, want)
		}
	}
	for k, got := range file {
		if _, ok := kernel[k]; !ok {
			t.Errorf("%s is not in the kernel: %s", k, got)
		}
	}
}

func parse(t *testing.T, text string) *rs.Ruleset {
	t.Helper()
	out, _, err := Parse("rules", []byte(text), false)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestSavedRulesMeanWhatTheKernelReads restores rules, saves them, and compares the parsed file with what is read back.
func TestSavedRulesMeanWhatTheKernelReads(t *testing.T) {
	for _, c := range []struct{ name, command, input string }{
		{"ip", "iptables", saveOf("FORWARD", rulesBoth+rulesIP4) + otherTables},
		{"ip6", "ip6tables", saveOf("FORWARD", rulesBoth+rulesIP6)},
		{"docker", "iptables", fixture(t, "docker-28.5")},
		{"docker-old", "iptables", fixture(t, "docker-20.10")},
		{"kube-proxy", "iptables", fixture(t, "kube-proxy-1.36")},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := namespace(t)
			in(t, ns, c.command+"-legacy-restore", c.input)
			saved := in(t, ns, c.command+"-legacy-save -c", "")
			want := lines(t, kernel(t, ns), true)
			file := lines(t, parse(t, saved), true)
			maps.DeleteFunc(file, func(k, text string) bool { // what the readers do not look at, they do not print
				unread := strings.HasSuffix(k, "text") && strings.Contains(text, "--ctexpire")
				if unread {
					delete(want, k)
				}
				return unread
			})
			same(t, file, want)

			// What was restored says the same before iptables has put it into its own words.
			got, _, err := Parse("rules", []byte(c.input), c.command == "ip6tables")
			if err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(want, func(k, _ string) bool { return strings.HasSuffix(k, "text") })
			same(t, lines(t, got, false), want)

			// And iptables-nft writes the same language.
			other := namespace(t)
			in(t, other, c.command+"-nft-restore", saved)
			same(t, lines(t, parse(t, in(t, other, c.command+"-nft-save", "")), false), want)
		})
	}
}

func saveOf(chain, rules string) string {
	out := "*filter\n:FORWARD DROP [1:2]\n:USER - [0:0]\n"
	for _, r := range strings.Split(strings.TrimSpace(rules), "\n") {
		out += "-A " + chain + " " + r + "\n"
	}
	return out + "-A USER -j RETURN\nCOMMIT\n"
}

// fixture is a rule set of a real program, without the accounting objects that need a tool which is rarely there.
func fixture(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../kstate/testdata/rules/" + name + ".iptables")
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, line := range strings.SplitAfter(string(b), "\n") {
		if i := strings.Index(line, "-m nfacct --nfacct-name "); i >= 0 {
			rest := strings.SplitN(strings.TrimLeft(line[i+len("-m nfacct --nfacct-name "):], " "), " ", 2)
			line = line[:i] + rest[1]
		}
		out += line
	}
	return out
}

const rulesBoth = `
-i eth0 -o eth1 -p tcp -m tcp --sport 1024:65535 --dport 80 -j ACCEPT
! -i eth+ ! -p udp -j DROP
-i eth+ -j RETURN
-i averylongname15 -j DROP
-p tcp -m tcp --tcp-flags SYN,RST,ACK SYN -j DROP
-p tcp -m tcp ! --dport 22 ! --tcp-flags FIN,SYN FIN -j DROP
-p tcp --syn --dport ssh -j DROP
-p tcp -m tcp --tcp-flags ALL NONE -j DROP
-p tcp -m tcp --tcp-option 5 -j DROP
-p tcp -m tcp -j ACCEPT
-p udp -m udp --dport 53 -j ACCEPT
-p udp --dport 1000: -j ACCEPT
-p 47 -j ACCEPT
-p sctp -j ACCEPT
-p tcp -m multiport --dports 80,443,1000:2000 -j ACCEPT
-p udp -m multiport ! --sports 1,2 -j ACCEPT
-p udp -m multiport --ports 53 -j ACCEPT
-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-m conntrack ! --ctstate INVALID,NEW,UNTRACKED -j ACCEPT
-m conntrack --ctstate NEW,DNAT -j ACCEPT
-m conntrack --ctdir REPLY -j ACCEPT
-m conntrack --ctstatus ASSURED,CONFIRMED -j ACCEPT
-m conntrack ! --ctstatus EXPECTED -j ACCEPT
-m conntrack --ctproto 6 --ctstate NEW -j ACCEPT
-m conntrack ! --ctproto udp ! --ctorigsrcport 53 --ctorigdstport 80:90 -j ACCEPT
-m conntrack --ctexpire 5 --ctstate NEW -j ACCEPT
-m state --state RELATED,ESTABLISHED -j ACCEPT
-m mark --mark 0x10 -j ACCEPT
-m mark ! --mark 0x10/0xf0 -j ACCEPT
-m connmark --mark 0x1 -j ACCEPT
-m comment --comment word -j ACCEPT
-m comment --comment "two \"words\"" -j ACCEPT
-m addrtype --dst-type LOCAL -j ACCEPT
-m addrtype ! --src-type LOCAL --limit-iface-in -j ACCEPT
-m mac --mac-source 00:11:22:33:44:55 -j ACCEPT
-m mac ! --mac-source 00:11:22:33:44:55 -j ACCEPT
-m length --length 100:200 -j ACCEPT
-m length ! --length 100 -j ACCEPT
-m pkttype --pkt-type broadcast -j ACCEPT
-m pkttype ! --pkt-type multicast -j ACCEPT
-m dscp --dscp 0x2e -j ACCEPT
-m dscp --dscp-class AF21 -j ACCEPT
-m tos --tos 0x10/0x3f -j ACCEPT
-m tos ! --tos 0x10 -j ACCEPT
-m devgroup --src-group 0x5 -j ACCEPT
-m devgroup ! --src-group 0x5/0xf --dst-group 1 -j ACCEPT
-m limit --limit 5/sec -j ACCEPT
-m limit --limit 10/min --limit-burst 3 -j ACCEPT
-m statistic --mode random --probability 0.50000000000 -j ACCEPT
-j USER
-g USER
-j LOG --log-prefix "gone: "
-j LOG
-p tcp -j REJECT --reject-with tcp-reset
-p tcp -m tcp --dport 1 -m mark --mark 1 -m comment --comment c -j DROP
-p tcp -m comment --comment c
-j MARK --set-xmark 0x1/0xff
-j NFQUEUE --queue-num 3
`

const rulesIP4 = `
-s 10.0.0.0/8 -d 192.0.2.1/32 -j DROP
! -s 10.1.2.3/8 ! -d 192.0.2.1 -j DROP
-s 10.0.0.0/255.0.255.0 -j DROP
-s 0.0.0.0/0 -j DROP
-p icmp -m icmp --icmp-type 8 -j ACCEPT
-p icmp -m icmp --icmp-type 3/4 -j ACCEPT
-p icmp -m icmp ! --icmp-type 0 -j ACCEPT
-p icmp --icmp-type any -j ACCEPT
-p icmp --icmp-type echo-request -j ACCEPT
-f -j DROP
! -f -j DROP
-m iprange --src-range 192.0.2.1-192.0.2.9 -j ACCEPT
-m conntrack --ctorigsrc 192.0.2.0/24 ! --ctorigdst 192.0.2.1 -j ACCEPT
-m iprange ! --dst-range 192.0.2.1-192.0.2.9 -j ACCEPT
-m ttl --ttl-eq 5 -j ACCEPT
-m ttl ! --ttl-eq 5 -j ACCEPT
-m ttl --ttl-lt 5 -j ACCEPT
-m ttl --ttl-gt 5 -j ACCEPT
-j REJECT --reject-with icmp-port-unreachable
`

const rulesIP6 = `
-s 2001:db8::/32 -d 2001:db8::1/128 -j DROP
! -s fe80::/10 -j DROP
-s ffff::/ffff:: -j DROP
-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT
-p ipv6-icmp -m icmp6 --icmpv6-type 1/4 -j ACCEPT
-p icmpv6 --icmpv6-type echo-reply -j ACCEPT
-m iprange --src-range 2001:db8::1-2001:db8::9 -j ACCEPT
-m conntrack --ctorigsrc 2001:db8::/32 ! --ctorigdst 2001:db8::1 -j ACCEPT
-m hl --hl-eq 5 -j ACCEPT
-m hl --hl-lt 5 -j ACCEPT
-m hl --hl-gt 5 -j ACCEPT
-j REJECT --reject-with icmp6-port-unreachable
`

const otherTables = `*mangle
-A PREROUTING -j MARK --set-xmark 0x1/0xff
-A PREROUTING -j MARK --set-mark 0x1
-A PREROUTING -j MARK --and-mark 0x1
-A PREROUTING -j MARK --or-mark 0x1
-A PREROUTING -j MARK --xor-mark 0x1
-A PREROUTING -j TOS --set-tos 0x10/0x3f
-A PREROUTING -j TOS --set-tos Minimize-Delay
-A PREROUTING -j TOS --and-tos 0x10
-A POSTROUTING -j CLASSIFY --set-class 1:1f
-A POSTROUTING -j DSCP --set-dscp-class EF
-A POSTROUTING -j DSCP --set-dscp 0x0a
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
*raw
-A PREROUTING -j CT --notrack
-A PREROUTING -j NOTRACK
-A PREROUTING -j CT --zone 5
-A PREROUTING -j CT --zone-orig 5
-A PREROUTING -j CT --zone-reply 65535
-A PREROUTING -j CT --zone mark
-A PREROUTING -j CT --zone 6 --ctevents new
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.2:8080
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.2
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination :8080
-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.2-192.0.2.5:80-90 --random
-A PREROUTING -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 8081
-A POSTROUTING -o eth0 -j MASQUERADE --random-fully
-A POSTROUTING -o eth1 -j SNAT --to-source 192.0.2.3-192.0.2.4 --persistent
-A POSTROUTING -o eth1 -j SNAT --to-source 192.0.2.3
COMMIT
`
