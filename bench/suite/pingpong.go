// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/measure"
)

const sessions = 128

// AddLatency keeps what a round found: a distribution's figures in microseconds and the round trips per second.
func AddLatency(set *measure.Set, c, variant string, s measure.Stat, rate float64) {
	set.Add(c, variant, "mean", "µs", s.Mean)
	set.Add(c, variant, "p99", "µs", s.P99)
	set.Add(c, variant, "sd", "µs", s.SD)
	set.Add(c, variant, "rate", "round trips/s", rate)
}

// PingPongTurn measures round trips between sockets as a turn.
func (b *Bench) PingPongTurn(c string, l *SocketLane, kind string) measure.Turn {
	return measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
		rtts, err := b.pingPong(l, kind)
		if err != nil {
			return fmt.Errorf("%s round trips: %w", kind, err)
		}
		AddLatency(set, c, l.Variant, measure.Of(rtts), float64(len(rtts))/b.Size.Measure.Seconds())
		return nil
	}}
}

// pingPong returns the round trip times, in microseconds, of the measured interval.
func (b *Bench) pingPong(l *SocketLane, kind string) (rtts []float64, err error) {
	var clients, servers []int
	defer func() {
		for _, fd := range append(clients, servers...) {
			unix.Close(fd)
		}
	}()
	for i := range sessions {
		pair := l.TCPPair
		if kind == "udp" {
			pair = l.UDPPair
		}
		c, s, err := pair(6000 + i)
		if err != nil {
			return nil, err
		}
		clients, servers = append(clients, c), append(servers, s)
	}
	var stop atomic.Bool
	server := Pinned(b.DutCPU, func() error {
		return poll(servers, &stop, func(_, fd int, data []byte) error { return write(fd, data) })
	})
	client := Pinned(b.GenCPU, func() error {
		sent := make([]time.Time, sessions)
		for i, fd := range clients {
			sent[i] = time.Now()
			if err := write(fd, []byte{1}); err != nil {
				return err
			}
		}
		begin := time.Now().Add(b.Size.Warm)
		end := begin.Add(b.Size.Measure)
		return poll(clients, &stop, func(i, fd int, data []byte) error {
			now := time.Now()
			if now.After(begin) {
				rtts = append(rtts, float64(now.Sub(sent[i]).Nanoseconds())/1e3)
			}
			if now.After(end) {
				stop.Store(true)
				return nil
			}
			sent[i] = now
			return write(fd, data)
		})
	})
	err = <-client
	stop.Store(true)
	if err = errors.Join(err, <-server); err == nil && len(rtts) == 0 {
		err = errors.New("no answer came back")
	}
	return rtts, err
}

// poll calls got for each message that arrives, until stopped or silent for a second.
func poll(fds []int, stop *atomic.Bool, got func(i, fd int, data []byte) error) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	defer unix.Close(ep)
	for i, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	events := make([]unix.EpollEvent, len(fds))
	data := make([]byte, 64)
	for quiet := 0; !stop.Load() && quiet < 50; {
		n, err := unix.EpollWait(ep, events, 20)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		quiet++
		for _, e := range events[:max(n, 0)] {
			quiet = 0
			size, err := unix.Read(fds[e.Fd], data)
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return os.NewSyscallError("read", err)
			}
			if size > 0 {
				if err := got(int(e.Fd), fds[e.Fd], data[:size]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func write(fd int, data []byte) error {
	if _, err := unix.SendmsgN(fd, data, nil, nil, unix.MSG_NOSIGNAL); err != nil && !errors.Is(err, unix.EAGAIN) {
		return os.NewSyscallError("send", err)
	}
	return nil
}
