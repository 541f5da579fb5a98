// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// demo is the story with everything that it needs.
type demo struct {
	ctx    context.Context
	router *router
	shunt  *shunt
	screen *screen

	linux, tc, xdp, after         lab.Sample
	linuxRules, tcRules, xdpRules lab.Sample // with the firewall
	rulesFast                     bool       // the status said so of IPv4, at both hooks
}

// play tells the story in order; each step checks what it claims.
func (d *demo) play() error {
	started := time.Now()
	for _, step := range []func() error{
		d.introduce, d.linuxAlone, d.atTC, d.atXDP, d.explain, d.death, d.leave,
		d.gateway, d.accelerate, d.askRules, d.ban, d.containers, d.nodes, d.sum,
	} {
		if d.ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err := step(); err != nil {
			return err
		}
	}
	d.screen.say("%s", d.screen.paint("2", fmt.Sprintf("%.0f seconds", time.Since(started).Seconds())))
	return nil
}

func (d *demo) introduce() error {
	d.screen.title("A router in a network namespace")
	d.screen.say(`source ── 10.0.0.0/24 ── [in  router  out] ── 10.0.1.0/24 ── sink
%d networks behind the sink; 60-byte UDP packets to random ones of them; one CPU forwards.`, prefixes)
	routes, err := d.router.dut.Output("ip route")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(routes), "\n")
	d.screen.command("ip route", strings.Join(append(lines[:min(4, len(lines))], "…"), "\n"))
	return nil
}

func (d *demo) linuxAlone() (err error) {
	d.screen.title("Linux alone")
	if d.linux, err = d.router.measure(); err != nil {
		return err
	}
	d.screen.rate("Linux", d.linux, nil)
	d.screen.say("ns: CPU time per packet, the router's and the sink's receiving together; bars: packets per CPU second")
	return nil
}

func (d *demo) atTC() (err error) {
	d.screen.title("shunt at TC: for traffic from containers and virtual machines")
	if err := d.shunt.start(d.ctx, "tc"); err != nil {
		return err
	}
	d.screen.command("shunt run --hook tc &", "")
	if d.tc, err = d.router.measure(); err != nil {
		return err
	}
	d.screen.rate("shunt, TC", d.tc, &d.linux)
	return d.shunt.remove()
}

func (d *demo) atXDP() (err error) {
	d.screen.title("shunt at XDP: for traffic from the wire")
	if err := d.shunt.start(d.ctx, "xdp"); err != nil {
		return err
	}
	d.screen.command("shunt run --hook xdp &", "")
	if d.xdp, err = d.router.measure(); err != nil {
		return err
	}
	d.screen.rate("shunt, XDP", d.xdp, &d.linux)
	for _, args := range [][]string{{"status"}, {"show", "graph"}} {
		if err := d.show(args...); err != nil {
			return err
		}
	}
	return nil
}

// show runs one of shunt's commands and prints it as typed.
func (d *demo) show(args ...string) error {
	out, err := d.shunt.ask(args...)
	if err != nil {
		return err
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if strings.ContainsAny(a, " >") {
			words[i] = "'" + a + "'"
		}
	}
	d.screen.command("shunt "+strings.Join(words, " "), out)
	return nil
}

func (d *demo) explain() error {
	d.screen.title("Why? Asked of the loaded program itself")
	if err := d.show("explain", "in", "udp 10.0.0.2:1000 > 16.0.7.1:2000"); err != nil {
		return err
	}
	return d.show("explain", "in", "udp 10.0.0.2:1000 > 16.0.7.1:2000 ttl=1")
}

// pace is the rate of the counted runs: well below what Linux alone sustains, so that what is lost is not lost to load.
func (d *demo) pace() int { return int(min(d.linux.Rate()/4, 200e3)) }

func (d *demo) death() error {
	d.screen.title("kill -9 under traffic: every packet counted")
	control, err := d.router.count(d.pace(), func() error { time.Sleep(time.Second); return nil })
	if err != nil {
		return err
	}
	d.screen.say("undisturbed:  sent %d, received %d, lost %d", control.sent, control.received, control.lost())
	killed, err := d.router.count(d.pace(), func() error {
		if err := d.shunt.kill(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
		return d.shunt.start(d.ctx, "xdp")
	})
	if err != nil {
		return err
	}
	d.screen.say("killed, then started again:  sent %d, received %d, lost %s", killed.sent, killed.received,
		d.screen.paint("1;32", fmt.Sprint(killed.lost())))
	if killed.lost() > max(control.lost(), 0) {
		d.screen.say("more than in the undisturbed run: this machine was too busy to poll in time, or something is wrong")
	}
	return nil
}

func (d *demo) leave() error {
	d.screen.title("Gone without a trace")
	if err := d.shunt.remove(); err != nil {
		return err
	}
	d.screen.command("shunt stop --detach", "")
	links, err := d.router.dut.Output("ip -details link show")
	if err != nil {
		return err
	}
	if n := strings.Count(links, "prog/xdp"); n > 0 {
		return fmt.Errorf("%d programs are still attached after stop --detach", n)
	}
	left, err := os.ReadDir(filepath.Join(d.shunt.runtime, "bpf"))
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
		return fmt.Errorf("pins are left after stop --detach: %v (%w)", left, err)
	}
	d.screen.say("no program is attached, nothing is pinned")
	if d.after, err = d.router.measure(); err != nil {
		return err
	}
	d.screen.rate("Linux again", d.after, &d.linux)
	return nil
}

func (d *demo) sum() error {
	d.screen.title("Together")
	both := d.linux // before and after: what lies between them is this machine's noise
	both.Packets += d.after.Packets
	both.CPU += d.after.CPU
	both.Wall += d.after.Wall
	d.screen.rate("Linux", both, nil)
	d.screen.rate("shunt, TC", d.tc, &both)
	d.screen.rate("shunt, XDP", d.xdp, &both)
	d.screen.rate("Linux, rules", d.linuxRules, nil)
	d.screen.rate("TC, rules", d.tcRules, &d.linuxRules)
	d.screen.rate("XDP, rules", d.xdpRules, &d.linuxRules)
	if !d.rulesFast {
		d.screen.say("With the rules IPv4 was not fast throughout: the status above says which of them need Linux.")
	}
	d.screen.say("Linux: before and after together; they differed by %.0f %%.", 100*math.Abs(d.after.PerPacket()/d.linux.PerPacket()-1))
	d.screen.say("Ratios are of CPU time per packet. A virtual wire is not a network card: its cost is part of every figure.")
	if d.screen.busy {
		d.screen.say("This machine was busy with other things, so the rates (Mpps) are lower than what it can do.")
	}
	d.screen.say("On your own router: sudo ./bin/shunt run")
	return nil
}
