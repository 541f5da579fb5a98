// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/compile"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rulefile"
)

func TestMain(m *testing.M) {
	before := pinned()
	code := lab.Main(m)
	if after := pinned(); !slices.Equal(before, after) {
		fmt.Fprintf(os.Stderr, "%s had %q before the tests, and has %q\n", pins, before, after)
		code = 1
	}
	os.Exit(code)
}

// pins is where iproute2 makes folders and files for what it loads. Tests give it a file system of their own there.
const pins = "/sys/fs/bpf"

// pinned lists the machine's own; a machine without any has an empty list.
func pinned() (names []string) {
	entries, _ := os.ReadDir(pins)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// router is a line of namespaces whose middle either has Linux's rules or the object.
type router struct {
	*lab.Net
	t *testing.T
}

func newRouter(t *testing.T) *router {
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(8), V6: lab.V6Prefixes(4), Receive: lab.ReceiveGRO})
	return &router{n, t}
}

// exec runs a line in the middle, where its pins go with it.
func (r *router) exec(line string) {
	r.t.Helper()
	if out, err := exec.Command("nsenter", "--net="+r.Node(lab.Dut).Path(), "unshare", "--mount", "sh", "-euc", "mount -t bpf bpf "+pins+"\n"+line).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// object compiles a file.
func object(t *testing.T, text string, o compile.Options) (string, *compile.Result) {
	t.Helper()
	rs, _, err := rulefile.Parse("rules", []byte(text), false)
	if err != nil {
		t.Fatal(err)
	}
	result, err := compile.Compile(rs, o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.o")
	if err := os.WriteFile(file, result.Object, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, result
}

// attach loads an object with the tools that every host has.
func (r *router) attach(port, file string, hook compile.Hook) {
	if hook == compile.XDP {
		r.exec(fmt.Sprintf("ip link set dev %s xdp obj %s sec xdp", port, file))
		return
	}
	r.exec(fmt.Sprintf("tc qdisc add dev %s clsact; tc filter add dev %s ingress bpf da obj %s sec tc", port, port, file))
}

func (r *router) detach(port string, hook compile.Hook) {
	if hook == compile.XDP {
		r.exec(fmt.Sprintf("ip link set dev %s xdp off", port))
		return
	}
	r.exec(fmt.Sprintf("tc qdisc del dev %s clsact", port))
}

// arrivals sends frames, each out of a port, and gives what arrives anywhere, in order.
//
// However busy the machine is, none of them is still under way when it stops to wait: behind them goes an ARP request, which the router answers
// whatever its rules are, and only what comes after the answer has to come soon.
func (r *router) arrivals(shots []lab.Shot) (out []string) {
	r.t.Helper()
	tx := r.Port(lab.Src, "tx")
	c, err := lab.NewCapture(tx, r.Port(lab.SinkNode, "rx"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	flow := tx.Flow("10.0.0.2", "10.0.0.1")
	ask := lab.Packet(&layers.Ethernet{SrcMAC: flow.SrcMAC, DstMAC: layers.EthernetBroadcast}, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPRequest,
		SourceHwAddress: flow.SrcMAC, SourceProtAddress: []byte{10, 0, 0, 2}, DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 0, 0, 1},
	})
	if err := lab.Send(append(slices.Clone(shots), lab.Shot{Port: tx, Frame: ask})...); err != nil {
		r.t.Fatal(err)
	}
	isARP := func(f lab.Frame) bool { return bytes.Equal(f.Data[12:14], []byte{8, 6}) }
	var frames []lab.Frame
	for end := time.Now().Add(10 * time.Second); !slices.ContainsFunc(frames, isARP); {
		if time.Now().After(end) {
			r.t.Fatalf("the router does not answer an ARP request; %d frames came", len(frames))
		}
		if frames, err = c.Wait(len(frames)+1, time.Second); err != nil {
			r.t.Fatal(err)
		}
	}
	if frames, err = c.Wait(0, 80*time.Millisecond); err != nil {
		r.t.Fatal(err)
	}
	for _, f := range frames {
		switch {
		case isARP(f), lab.Noise(f.Data):
		case bytes.Contains(f.Data[:min(len(f.Data), 34)], []byte{10, 0, 0, 1, 10, 0, 0, 2}): // the router's own, with an identification by chance
			out = append(out, fmt.Sprintf("%s answers by itself, %d bytes", f.Port, len(f.Data)))
		default:
			out = append(out, fmt.Sprintf("%s %x", f.Port, f.Data))
		}
	}
	slices.Sort(out)
	return out
}

// compare sends the same frames through Linux with the rules and through the object.
func (r *router) compare(text string, shots []lab.Shot, hook compile.Hook, ports ...string) (forwarded int) {
	t := r.t
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := "iptables-legacy"
	if strings.HasPrefix(text, "# Generated by ip6tables") {
		command = "ip6tables-legacy"
	}
	native := strings.HasPrefix(text, "table ")
	if native {
		command = "nft"
		r.exec("nft -f " + rules + "; nft -j list ruleset > " + rules + ".json")
		b, err := os.ReadFile(rules + ".json")
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	} else {
		r.exec(command + "-restore < " + rules)
	}
	want := r.arrivals(shots)
	switch {
	case native:
		r.exec("nft flush ruleset")
	case strings.Contains(text, "*nat"):
		r.exec(command + " -t nat -F")
		fallthrough
	default:
		r.exec(strings.ReplaceAll("CMD -F; CMD -X; CMD -P FORWARD ACCEPT", "CMD", command))
	}
	for _, p := range ports {
		file, _ := object(t, text, compile.Options{Hook: hook, Interface: p})
		r.attach(p, file, hook)
		defer r.detach(p, hook)
	}
	got := r.arrivals(shots)
	if !slices.Equal(got, want) {
		t.Log(text)
		t.Errorf("%s: Linux forwards %d frames, the object %d", hook, len(want), len(got))
		for _, f := range got {
			if !slices.Contains(want, f) {
				t.Errorf("  only the object: %s", f)
			}
		}
		for _, f := range want {
			if !slices.Contains(got, f) {
				t.Errorf("  only Linux: %s", f)
			}
		}
	}
	return len(want)
}

var hooks = []compile.Hook{compile.XDP, compile.TC}

// TestCases: filters by hand, with the packets that tell them apart.
func TestCases(t *testing.T) {
	r := newRouter(t)
	tx := r.Port(lab.Src, "tx")
	far := func(i int) string { return lab.V4Prefixes(8).Host(i, 9).String() }
	var shots []lab.Shot
	for i := range 4 {
		for _, src := range []string{"10.0.0.2", "10.0.0.77"} {
			f := tx.Flow(src, far(i))
			f.SrcPort, f.DstPort = 1000+uint16(i), 53
			shots = append(shots, lab.Shot{Port: tx, Frame: f.UDP("x")})
			f.DstPort = 80
			shots = append(shots, lab.Shot{Port: tx, Frame: f.TCP("S", 1, "")}, lab.Shot{Port: tx, Frame: f.TCP("A", 1, "")}, lab.Shot{Port: tx, Frame: f.Echo(1, 2, "x")})
		}
	}
	shots = append(shots, lab.Shot{Port: tx, Frame: tx.Flow("10.0.0.2", "10.0.0.1").Echo(1, 2, "local")})
	for _, c := range []string{
		"-A FORWARD -s 10.0.0.77/32 -d " + far(1) + "/32 -j DROP",
		"-A FORWARD -p udp -m udp --dport 53 -j DROP",
		"-A FORWARD -p udp -m udp ! --sport 1001 -j DROP",
		"-A FORWARD -p tcp -m tcp --tcp-flags SYN,ACK SYN -j DROP",
		"-A FORWARD ! -s 10.0.0.2/32 -j DROP",
		"-A FORWARD -p icmp -m icmp --icmp-type 8 -j DROP",
		"-A FORWARD -s 10.0.0.77/32 -j MARK --set-xmark 0x1/0xffffffff\n-A FORWARD -m mark --mark 0x1 -j DROP",
		"-A FORWARD -j U\n-A U -s 10.0.0.77/32 -j RETURN\n-A U -p tcp -j DROP\n-A FORWARD -p udp -j DROP",
		"-A FORWARD -p tcp -m multiport --dports 22,80:90 -j ACCEPT\n-A FORWARD -j DROP",
		"-A FORWARD -i in -j DROP", "-A FORWARD -i other -j DROP", "-A FORWARD ! -i in -j DROP",
		"-A INPUT -j DROP\n-A FORWARD -m ttl --ttl-lt 10 -j DROP", "-A FORWARD -m ttl --ttl-eq 63 -j DROP",
		"-P", // the policy alone
	} {
		policy := "ACCEPT"
		if c == "-P" {
			c, policy = "", "DROP"
		}
		text := "*filter\n:FORWARD " + policy + " [0:0]\n:U - [0:0]\n" + c + "\nCOMMIT\n"
		if strings.Contains(c, "INPUT") { // which the object does not decide
			shots := shots[:len(shots)-1]
			for _, hook := range hooks {
				r.compare(text, shots, hook, "in")
			}
			continue
		}
		for _, hook := range hooks {
			r.compare(text, shots, hook, "in")
		}
	}
}

// TestRandomRules: rules by source, destination, protocol and ports, in user chains too, and packets that meet them.
func TestRandomRules(t *testing.T) {
	r := newRouter(t)
	tx := r.Port(lab.Src, "tx")
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	sources := []string{"10.0.0.2", "10.0.0.3", "10.0.0.77", "10.0.0.200"}
	passed, sent := 0, 0
	for n := range 16 {
		var shots []lab.Shot
		for range 60 {
			f := tx.Flow(sources[rnd.IntN(4)], lab.V4Prefixes(8).Host(rnd.IntN(8), 1+rnd.IntN(4)).String())
			f.SrcPort, f.DstPort = uint16(1+rnd.IntN(6)), uint16(1+rnd.IntN(6))
			frame := f.UDP("x")
			switch rnd.IntN(4) {
			case 0:
				frame = f.TCP([]string{"S", "SA", "A", "FA"}[rnd.IntN(4)], 1, "")
			case 1:
				frame = f.Echo(1, uint16(rnd.IntN(100)), "x")
			}
			shots = append(shots, lab.Shot{Port: tx, Frame: frame})
		}
		passed += r.compare(randomRules(rnd, sources), shots, hooks[n%2], "in")
		sent += len(shots)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d of %d packets were forwarded", passed, sent)
	if passed == 0 || passed == sent {
		t.Errorf("%d of %d packets were forwarded: the rules decide nothing", passed, sent)
	}
}

func randomRules(rnd *rand.Rand, sources []string) string {
	rule := func() string {
		var w []string
		not := func() string { return []string{"", "", "", "! "}[rnd.IntN(4)] }
		if rnd.IntN(2) == 0 {
			w = append(w, not()+"-s "+sources[rnd.IntN(4)]+[]string{"/32", "/31", "/25"}[rnd.IntN(3)])
		}
		if rnd.IntN(2) == 0 {
			w = append(w, not()+"-d "+lab.V4Prefixes(8).Host(rnd.IntN(8), 1+rnd.IntN(4)).String()+[]string{"/32", "/24", "/23"}[rnd.IntN(3)])
		}
		switch rnd.IntN(4) {
		case 0:
			w = append(w, "-p udp -m udp "+not()+fmt.Sprintf("--dport %d:%d", 1+rnd.IntN(3), 3+rnd.IntN(3)))
		case 1:
			w = append(w, "-p tcp -m tcp "+not()+fmt.Sprintf("--sport %d", 1+rnd.IntN(6)))
		case 2:
			w = append(w, not()+"-p icmp")
		}
		return strings.Join(w, " ")
	}
	text := "*filter\n:FORWARD " + []string{"ACCEPT", "DROP"}[rnd.IntN(2)] + " [0:0]\n:U1 - [0:0]\n:U2 - [0:0]\n"
	for _, c := range []struct {
		name, targets string
	}{{"FORWARD", "DROP ACCEPT U1 U2"}, {"U1", "DROP ACCEPT RETURN U2"}, {"U2", "DROP ACCEPT RETURN"}} {
		targets := strings.Fields(c.targets)
		for range rnd.IntN(12) {
			text += "-A " + c.name + " " + rule() + " -j " + targets[rnd.IntN(len(targets))] + "\n"
		}
	}
	return text + "COMMIT\n"
}

// TestIPv6: the same of ip6tables, and IPv4 left alone.
func TestIPv6(t *testing.T) {
	r := newRouter(t)
	tx := r.Port(lab.Src, "tx")
	far := func(i int) string { return lab.V6Prefixes(4).Host(i, 9).String() }
	var shots []lab.Shot
	for i := range 3 {
		for _, src := range []string{"fd00:0:0:1::2", "fd00:0:0:1::77"} {
			f := tx.Flow(src, far(i))
			shots = append(shots, lab.Shot{Port: tx, Frame: f.UDP("x")}, lab.Shot{Port: tx, Frame: f.TCP("S", 1, "")}, lab.Shot{Port: tx, Frame: f.Echo(1, 2, "x")})
		}
	}
	shots = append(shots, lab.Shot{Port: tx, Frame: tx.Flow("10.0.0.2", lab.V4Prefixes(8).Host(1, 9).String()).UDP("x")})
	text := "# Generated by ip6tables-save\n*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s fd00:0:0:1::77/128 -d " + far(1) + "/128 -j DROP\n" +
		"-A FORWARD ! -d " + far(1) + "/64 -p tcp -m tcp --dport 2000 -j DROP\n-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 128 -s fd00:0:0:1::2/128 -j DROP\nCOMMIT\n"
	for _, hook := range hooks {
		if n := r.compare(text, shots, hook, "in"); n < 5 || n >= len(shots) {
			t.Errorf("%d of %d packets were forwarded", n, len(shots))
		}
	}
}

// TestNFT: native rules as nft lists them in JSON: sets, maps, ranges, chains and policies.
func TestNFT(t *testing.T) {
	r := newRouter(t)
	tx := r.Port(lab.Src, "tx")
	far := func(i int) string { return lab.V4Prefixes(8).Host(i, 9).String() }
	far6 := func(i int) string { return lab.V6Prefixes(4).Host(i, 9).String() }
	var shots []lab.Shot
	for i := range 4 {
		for _, f := range []lab.Flow{tx.Flow("10.0.0.2", far(i)), tx.Flow("10.0.0.77", far(i)), tx.Flow("fd00:0:0:1::77", far6(i%3))} {
			f.SrcPort, f.DstPort = 1000+uint16(i), []uint16{53, 80, 443, 2000}[i]
			shots = append(shots, lab.Shot{Port: tx, Frame: f.UDP("x")}, lab.Shot{Port: tx, Frame: f.TCP("S", 1, "")}, lab.Shot{Port: tx, Frame: f.Echo(1, 2, "x")})
		}
	}
	chain := func(policy, rules string) string {
		return "table inet f {\n set s { type ipv4_addr; flags interval; elements = { 10.0.0.64/26, " + far(3) + " } }\n set c { type ipv4_addr . inet_service; elements = { " + far(1) + " . 80, " + far(2) + " . 80 } }\n" +
			" map m { type inet_service : verdict; elements = { 53 : drop, 443 : jump u } }\n chain u { ip saddr 10.0.0.77 drop; meta nfproto ipv6 counter return; }\n chain f { type filter hook forward priority 0; policy " + policy + ";\n" + rules + "\n }\n}\n"
	}
	for i, text := range []string{
		chain("accept", "ip saddr @s counter drop"), chain("accept", "ip daddr . tcp dport @c drop"), chain("accept", "udp dport vmap @m; tcp dport vmap @m"), chain("drop", "ip daddr != @s tcp dport 80-443 accept; icmpv6 type echo-request accept"),
		chain("accept", "iifname \"in\" ip6 saddr fd00:0:0:1::77 udp dport { 53, 443 } drop; ip ttl < 64 tcp flags & (syn | ack) == syn jump u"), chain("drop", "meta l4proto { tcp, icmp } ip saddr 10.0.0.2 accept"),
		// Which devices a set of names means is not known without them: what comes to such a rule is left to Linux, which here has no rules any more and forwards it.
		chain("drop", "iifname { \"in\", \"other\" } ip saddr 10.0.0.77 accept"),
	} {
		if n := r.compare(text, shots, hooks[i%2], "in"); n == 0 || n == len(shots) {
			t.Errorf("%d of %d packets were forwarded: the rules decide nothing\n%s", n, len(shots), text)
		}
	}
}

// Test900Rules: as many as the generator that this one follows was measured with.
func Test900Rules(t *testing.T) {
	r := newRouter(t)
	tx := r.Port(lab.Src, "tx")
	text := "*filter\n:FORWARD ACCEPT [0:0]\n"
	for i := range 900 {
		text += fmt.Sprintf("-A FORWARD -s 10.0.%d.%d/32 -d %s/32 -j DROP\n", 100+i/250, 1+i%250, lab.V4Prefixes(8).Host(i%8, 9))
	}
	text += "COMMIT\n"
	var shots []lab.Shot
	for _, i := range []int{0, 1, 449, 450, 898, 899} {
		for _, d := range []int{i % 8, (i + 1) % 8} {
			f := tx.Flow(fmt.Sprintf("10.0.%d.%d", 100+i/250, 1+i%250), lab.V4Prefixes(8).Host(d, 9).String())
			shots = append(shots, lab.Shot{Port: tx, Frame: f.UDP("x")})
		}
	}
	for _, hook := range hooks {
		if n := r.compare(text, shots, hook, "in"); n != 6 {
			t.Errorf("%d packets were forwarded, want 6", n)
		}
	}
}

// TestStaticNAT: destinations there and sources back, byte by byte as Linux writes them.
func TestStaticNAT(t *testing.T) {
	r := newRouter(t)
	tx, rx := r.Port(lab.Src, "tx"), r.Port(lab.SinkNode, "rx")
	server := lab.V4Prefixes(8).Host(2, 9).String()
	other := lab.V4Prefixes(8).Host(3, 9).String()
	text := `*nat
-A PREROUTING -i in -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination ` + server + `:8080
-A PREROUTING -d 192.0.2.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination ` + server + `
-A PREROUTING -d 192.0.2.2/32 -j DNAT --to-destination ` + other + `
COMMIT
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -d ` + server + `/32 -p tcp -m tcp --dport 8080 -s 10.0.0.66/32 -j DROP
COMMIT
`
	flow := func(p *lab.Port, src, dst string, sport, dport uint16) lab.Flow {
		f := p.Flow(src, dst)
		f.SrcPort, f.DstPort = sport, dport
		return f
	}
	shots := []lab.Shot{
		{Port: tx, Frame: flow(tx, "10.0.0.2", "192.0.2.1", 1000, 80).TCP("S", 1, "")},
		{Port: tx, Frame: flow(tx, "10.0.0.66", "192.0.2.1", 1000, 80).TCP("S", 1, "")},
		{Port: tx, Frame: flow(tx, "10.0.0.2", "192.0.2.1", 1000, 53).UDP("question")},
		{Port: tx, Frame: flow(tx, "10.0.0.2", "192.0.2.2", 1000, 53).UDP("question")},
		{Port: tx, Frame: flow(tx, "10.0.0.2", "192.0.2.2", 0, 0).Echo(7, 1, "ping")},
		{Port: rx, Frame: flow(rx, server, "10.0.0.2", 8080, 1000).TCP("SA", 1, "")},
		{Port: rx, Frame: flow(rx, server, "10.0.0.2", 53, 1000).UDP("answer")},
		{Port: rx, Frame: flow(rx, other, "10.0.0.2", 53, 1000).UDP("answer")},
	}
	for _, hook := range hooks {
		if n := r.compare(text, shots, hook, "in", "out"); n != 7 {
			t.Errorf("%d packets were forwarded, want 7", n)
		}
	}
}
