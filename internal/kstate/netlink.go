// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The transport is written here and not taken from a library for two reasons. Both libraries in use elsewhere hand their
// sockets to Go's network poller, which then wakes for each of a hundred thousand route events a second that nobody waits
// for there; and both allocate 64 KiB for each receive, which at a million routes and at a budget of 0.3 ms is felt.

// errInterrupted says that the kernel's tables changed during a dump, which may therefore be inconsistent.
var errInterrupted = errors.New("dump interrupted by a change")

// nlHeader is the size of struct nlmsghdr.
const nlHeader = unix.SizeofNlMsghdr

func align4(n int) int { return (n + 3) &^ 3 }

// reqSocket is a socket for questions.
type reqSocket struct {
	fd  int
	seq uint32
}

func newReqSocket(proto int) (*reqSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket %d: %w", proto, err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		// A kernel that does not answer must not hang the control loop for ever.
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err == nil {
		// Strict checking makes the kernel honour the filters of a dump (one ifindex); all supported kernels have it.
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("setting up netlink socket %d: %w", proto, err)
	}
	return &reqSocket{fd: fd}, nil
}

// do sends q and calls each for every message of the answer, which lies in buf.
func (s *reqSocket) do(q request, buf []byte, each func(typ uint16, data []byte) error) error {
	s.seq++
	msg := make([]byte, nlHeader, nlHeader+len(q.body))
	flags := q.flags | unix.NLM_F_REQUEST
	if q.dump {
		flags |= unix.NLM_F_DUMP
	}
	binary.NativeEndian.PutUint32(msg, uint32(nlHeader+len(q.body)))
	binary.NativeEndian.PutUint16(msg[4:], q.typ)
	binary.NativeEndian.PutUint16(msg[6:], flags)
	binary.NativeEndian.PutUint32(msg[8:], s.seq)
	if err := retry(func() error {
		return unix.Sendto(s.fd, append(msg, q.body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}); err != nil {
		return err
	}
	var failed error // of each; the rest of the answer is drained all the same
	interrupted := false
	for {
		n, err := receive(s.fd, buf)
		if err != nil {
			return err
		}
		done := false
		err = messages(buf[:n], func(h header, data []byte) error {
			if h.seq != s.seq || done {
				return nil // the rest of an answer that was given up
			}
			interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case h.typ == unix.NLMSG_ERROR, h.typ == unix.NLMSG_DONE && len(data) >= 4:
				done = true
				if len(data) < 4 {
					return unix.EBADMSG
				}
				if code := int32(binary.NativeEndian.Uint32(data)); code != 0 {
					return unix.Errno(-code)
				}
				return nil
			case h.typ == unix.NLMSG_DONE:
				done = true
				return nil
			case h.typ == unix.NLMSG_NOOP:
				return nil
			}
			// Some dumps (netdev) forget to set NLM_F_MULTI; every dump ends with NLMSG_DONE.
			done = !q.dump && h.flags&unix.NLM_F_MULTI == 0
			if failed == nil {
				failed = each(h.typ, data)
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case done && failed != nil:
			return failed
		case done && interrupted:
			return errInterrupted
		case done:
			return nil
		}
	}
}

// header is struct nlmsghdr without its length and port.
type header struct {
	typ, flags uint16
	seq        uint32
}

// messages calls each for every message in b.
func messages(b []byte, each func(h header, data []byte) error) error {
	for len(b) >= nlHeader {
		n := int(binary.NativeEndian.Uint32(b))
		if n < nlHeader || n > len(b) {
			return fmt.Errorf("netlink message of %d bytes in %d", n, len(b))
		}
		h := header{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:])}
		if err := each(h, b[nlHeader:n]); err != nil {
			return err
		}
		b = b[min(align4(n), len(b)):]
	}
	return nil
}

// receive reads one datagram. MSG_TRUNC makes the kernel tell the real size, so that a short buffer cannot go unnoticed.
func receive(fd int, buf []byte) (n int, err error) {
	err = retry(func() error {
		n, _, err = unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
		return err
	})
	if err == nil && n > len(buf) {
		return 0, fmt.Errorf("netlink datagram of %d bytes exceeds the buffer", n)
	}
	return n, err
}

// retry repeats what a signal of the Go scheduler interrupted.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// newEventSocket opens a non-blocking socket that receives the groups.
func newEventSocket(proto, buffer int, groups ...int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, fmt.Errorf("opening netlink socket %d: %w", proto, err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		// Without CAP_NET_ADMIN in the initial namespace the limit of rmem_max applies.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	for _, g := range groups {
		if err == nil {
			if err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
				err = fmt.Errorf("group %d: %w", g, err)
			}
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("subscribing on netlink socket %d: %w", proto, err)
	}
	return fd, nil
}

// pollFD waits until one of fds is readable or the timeout passed.
func pollFD(fds []unix.PollFd, timeout time.Duration) (int, error) {
	ts := unix.NsecToTimespec(max(timeout, 0).Nanoseconds())
	n, err := unix.Ppoll(fds, &ts, nil)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}
