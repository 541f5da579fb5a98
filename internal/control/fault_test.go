// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// TestBeatFails: a beat that fails is no end of the engine. Nothing is fast meanwhile, the status says why, and it is tried again.
func TestBeatFails(t *testing.T) {
	r := newRig(t, graph.TC)
	r.stop()
	var broken atomic.Bool
	var tries atomic.Int32
	r.tune = func(o *Options) {
		o.beat = func(d *datapath.Datapath) (bool, error) {
			if broken.Load() {
				tries.Add(1)
				return false, unix.ENOMEM
			}
			return d.Beat()
		}
	}
	r.start(t.TempDir() + "/bpf")
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("a router", dst, reason.Fast, true)
	broken.Store(true)
	for end := time.Now().Add(patience); tries.Load() < 8 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if n := tries.Load(); n < 8 {
		t.Fatalf("a beat that fails is tried %d times", n)
	}
	before := tries.Load()
	time.Sleep(500 * time.Millisecond)
	if n := tries.Load() - before; n > 3 {
		t.Errorf("%d times in half a second: the pause does not grow", n)
	}
	if code, arrived := r.send(dst); code == reason.Fast || !arrived {
		t.Errorf("without a beat a packet left by %s and arrived: %v", code, arrived)
	}
	broken.Store(false)
	r.leaves("with beats again", dst, reason.Fast, true)
	if text := r.engine.Failing(); text != "" {
		t.Errorf("it still says %s", text)
	}
}

// TestFaultOfTheLoop: a panic of the loop, or of work for it, is an error of Run, with empty slots behind it; the next engine goes on from there.
func TestFaultOfTheLoop(t *testing.T) {
	r := newRig(t, graph.XDP)
	r.stop()
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	var fault atomic.Bool
	r.tune = func(o *Options) {
		o.Round = func(*State, error) {
			if fault.Load() {
				panic("made for this test")
			}
		}
	}
	pins := t.TempDir() + "/bpf"
	r.start(pins)
	r.leaves("a router", dst, reason.Fast, true)
	fault.Store(true)
	select {
	case <-r.engine.ended:
	case <-time.After(patience):
		t.Fatal("the engine goes on")
	}
	for end := time.Now().Add(patience); r.engine.Failing() == "" && time.Now().Before(end); time.Sleep(time.Millisecond) { // said last of all
	}
	if text := r.engine.Failing(); text != "a fault of shunt: made for this test" {
		t.Errorf("it says %q", text)
	}
	if err := r.engine.Do(context.Background(), func(*datapath.Datapath) error { return nil }); !errors.Is(err, errStopped) {
		t.Errorf("a call gets %v", err)
	}
	if err := r.wire.Send(r.net.Port(lab.Src, "tx").Flow("10.0.0.2", dst).UDP("through Linux")); err != nil || !r.arrives("through Linux", patience) {
		t.Errorf("a packet does not pass through Linux (%v)", err)
	}
	r.tune = nil
	r.start(pins)
	r.leaves("the next engine", dst, reason.Fast, true)
}

// TestFaultOfACall: a question that panics is answered with that, and the engine goes on.
func TestFaultOfACall(t *testing.T) {
	r := newRig(t, graph.TC)
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("a router", dst, reason.Fast, true)
	err := r.engine.Do(context.Background(), func(*datapath.Datapath) error { var none *State; _ = none.Plan; return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "a fault of shunt: runtime error: invalid memory address") {
		t.Errorf("the answer is %v", err)
	}
	r.leaves("after it", dst, reason.Fast, true)
}
