// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var updatesSection = suite.Section{
	Name:   "updates",
	Title:  "Throughput while rules change",
	Budget: budget(90),
	About: "Packets per second that arrive, in nft's own language: without rules, with very many source rules (match last), and with as many while a rule that does not match is added to and taken from a chain of its own, " +
		"together 100 times a second, as programs that ban hosts do; then as many packets are offered as arrived without changes. Router and sink have one CPU, the generator the other; the daemon has to share them.",
	Run: runUpdates,
}

// changing marks the case in which rules change.
const changing = ", changing"

const changesPerSecond = 100

func runUpdates(b *suite.Bench) error {
	e := extents[b.Size.Name]
	var turns []measure.Turn
	took := map[string]float64{} // packets per second without changes, by variant
	for _, v := range []suite.Variant{compared[0], {Name: suite.ShuntXDP, Setup: suite.ShuntAt(graph.XDP)}, {Name: suite.ShuntTC, Setup: suite.ShuntAt(graph.TC)}} {
		for _, c := range []struct {
			name    string
			n       int
			changes bool
		}{{"no rules", 0, false}, {manyRules(e), e.many, false}, {manyRules(e) + changing, e.many, true}} {
			lanes, err := openLanes(b, []suite.Variant{v})
			if err != nil {
				return err
			}
			l := lanes[0]
			if c.n > 0 {
				if err := give(nft, withLive(source(c.n)), l); err != nil {
					return err
				}
			}
			stream := l.Forward("plain", false, prefixes)
			t := l.Turn(c.name, l.AtIngress(), stream)
			run := t.Run
			t.Run = func(set *measure.Set) error {
				if err := run(set); err != nil {
					return err
				}
				rounds := set.Row(c.name, v.Name, "rate").Rounds
				took[v.Name] = rounds[len(rounds)-1]
				return nil
			}
			if c.changes {
				l.Mixed = true
				t.Run = func(set *measure.Set) error {
					stream.Traffic.Rate = int(took[v.Name])
					return l.Turn(c.name, l.AtIngress(), stream).Run(set)
				}
				if t, err = underChanges(b, l, t); err != nil {
					return err
				}
			}
			turns = append(turns, t)
		}
	}
	return b.Turns("updates", e.rounds, turns)
}

func manyRules(e extent) string { return fmt.Sprintf("%d rules", e.many) }

// underChanges is the turn while rules change.
func underChanges(b *suite.Bench, l *suite.Lane, t measure.Turn) (measure.Turn, error) {
	c, err := newChanger(b, l.Node(lab.Dut))
	if err != nil {
		return t, err
	}
	run := t.Run
	t.Run = func(set *measure.Set) error {
		quit, done := make(chan struct{}), make(chan error, 1)
		start, made := time.Now(), 0
		go func() {
			tick := time.NewTicker(time.Second / changesPerSecond)
			defer tick.Stop()
			for {
				select {
				case <-quit:
					done <- nil
					return
				case <-tick.C:
				}
				do := c.add
				if made%2 == 1 {
					do = c.flush
				}
				if err := do(); err != nil {
					done <- fmt.Errorf("changing rules: %w", err)
					<-quit
					return
				}
				made++
			}
		}()
		err := run(set)
		close(quit)
		err = errors.Join(err, <-done)
		if err == nil && made%2 == 1 {
			err = c.flush()
		}
		b.Fact("changes reached, "+l.Variant, fmt.Sprintf("%.0f a second", float64(made)/time.Since(start).Seconds()))
		return errors.Join(err, ready(l))
	}
	return t, nil
}

// live is the chain whose rules come and go.
const live = "live"

// withLive puts a jump to it before the rules.
func withLive(rs table) table {
	rs.chains, rs.order = map[string][]rule{live: nil}, []string{live}
	rs.forward = append([]rule{{does: live}}, rs.forward...)
	return rs
}

// changer adds a rule to the chain live and takes it away, with one system call each.
type changer struct {
	conn  *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain
	rule  *nftables.Rule
}

func newChanger(b *suite.Bench, ns *lab.NS) (*changer, error) {
	conn, err := suite.Nftables(b, ns)
	if err != nil {
		return nil, err
	}
	c := &changer{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "bench"}}
	c.chain = &nftables.Chain{Name: live, Table: c.table}
	c.rule = suite.NftDrop(c.table, c.chain, suite.NftSource, victim.AsSlice())
	return c, nil
}

// add adds the rule that drops what comes from the victim.
func (c *changer) add() error { c.conn.AddRule(c.rule); return c.conn.Flush() }

// flush takes it away.
func (c *changer) flush() error { c.conn.FlushChain(c.chain); return c.conn.Flush() }
