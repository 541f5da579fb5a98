// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const connectPort = 7000

// Connections makes one TCP connection after the other, with a byte each way, and returns how many in a second, and how many were reset.
func (b *Bench) Connections(l *SocketLane) (rate float64, resets int, err error) {
	from, _ := l.client()
	to, addr := l.server()
	listener, err := socket(to, unix.SOCK_STREAM)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(listener)
	if err := unix.Bind(listener, &unix.SockaddrInet4{Port: connectPort}); err != nil {
		return 0, 0, fmt.Errorf("binding to port %d: %w", connectPort, err)
	}
	if err := unix.Listen(listener, 16); err != nil {
		return 0, 0, fmt.Errorf("listening: %w", err)
	}
	server := Pinned(b.DutCPU, func() error { return answerEach(listener) })
	client := Pinned(b.GenCPU, func() error {
		once := func() error {
			fd, err := socket(from, unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err = call(fd, addr); errors.Is(err, unix.ECONNRESET) {
				resets++
				return nil
			}
			return err
		}
		start := time.Now()
		for time.Since(start) < b.Size.Warm {
			if err := once(); err != nil {
				return err
			}
		}
		start = time.Now()
		n := 0
		for ; time.Since(start) < 2*b.Size.Measure; n++ {
			if err := once(); err != nil {
				return err
			}
		}
		rate = float64(n) / time.Since(start).Seconds()
		return nil
	})
	err = <-client
	unix.Shutdown(listener, unix.SHUT_RDWR)
	return rate, resets, errors.Join(err, <-server)
}

// call connects, and sends and receives a byte.
func call(fd int, addr [4]byte) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 5000); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: connectPort, Addr: addr}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	if err := write(fd, []byte{1}); err != nil {
		return err
	}
	return readByte(fd)
}

// answerEach serves connections until the listener is shut down. It closes first, so that ports of clients are free at once.
func answerEach(listener int) error {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL):
			return nil
		case err != nil:
			return os.NewSyscallError("accept", err)
		}
		err = answer(fd)
		unix.Close(fd)
		if err != nil && !errors.Is(err, unix.EAGAIN) { // else its client was reset, and counts it
			return err
		}
	}
}

// answer returns a connection's byte. A client that was reset never sends any.
func answer(fd int) error {
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := readByte(fd); err != nil {
		return err
	}
	return write(fd, []byte{1})
}

func readByte(fd int) error {
	var data [1]byte
	for {
		n, err := unix.Read(fd, data[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return errors.New("the connection ended without an answer")
		default:
			return nil
		}
	}
}
