// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var cost = suite.Section{
	Name:  "cost",
	Title: "The programs themselves",
	About: "Instructions of the program at the router's ingress in several configurations, after the verifier, and the time of one run by BPF_PROG_TEST_RUN, less that of a program that does nothing: with hot caches and " +
		"without the redirect itself, so a lower bound. A forwarded packet is run once per system call, since a second run would see what the first wrote (other MAC addresses, a smaller TTL); the " +
		"median of many is taken. A packet that passes (TTL 1) is unchanged and is run in a loop, interrupted before the program begins to rest.",
	Run: runCost,
}

// configuration is a router with one more feature than the plain one.
type configuration struct {
	name     string
	line     lab.LineOptions
	commands []string
}

var configurations = []configuration{
	{"plain, ipv4 and ipv6", lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50)}, nil},
	{"ipv4 only", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"sysctl -qw net.ipv6.conf.all.forwarding=0"}},
	{"rp_filter strict", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"sysctl -qw net.ipv4.conf.all.rp_filter=1"}},
	{"rp_filter loose", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"sysctl -qw net.ipv4.conf.all.rp_filter=2"}},
	{"rules by source", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"ip rule add from 10.0.0.99 lookup main pref 100"}},
	{"rules by port", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"ip rule add ipproto udp dport 99 lookup main pref 100"}},
	{"route with an mtu", lab.LineOptions{V4: lab.V4Prefixes(50)}, []string{"ip route add 61.0.0.0/24 via 10.0.1.2 mtu 600"}},
}

func runCost(b *suite.Bench) error {
	empty, err := suite.LoadXDP("bench_empty", asm.Instructions{asm.Mov.Imm(asm.R0, suite.XDPPass), asm.Return()})
	if err != nil {
		return err
	}
	b.Later(empty.Close)
	tcEmpty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_empty", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return err
	}
	b.Later(tcEmpty.Close)
	var turns []measure.Turn
	for _, c := range configurations {
		for hook, nothing := range map[graph.Hook]*ebpf.Program{graph.XDP: empty, graph.TC: tcEmpty} {
			t, err := costTurn(b, c, hook, nothing)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", c.name, hook, err)
			}
			turns = append(turns, t)
		}
	}
	return b.Turns("cost", b.Size.Rounds, turns)
}

// costTurn builds the configuration and takes its program.
func costTurn(b *suite.Bench, c configuration, hook graph.Hook, nothing *ebpf.Program) (t measure.Turn, err error) {
	line := c.line
	line.Receive = lab.ReceiveGRO
	n, err := b.BuildLine(line)
	if err != nil {
		return t, fmt.Errorf("building a line: %w", err)
	}
	b.Later(n.Close)
	for _, command := range c.commands {
		if err := n.Node(lab.Dut).Exec("%s", command); err != nil {
			return t, err
		}
	}
	e, err := b.StartEngine(n.Node(lab.Dut), graph.Policy{Hook: string(hook)})
	if err != nil {
		return t, err
	}
	in := n.Port(lab.Dut, "in")
	prog, err := e.Program(in.Index, hook)
	if err != nil {
		return t, err
	}
	b.Later(prog.Close)
	variant := "shunt " + string(hook)
	if err := b.Describe(c.name, variant, prog); err != nil {
		return t, err
	}
	r := suite.Runner{Prog: prog, Nothing: nothing, Index: in.Index, Size: b.Size}
	flow := n.Port(lab.Src, "tx").Flow("10.0.0.2", lab.V4Prefixes(50).Host(3, 9).String())
	return measure.Turn{Name: c.name, Run: func(set *measure.Set) error {
		return n.Node(lab.Dut).Do(func() error {
			frame := lab.Edited(flow.UDP("0123456789abcdefgh"))
			var fast float64
			err := b.Retry(variant, func() (err error) {
				fast, err = e.Forwarded(in.Index, func() (float64, error) { return r.Once(frame) })
				return err
			})
			if err != nil {
				return err
			}
			set.Add(c.name, variant, "forwarded", "ns", fast)
			var slow float64
			err = b.Retry(variant, func() (err error) {
				slow, err = r.Loop(lab.Edited(frame, lab.TTL(1), lab.FixIPChecksum()), frame)
				return err
			})
			if err != nil {
				return err
			}
			set.Add(c.name, variant, "passed, ttl 1", "ns", slow)
			return nil
		})
	}}, nil
}
