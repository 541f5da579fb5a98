// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// Prober sends single packets into a router and says how each was treated: by the counters of the program that met it, which are read
// straight from its map, not through the daemon, whose thread may be busy.
type Prober struct {
	inject *lab.Injector
	stats  *ebpf.Map
	keys   []uint32
	values []bpfobj.Count
	last   treated
}

// treated is how many packets the program saw, and how many of them it forwarded and dropped.
type treated struct{ all, fast, dropped uint64 }

// Fate is what the fast path did with one packet.
type Fate string

// The fates. A packet that met no program is left to Linux, too.
const (
	Forwarded Fate = "forwarded"
	Dropped   Fate = "dropped"
	Left      Fate = "left to Linux"
)

func NewProber(b *Bench, l *Lane) (*Prober, error) {
	p := &Prober{keys: make([]uint32, reason.Count)}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	p.values = make([]bpfobj.Count, int(reason.Count)*cpus)
	if p.inject, err = l.TX().Injector(true); err != nil {
		return nil, err
	}
	b.Later(p.inject.Close)
	if p.stats, err = l.Engine.stats(l.In().Index, l.Hook); err != nil {
		return nil, err
	}
	b.Later(p.stats.Close)
	p.last, err = p.read()
	return p, err
}

// stats finds the counters of the program at a port.
func (e *Engine) stats(index int, hook graph.Hook) (m *ebpf.Map, err error) {
	doErr := e.Do(context.Background(), func(d *datapath.Datapath) error {
		d.Programs(func(i int, h graph.Hook, prog *ebpf.Program) {
			if i == index && h == hook && prog != nil {
				m, err = mapNamed(prog, "stats")
			}
		})
		return nil
	})
	if err = errors.Join(doErr, err); err == nil && m == nil {
		err = fmt.Errorf("no program with counters at interface %d, hook %s", index, hook)
	}
	return m, err
}

func mapNamed(prog *ebpf.Program, name string) (*ebpf.Map, error) {
	info, err := prog.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if mi, err := m.Info(); err == nil && mi.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, nil
}

// Programs identifies what is loaded in the namespace: it changes exactly when a program is loaded or taken away.
func (e *Engine) Programs() (ids IDSet, err error) {
	ids = IDSet{}
	err = e.Do(context.Background(), func(d *datapath.Datapath) (err error) {
		d.Programs(func(_ int, _ graph.Hook, prog *ebpf.Program) {
			if prog == nil {
				return
			}
			info, infoErr := prog.Info()
			if infoErr != nil {
				err = infoErr
				return
			}
			id, _ := info.ID()
			ids[id] = true
		})
		return err
	})
	return ids, err
}

func (p *Prober) read() (t treated, err error) {
	var cursor ebpf.MapBatchCursor
	n, err := p.stats.BatchLookup(&cursor, p.keys, p.values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return t, fmt.Errorf("reading the counters: %w", err)
	}
	cpus := len(p.values) / len(p.keys)
	for i := range n {
		for _, c := range p.values[i*cpus : (i+1)*cpus] {
			t.all += c.Packets
			switch code := reason.Code(p.keys[i]); {
			case code == reason.Fast:
				t.fast += c.Packets
			case Decided(code):
				t.dropped += c.Packets
			}
		}
	}
	return t, nil
}

// Sync forgets packets that were counted late, so that none is taken for one that is sent from now on.
func (p *Prober) Sync() (err error) {
	p.last, err = p.read()
	return err
}

// fast sends one packet and says whether shunt forwarded it.
func (p *Prober) fast(frame []byte) (bool, error) {
	fate, err := p.Send(frame)
	return fate == Forwarded, err
}

// Send sends one packet and says what became of it. One that no program counts within a millisecond met none.
func (p *Prober) Send(frame []byte) (Fate, error) {
	if err := p.inject.Send(frame); err != nil {
		return Left, err
	}
	for end := time.Now().Add(time.Millisecond); ; {
		now, err := p.read()
		if err != nil {
			return Left, err
		}
		if last := p.last; now.all != last.all {
			p.last = now
			switch {
			case now.fast != last.fast:
				return Forwarded, nil
			case now.dropped != last.dropped:
				return Dropped, nil
			}
			return Left, nil
		}
		if time.Now().After(end) {
			return Left, nil
		}
	}
}

// Until sends packets until one is treated as wanted; it returns when that one had been treated.
func (p *Prober) Until(frame []byte, fast bool, limit time.Duration) (time.Time, error) {
	for end := time.Now().Add(limit); ; {
		got, err := p.fast(frame)
		now := time.Now()
		if err != nil || got == fast {
			return now, err
		}
		if now.After(end) {
			return now, fmt.Errorf("packets were not treated as they should (fast: %v) for %s", fast, limit)
		}
	}
}

type IDSet map[ebpf.ProgramID]bool

// Equal says whether two sets hold the same programs.
func (s IDSet) Equal(other IDSet) bool { return maps.Equal(s, other) }
