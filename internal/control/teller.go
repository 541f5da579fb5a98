// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"runtime"
	"time"
)

const (
	tellAgain = 50 * time.Millisecond  // while a tool is at work
	tellLast  = 500 * time.Millisecond // how long that may hold up the end
)

// take collects what the fast path counted for rules. It is called from the loop.
func (e *Engine) take() error {
	counted, err := e.data.TakeRuleCounts()
	if err != nil {
		return err
	}
	e.tally.Take(counted)
	return nil
}

// collect does so where nobody waits for it: without it counters lag behind, and packets are none the worse.
func (e *Engine) collect() {
	if err := e.take(); err != nil {
		e.log.Warn("counters of rules are not up to date", "err", err)
	}
}

// teller gives Linux what the fast path counted, on a thread of its own: reading a table of many rules takes milliseconds.
type teller struct {
	*Engine
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
}

func newTeller(e *Engine) *teller {
	x := &teller{Engine: e, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go x.run()
	return x
}

// tick has what was taken given to Linux. It does not wait for it.
func (x *teller) tick() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *teller) stop() {
	close(x.quit)
	<-x.done
}

func (x *teller) run() {
	defer close(x.done)
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, whatever namespace it is in
	if x.opts.NetnsPath != "" {
		if err := enterFile(int(x.ns.Fd()), x.opts.NetnsPath); err != nil {
			x.log.Error("legacy tables show Linux's part of their counters alone", "err", err)
			return
		}
	}
	said := ""
	for {
		select {
		case <-x.quit:
			return
		case <-x.wake:
		}
		left, err := x.tally.Settle()
		if err == nil && left {
			time.AfterFunc(tellAgain, x.tick)
		}
		x.tally.Prune()
		if err := errors.Join(err, x.save()); err != nil && err.Error() != said {
			x.log.Warn("counters of rules are not up to date", "err", err)
			said = err.Error()
		}
	}
}

// save writes down what Linux cannot be told.
func (e *Engine) save() error {
	if e.opts.Counts == "" || e.cookie == 0 {
		return nil
	}
	return e.tally.Save(e.opts.Counts, e.cookie)
}

// last gives Linux what is left at the end, when nothing is counted any more. It is called from a thread in the namespace.
func (e *Engine) last() {
	e.data.Pause()
	err := e.take()
	for end := time.Now().Add(tellLast); err == nil; time.Sleep(tellLast / 50) {
		var left bool
		if left, err = e.tally.Settle(); !left || time.Now().After(end) {
			break
		}
	}
	if err = errors.Join(err, e.save()); err != nil {
		e.log.Warn("counters of rules lack what the fast path counted last", "err", err)
	}
}
