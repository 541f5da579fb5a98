// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/synth"
)

// The memory follows the number of routes, within what the machine can spare.
func TestLines4(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		routes, cpus int
		memory       uint64
		want         uint32
	}{
		{0, 2, gib, minLines4}, {2000, 2, gib, minLines4}, {20_000, 2, gib, 1 << 16}, {1 << 20, 2, 16 * gib, maxLines4},
		{1 << 22, 2, 16 * gib, maxLines4}, {1 << 20, 2, gib, 1 << 16}, {1 << 20, 64, 16 * gib, 1 << 16}, {1 << 20, 1, 1 << 20, minLines4},
	} {
		if got := lines4(c.routes, c.cpus, c.memory); got != c.want {
			t.Errorf("%d routes, %d CPUs, %d MiB: %d lines for each CPU, want %d", c.routes, c.cpus, c.memory>>20, got, c.want)
		}
	}
}

// Where there is no memory for what routes ask for, what can be had is taken, and the rest is asked for again a minute later, or when it is another size.
func TestLines4ThatCannotBeHad(t *testing.T) {
	var g growthOf4
	have, most, now := uint32(minLines4), uint32(1<<13), time.Now()
	var asked []uint32
	grow := func(want uint32) error {
		asked = nil
		return g.grow(have, want, now, func(lines uint32) error {
			if asked = append(asked, lines); lines > most {
				return unix.ENOMEM
			}
			have = lines
			return nil
		})
	}
	for _, step := range []struct {
		after time.Duration
		most  uint32 // of what there is from then on
		want  uint32
		asks  []uint32
		fails bool
	}{
		{0, 1 << 13, 1 << 19, []uint32{1 << 19, 1 << 16, 1 << 13}, true},
		{time.Second, 1 << 13, 1 << 19, nil, false},
		{time.Second, 1 << 13, 1 << 16, []uint32{1 << 16}, true},
		{growAgain, 1 << 16, 1 << 19, []uint32{1 << 19, 1 << 16}, true},
		{growAgain - 1, 1 << 19, 1 << 19, nil, false},
		{1, 1 << 19, 1 << 19, []uint32{1 << 19}, false},
	} {
		now, most = now.Add(step.after), step.most
		if err := grow(step.want); (err != nil) != step.fails || !slices.Equal(asked, step.asks) {
			t.Errorf("%+v: asked for %d, %v", step, asked, err)
		}
	}
	if have != 1<<19 {
		t.Errorf("in the end there are %d lines", have)
	}
}

// A round without a change keeps what is remembered; a change of tables ends it, and a larger table of routes gets a larger memory without
// a packet taking another way.
func TestLookupsAreKept(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.Default()})
		if err != nil {
			return err
		}
		defer d.Detach()
		net, g := handmade(n, graph.XDP)
		apply := func(plan *synth.Plan) (epoch uint64) {
			s, err := d.Snapshot(false)
			if err != nil {
				t.Fatal(err)
			}
			if failures, err := d.Apply(plan, &s); err != nil || len(failures) > 0 {
				t.Fatal(failures, err)
			}
			return d.epoch
		}
		plan := synth.Build(net, g)
		first := apply(plan)
		if again := apply(plan); again != first {
			t.Errorf("the same plan again ended what is remembered: epoch %d, then %d", first, again)
		}
		net.Addrs = append(net.Addrs, model.Addr{Index: net.Links[0].Index, Prefix: netip.MustParsePrefix("192.0.2.1/32")})
		plan = synth.Next(net, g, plan)
		second := apply(plan)
		if second == first {
			t.Error("an address more did not end what is remembered")
		}
		net.Routes.Count4 = 10_000
		plan = synth.Next(net, g, plan)
		if third := apply(plan); third == second || d.objects.lines4 <= minLines4 {
			t.Errorf("with 10000 routes there are %d lines, epoch %d after %d", d.objects.lines4, third, second)
		}
		for key, a := range d.ports { // the ports of the plan are the same as before, and their programs all the same others
			if a.key.config.Lines4 != d.objects.lines4 {
				t.Errorf("port %d runs a program for %d lines of %d", key.index, a.key.config.Lines4, d.objects.lines4)
			}
		}
		forward(t, n, d, graph.XDP)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
