// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// source is one file descriptor that tells of changes.
type source struct {
	name  string
	fd    int
	parts Parts                                  // what it reports, and so what is dirty when it lost events
	event func(r *Reader, h header, data []byte) // of netlink sockets; nil for uevents
	drain func(r *Reader) error                  // of others
	full  bool                                   // events were lost since it was last empty, and more may be: the kernel tells it once
}

// subscribe opens an event socket. It is closed with the Reader.
func (r *Reader) subscribe(name string, proto int, event func(*Reader, header, []byte), parts Parts, groups ...int) error {
	if r.live == nil {
		return nil // a replay has no events
	}
	fd, err := newEventSocket(proto, r.opts.ReceiveBuffer, groups...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.sources = append(r.sources, source{name: name, fd: fd, parts: parts, event: event})
	return nil
}

func (r *Reader) subscribed(name string) bool {
	for i := range r.sources {
		if r.sources[i].name == name {
			return true
		}
	}
	return false
}

// Wait blocks until a part has to be read again, Wake is called or the timeout passed, and returns the parts. When it
// returns, all event sockets have been drained up to a moment after the first event. Changes of routes that need no care
// do not end it.
func (r *Reader) Wait(timeout time.Duration) (Parts, error) {
	if err := r.onThread(); err != nil {
		return 0, err
	}
	deadline := time.Now().Add(timeout)
	fds := make([]unix.PollFd, len(r.sources))
	for i := range r.sources {
		fds[i] = unix.PollFd{Fd: int32(r.sources[i].fd), Events: unix.POLLIN}
	}
	r.woken = false
	for {
		left := time.Until(deadline)
		n, err := pollFD(fds, left)
		if err != nil {
			return 0, fmt.Errorf("waiting for events: %w", err)
		}
		if n > 0 {
			if err := r.settle(fds); err != nil {
				return 0, err
			}
		}
		if r.dirty != 0 || r.woken || left <= 0 {
			p := r.dirty
			r.dirty = 0
			return p, nil
		}
	}
}

// settle drains what is readable, and goes on while there is more, not longer than the bound.
func (r *Reader) settle(fds []unix.PollFd) error {
	end := time.Now().Add(r.opts.Settle)
	for {
		for i := range fds {
			if fds[i].Revents == 0 {
				continue
			}
			if err := r.drain(&r.sources[i], end); err != nil {
				return fmt.Errorf("reading events of %s: %w", r.sources[i].name, err)
			}
		}
		if !time.Now().Before(end) {
			return nil
		}
		n, err := pollFD(fds, 0)
		if err != nil || n == 0 {
			return err
		}
	}
}

// fullDrain bounds how long a source that lost events is read without a pause.
const fullDrain = time.Second

// drain reads one source until it is empty or the time is over. One that lost events is emptied first: what waits in it is from before the loss, and after all has been read
// anew it would undo what nobody tells again.
func (r *Reader) drain(s *source, end time.Time) error {
	if s.drain != nil {
		return s.drain(r)
	}
	if s.full {
		end = end.Add(fullDrain)
	}
	for i := 1; ; i++ {
		n, err := receive(s.fd, r.live.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			if s.full && s.parts&Netfilter != 0 {
				r.nftLog.lost(false)
			}
			if s.full && s.parts&Routes != 0 && r.routes.valid { // it took so long that routes were read meanwhile
				r.routes.valid = false
				r.mark(s.parts | Lost)
			}
			s.full = false
			return nil
		case errors.Is(err, unix.ENOBUFS):
			if !s.full {
				s.full, end = true, end.Add(fullDrain)
			}
			r.lost(s.parts)
			continue
		case err != nil:
			return err
		}
		if s.event == nil { // uevents are no netlink messages
			r.events.Add(1)
			r.moduleEvent(r.live.buf[:n])
			continue
		}
		err = messages(r.live.buf[:n], func(h header, data []byte) error {
			r.events.Add(1)
			s.event(r, h, data)
			return nil
		})
		if err != nil {
			r.lost(s.parts)
		}
		if i%64 == 0 && !time.Now().Before(end) {
			return nil
		}
	}
}

// lost marks everything that a source reports as to be read anew.
func (r *Reader) lost(p Parts) {
	r.resyncs.Add(1)
	r.mark(p | Lost)
	if p&Routes != 0 {
		r.routes.valid = false
	}
	if p&Netfilter != 0 {
		r.nft.valid = false
		r.nftLog.lost(true)
	}
}

// Gone notes that the device of a number is another one than was read, of which no event told: those that were lost, or are yet to come.
func (r *Reader) Gone(index int) {
	r.lives.end(index)
	r.markLink(index)
}

// mark makes whole parts dirty.
func (r *Reader) mark(p Parts) {
	r.dirty |= p
	if p&Links != 0 {
		r.links = nil
	}
	if p&Addrs != 0 {
		r.addrs = nil
	}
}

// markLink and markAddr make one device's part dirty. A nil map stands for all of them.
func (r *Reader) markLink(index int) {
	r.dirty |= Links
	if r.links != nil {
		r.links[index] = true
	}
}

func (r *Reader) markAddr(index int) {
	r.dirty |= Addrs
	if r.addrs != nil {
		r.addrs[index] = true
	}
}

func (r *Reader) drainWake() error {
	var b [8]byte
	if _, err := unix.Read(r.wake, b[:]); err != nil && err != unix.EAGAIN {
		return err
	}
	r.woken = true
	return nil
}
