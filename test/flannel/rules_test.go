// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
)

// rules is where those of kube-proxy are that internal/kstate reads: one service at 10.43.0.80 with two pods, by a port of nodes too, and one at 10.43.0.1.
const rules = "../../internal/kstate/testdata/rules/kube-proxy-1.36"

var (
	// accounting are kube-proxy's accounting objects, which not every kernel has, and which would have to be there.
	accounting = regexp.MustCompile(`-m nfacct --nfacct-name +\S+ `)
	// flannels are Flannel's rules among them: flanneld has written its own.
	flannels = regexp.MustCompile(`(?m)^.*FLANNEL-.*\n`)
)

// serviceRules are kube-proxy's for a node, with the pods that there are. The service with one endpoint leads to another node's pod, so that what goes by it has to be fast.
func (n *node) serviceRules(dialect string) string {
	n.Helper()
	raw, err := os.ReadFile(rules + map[string]string{"iptables": ".iptables", "nft": ".nft"}[dialect])
	if err != nil {
		n.Fatal(err)
	}
	text := flannels.ReplaceAllString(accounting.ReplaceAllString(string(raw), ""), "")
	pod := func(name string) string { _, addrs := n.place(name); return addrs[0].String() }
	for _, as := range [][2]string{{"192.0.2.254:6443", pod("pod2a") + ":80"}, {"192.0.2.254 . 6443", pod("pod2a") + " . 80"}, {"192.0.2.254/32", pod("pod2a") + "/32"}, // before what follows puts addresses in
		// A node has those of its own pods: else a service's pod that asks it and is chosen itself has no answer.
		{`comment "service hairpin connections"`, fmt.Sprintf("elements = { %[1]s . %[1]s . tcp . 80, %[1]s . %[1]s . tcp . 5201, %[2]s . %[2]s . tcp . 80, %[2]s . %[2]s . tcp . 5201 }", pod("pod1b"), pod("pod2a"))},
		{"192.0.2.1 }", fmt.Sprintf("192.0.2.%d }", n.number)}, {"10.42.0.0/16", "10.244.0.0/16"}, {"10.42.0.3", pod("pod1b")}, {"10.42.1.2", pod("pod2a")}} {
		text = strings.ReplaceAll(text, as[0], as[1])
	}
	return text
}

// policyRules are what programs that keep policies write for a node: pod2a and pod1b are asked by pod1a alone, at one port; and pods talk to nothing beyond but port 80. What was begun goes on.
func (n *node) policyRules(dialect string) string {
	n.Helper()
	pod := func(name string) netip.Addr { _, addrs := n.place(name); return addrs[0] }
	if dialect == "iptables" {
		out := []string{"*filter", ":POLICY-FORWARD - [0:0]", ":POLICY-FORWARD-IN - [0:0]", ":POLICY-FORWARD-OUT - [0:0]", "-I FORWARD -m comment --comment policies -j POLICY-FORWARD", "-A POLICY-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"}
		for _, name := range []string{"pod2a", "pod1b"} {
			out = append(out, fmt.Sprintf("-A POLICY-FORWARD -d %s/32 -j POLICY-FORWARD-IN", pod(name)))
		}
		return strings.Join(append(out,
			"-A POLICY-FORWARD -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j POLICY-FORWARD-OUT",
			fmt.Sprintf("-A POLICY-FORWARD-IN -s %s/32 -p tcp -m tcp --dport 80 -m comment --comment allowed -j RETURN", pod("pod1a")),
			"-A POLICY-FORWARD-IN -p icmp -j REJECT --reject-with icmp-admin-prohibited", "-A POLICY-FORWARD-IN -j DROP",
			"-A POLICY-FORWARD-OUT -p tcp -m tcp --dport 80 -j RETURN", "-A POLICY-FORWARD-OUT -j REJECT", "COMMIT", ""), "\n")
	}
	return fmt.Sprintf(`table ip policies {
	set guarded { type ipv4_addr; elements = { %s, %s } }
	set allowed { type ipv4_addr . ipv4_addr . inet_proto . inet_service; elements = { %[3]s . %[1]s . tcp . 80, %[3]s . %[2]s . tcp . 80 } }
	chain forward {
		type filter hook forward priority filter - 5; policy accept;
		ct state vmap { established : accept, related : accept, invalid : drop }
		ip daddr @guarded jump in
		ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 jump out
	}
	chain in {
		ip saddr . ip daddr . meta l4proto . th dport @allowed counter accept
		meta l4proto icmp counter reject with icmp type admin-prohibited
		counter drop
	}
	chain out {
		tcp dport 80 counter return
		counter reject
	}
}
`, pod("pod2a"), pod("pod1b"), pod("pod1a"))
}

// load has every node take rules.
func (c *cluster) load(dialect string, of func(*node) string) {
	c.Helper()
	for _, n := range c.nodes[:2] {
		command := map[string]string{"iptables": "iptables-restore --noflush", "nft": "nft -f -"}[dialect]
		if err := n.ns.Feed(of(n), "%s", command); err != nil {
			c.Fatalf("%s: %v", c.name, err)
		}
	}
}

