// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// dialect is a way to give Linux rules.
type dialect string

const (
	legacy   dialect = "iptables-legacy"
	compat   dialect = "iptables-nft"
	nft      dialect = "nft"
	byIPSet  dialect = "one ipset" // in a rule of iptables-legacy
	byNftSet dialect = "one nft set"
	byNftMap dialect = "one nft map"
)

// replace puts the rules in the place of those that are there, by the commands that a user has.
func (d dialect) replace(ns *lab.NS, rs table) error {
	switch d {
	case legacy, compat, byIPSet:
		command := "iptables-legacy-restore"
		if d == compat {
			command = "iptables-nft-restore"
		}
		if len(rs.sets) > 0 {
			if err := ns.Feed(rs.restore(), "ipset -exist restore"); err != nil {
				return err
			}
		}
		return ns.Feed(rs.saved(), "%s", command)
	}
	// One transaction, as `nft -f` of a file that begins with flush.
	return ns.Feed("table ip bench\ndelete table ip bench\n"+rs.native(), "nft -f -")
}

// clear takes sets away that no rule uses any more.
func (d dialect) clear(ns *lab.NS) error {
	if d != byIPSet {
		return nil
	}
	if err := legacy.replace(ns, table{}); err != nil {
		return err
	}
	return ns.Exec("ipset destroy")
}

// give gives the routers of lanes their rules and waits until shunt has made of them what it will.
func give(d dialect, rs table, lanes ...*suite.Lane) error {
	for _, l := range lanes {
		if err := d.replace(l.Node(lab.Dut), rs); err != nil {
			return fmt.Errorf("giving %s its rules (%s): %w", l.Variant, d, err)
		}
	}
	quiet := settled
	if rs.size() > 1000 {
		quiet = 5 * time.Second
	}
	_, err := lastChange(quiet, 15*time.Second, lanes...)
	return err
}

// settled is how long nothing may change before lanes count as ready: a round over very many rules takes a while without showing anything.
const settled = 600 * time.Millisecond

// ready waits until shunt has taken in what changed and has loaded what it wants to load.
func ready(lanes ...*suite.Lane) error {
	_, err := lastChange(settled, 10*time.Second, lanes...)
	return err
}

// standing is what shows that a lane's shunt has taken in rules: what it has read, what it looks packets up in, a program.
type standing struct {
	read     *ruleset.Ruleset
	images   [synth.Ways * image.Stages]*image.Image
	programs suite.IDSet
}

func standingOf(l *suite.Lane) (s standing, err error) {
	if l.Engine == nil {
		return s, nil
	}
	s.programs, err = l.Engine.Programs()
	now := l.Engine.State()
	s.read, s.images = now.Network.Filter, now.Plan.Rules.Images
	return s, err
}

// lastChange waits until nothing has changed in any lane's shunt for a while and returns when something last did.
func lastChange(quiet, limit time.Duration, lanes ...*suite.Lane) (last time.Time, err error) {
	if !slices.ContainsFunc(lanes, func(l *suite.Lane) bool { return l.Engine != nil }) {
		return time.Now(), nil
	}
	begin := time.Now()
	last = begin
	before := make([]standing, len(lanes))
	for first := true; time.Since(last) < quiet && time.Since(begin) < limit; first = false {
		for i, l := range lanes {
			now, err := standingOf(l)
			if err != nil {
				return last, err
			}
			if !first && (now.read != before[i].read || now.images != before[i].images || !now.programs.Equal(before[i].programs)) {
				last = time.Now()
			}
			before[i] = now
		}
		time.Sleep(5 * time.Millisecond)
	}
	return last, nil
}
