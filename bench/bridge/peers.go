// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var peersSection = suite.Section{
	Name:   "peers",
	Title:  "Beside others",
	Budget: budget(120),
	About: "Two containers on one CPU, and what they do under \"Rules between containers\". On one bridge: Linux's, the same with shunt, and Open vSwitch in its place, whose datapath in user space (datapath_type netdev; the development kernel lacks its module) works on the containers' CPU too. " +
		"Between two networks, each a bridge of its own, with 900 rules for what is forwarded of which the last alone matches: Linux with these rules, the same with shunt, and, as in the thesis that the idea is from, a BPF program made of the rules in place of them: " +
		"what `shunt compile --hook tc` makes of the same rules is attached to the two bridges, and Linux has none. It acts on what is forwarded by route; to frames that a bridge passes from port to port it does nothing, so there is no such variant on one bridge.",
	Run: runPeers,
}

// The peers.
const (
	openVSwitch = "open vswitch, netdev"
	compiled    = "shunt compile, tc"
)

func runPeers(b *suite.Bench) error {
	for _, p := range []struct {
		name string
		run  func() error
	}{{oneBridge, func() error { return measureOneBridge(b) }}, {twoNetworks, func() error { return measureTwoNetworks(b) }}} {
		if err := b.Part(p.name, p.run); err != nil {
			return err
		}
	}
	return nil
}

// The cases.
var (
	oneBridge   = "one bridge"
	twoNetworks = fmt.Sprintf("two networks, %d rules", manyRules)
)

func measureOneBridge(b *suite.Bench) error {
	var turns []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, shuntAuto, openVSwitch} {
		prepare := plain.host
		if variant == openVSwitch {
			prepare = func(ns *lab.NS) error { return b.OpenVSwitch(ns, b.DutCPU, "p0", "p1") }
		}
		l, err := containersOn(b, variant, 1, prepare)
		if b.Without(openVSwitch, err) {
			continue
		}
		if err != nil {
			return err
		}
		more := ruleTurns(b, situation{name: oneBridge}, l)
		if variant == openVSwitch {
			for i := range more {
				more[i].Run = untilItFails(b, variant, more[i].Run)
			}
		}
		turns = append(turns, more...)
	}
	return b.Turns(oneBridge, extents[b.Size.Name].rounds, turns)
}

// untilItFails has a peer that fails end its own figures alone.
func untilItFails(b *suite.Bench, variant string, run func(*measure.Set) error) func(*measure.Set) error {
	failed := false
	return func(set *measure.Set) error {
		if failed {
			return nil
		}
		err := run(set)
		if err == nil || errors.Is(err, suite.ErrInterrupted) {
			return err
		}
		failed = true
		b.Skip(variant, err.Error())
		return nil
	}
}

func measureTwoNetworks(b *suite.Bench) error {
	var turns []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, shuntAuto, compiled} {
		l, err := b.SocketLane(variant, func(ns *lab.NS) error {
			if err := ns.Feed(networks, "ip -batch -"); err != nil {
				return err
			}
			if variant == compiled {
				return attachCompiled(b, ns)
			}
			return ns.Feed(ruleFile(manyRules), "nft -f -")
		})
		if err != nil {
			return err
		}
		if variant == shuntAuto {
			if err := b.Accelerate(l, "auto"); err != nil {
				return err
			}
		}
		turns = append(turns, ruleTurns(b, situation{name: twoNetworks}, l)...)
	}
	return b.Turns(twoNetworks, extents[b.Size.Name].rounds, turns)
}

// networks gives each of the router's ports a bridge, which has its address.
const networks = `address flush dev p0
address flush dev p1
link add br0 type bridge
link add br1 type bridge
link set p0 master br0
link set p1 master br1
address add 10.0.0.1/24 dev br0
address add 10.0.1.1/24 dev br1
link set br0 up
link set br1 up
`

// saveFile is ruleFile as iptables-save writes it.
func saveFile(n int) string {
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "-A FORWARD -s 192.168.%d.%d/32 -p tcp -m tcp --dport %d -j DROP\n", i/250, 1+i%250, 20000+i)
	}
	b.WriteString("-A FORWARD -s 10.0.0.0/16 -j ACCEPT\nCOMMIT\n")
	return b.String()
}

// attachCompiled has tc run what `shunt compile` makes of the rules, at both bridges.
func attachCompiled(b *suite.Bench, ns *lab.NS) error {
	dir, err := b.TempDir()
	if err != nil {
		return err
	}
	rules, object := filepath.Join(dir, "rules"), filepath.Join(dir, "rules.o")
	if err := os.WriteFile(rules, []byte(saveFile(manyRules)), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(b.Shunt, "compile", rules, "--hook", "tc", "-o", object).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the rules: %w: %s", err, bytes.TrimSpace(out))
	}
	// In a mount namespace of its own, where tc's pins go with it.
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `mount -t bpf bpf /sys/fs/bpf
for dev in br0 br1; do tc qdisc add dev $dev clsact; tc filter add dev $dev ingress bpf da obj "$0" sec tc; done`, object)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("attaching the compiled rules: %w", err), errors.New(strings.TrimSpace(said.String())))
	}
	return nil
}
