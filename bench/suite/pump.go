// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pump sends as much as goes by TCP from one CPU to another, or to the same, and returns bytes per second.
func (b *Bench) Pump(l *SocketLane, flows, from, to int) (rate float64, err error) {
	var received atomic.Int64
	var ends []<-chan error
	var clients []int
	for i := range flows {
		client, server, err := l.TCPPair(5000 + i)
		if err != nil {
			return 0, err
		}
		clients = append(clients, client)
		ends = append(ends,
			l.Limit.Pinned(from, func() error { return send(client) }),
			l.Limit.Pinned(to, func() error { return receive(server, &received) }))
	}
	time.Sleep(2 * b.Size.Warm)
	start, before := time.Now(), received.Load()
	time.Sleep(2 * b.Size.Measure)
	rate = float64(received.Load()-before) / time.Since(start).Seconds()
	for _, fd := range clients {
		unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	for _, end := range ends {
		err = errors.Join(err, <-end)
	}
	if err == nil && rate == 0 {
		err = Spoiled("nothing arrived")
	}
	return rate, err
}

// send writes until the socket is shut down.
func send(fd int) error {
	defer unix.Close(fd)
	data := make([]byte, 128<<10)
	for {
		switch _, err := unix.SendmsgN(fd, data, nil, nil, unix.MSG_NOSIGNAL); {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return os.NewSyscallError("send", err)
		}
	}
}

// receive reads until the end of the stream.
func receive(fd int, received *atomic.Int64) error {
	defer unix.Close(fd)
	data := make([]byte, 128<<10)
	for {
		n, err := unix.Read(fd, data)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
			return nil
		case err != nil:
			return os.NewSyscallError("read", err)
		}
		received.Add(int64(max(n, 0)))
	}
}