// services compares what is asked by addresses and ports of services.
func (w *twins) services(s setup) {
	w.Helper()
	w.both(func(c *cluster) {
		c.load(s.rules, func(n *node) string { return n.serviceRules(s.rules) })
		c.must(c.sw, "ip route replace 10.43.0.0/16 via 192.0.2.1")
	})
	var questions []probe
	for _, from := range []string{"pod1a", "pod1b", "pod2a", "pod2b", "node1", "node2", "sw"} {
		for _, words := range []string{"where 10.43.0.80:80 20", "get 10.43.0.80:80 500000", "who 10.43.0.80:5201", "udp 10.43.0.80:80 2 100 0", "who 10.43.0.1:443", "put 10.43.0.1:443 500000", "who 10.43.0.99:80"} {
			questions = append(questions, probe{from, "sw", words})
		}
		questions = append(questions, probe{from, "node1", "where {to}:30080 20"}, probe{from, "node2", "where {to}:30080 20"}, probe{from, "node2", "get {to}:30080 500000"}, probe{from, "node1", fmt.Sprintf("who {to}:%d", hostPort)})
	}
	large := []probe{{"pod1a", "sw", fmt.Sprint("get 10.43.0.1:443 ", 8*megabyte)}, {"pod1a", "sw", fmt.Sprint("put 10.43.0.1:443 ", 8*megabyte)}}
	before := w.fastBytes()
	said := w.compare("services by "+s.rules, append(questions, large...))
	for question, want := range map[probe]string{{"pod1a", "sw", "where 10.43.0.80:80 20"}: "pod1b pod2a", {"sw", "node2", "where {to}:30080 20"}: "pod1b pod2a", {"pod1a", "sw", "who 10.43.0.1:443"}: "pod1a"} {
		if said[question.String()] != want {
			w.Errorf("%s: Linux alone says %q, not %q: these services do not work", question, said[question.String()], want)
		}
	}
	if s.unordered() {
		for _, i := range w.clusters[1].nodes[0].shunt.Status().Interfaces {
			if strings.Contains(fmt.Sprint(i.Reasons), "does not tell which of the chains") {
				w.Logf("not fast on this kernel (it was built without CONFIG_NETFILTER_NETLINK_HOOK, and two tables have chains of one priority)")
				return
			}
		}
	}
	w.mustBeFast("services", before, 8*megabyte, large)
}

// unordered says whether rules of Flannel and of kube-proxy are in two tables of nf_tables with chains of one priority.
func (s setup) unordered() bool { return s.rules == "nft" }

// policies compares what may be asked when policies have been written while pods talk: what was begun before goes on.
func (w *twins) policies(s setup) {
	w.Helper()
	questions := []probe{{"pod1a", "pod2a", "who {to}:80"}, {"pod1a", "pod2a", "get {to}:80 500000"}, {"pod1a", "pod2a", "put {to}:80 500000"}, {"pod1a", "pod2a", "ping -s 56 {to}"}, {"pod1a", "pod2a", "udp {to}:80 2 100 0"}, {"pod1b", "pod2a", "who {to}:80"},
		{"pod2b", "pod2a", "who {to}:80"}, {"pod2a", "pod1a", "who {to}:80"}, {"pod2a", "pod1a", "get {to}:80 500000"}, {"pod2a", "pod1b", "who {to}:80"}, {"pod1a", "pod1b", "who {to}:80"}, {"pod2b", "pod1b", "who {to}:80"}, {"node1", "pod2a", "who {to}:80"},
		{"pod2b", "sw", "who {to}:80"}, {"pod2b", "sw", "udp {to}:80 2 100 0"}, {"pod1a", "sw", "ping -s 56 {to}"}, {"sw", "node1", fmt.Sprintf("who {to}:%d", hostPort)}, {"pod2b", "sw", "who 10.43.0.1:443"}, {"pod1a", "sw", "get 10.43.0.1:443 500000"}}
	load := func(c *cluster) {
		c.load(s.rules, func(n *node) string { return n.policyRules(s.rules) })
	}
	remove := func(c *cluster) {
		for _, n := range c.nodes[:2] {
			if s.rules == "nft" {
				c.must(n.ns, "nft delete table ip policies")
			} else {
				c.must(n.ns, "iptables -D FORWARD 1", "iptables -F POLICY-FORWARD", "iptables -F POLICY-FORWARD-IN", "iptables -F POLICY-FORWARD-OUT", "iptables -X POLICY-FORWARD", "iptables -X POLICY-FORWARD-IN", "iptables -X POLICY-FORWARD-OUT")
			}
		}
	}
	said := w.happens(event{what: "policies by " + s.rules, do: load, stops: []string{back}, more: questions, then: "and none", undo: remove})
	for question, want := range map[probe]string{{"pod1a", "pod2a", "who {to}:80"}: "pod1a", {"pod2b", "pod2a", "who {to}:80"}: "no answer"} {
		if said[question.String()] != want {
			w.Errorf("%s: Linux alone says %q, not %q: these policies do nothing", question, said[question.String()], want)
		}
	}
	w.both(load) // once more, to count
	w.counters("policies")
	w.both(remove)
}
