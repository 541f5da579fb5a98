// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetSocket opens a raw packet socket bound to the port: one that receives
// every protocol, or one that only sends.
func (p *Port) packetSocket(capture bool) (int, error) {
	fd := -1
	err := p.NS.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("opening a packet socket (is CAP_NET_RAW there?): %w", err)
	}
	var protocol uint16 // none
	if capture {
		protocol = binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // network byte order
		if err := prepareCapture(fd, p.Index); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("preparing capture at %s: %w", p, err)
		}
	} else if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20); err != nil {
		// Frames that wait for a neighbour in the receiver are still the sender's; its buffer must hold more than that queue.
		unix.Close(fd)
		return -1, fmt.Errorf("enlarging the send buffer at %s: %w", p, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: p.Index}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding a packet socket to %s: %w", p, err)
	}
	return fd, nil
}

// prepareCapture sets what a capturing socket needs before it is bound, so that
// the first frame is already seen whole.
func prepareCapture(fd, ifindex int) error {
	for _, o := range []struct {
		level, name, value int
		what               string
	}{
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1, "asking for VLAN tags"},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1, "ignoring what is sent"},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1, "asking for time stamps"},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20, "enlarging the buffer"},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	// Membership rather than IFF_PROMISC: the kernel undoes it when the socket ends.
	promisc := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promisc); err != nil {
		return fmt.Errorf("becoming promiscuous: %w", err)
	}
	return nil
}

// mmsghdr is struct mmsghdr of <sys/socket.h>.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// sendWithin is how long a device may refuse to take any frame at all.
const sendWithin = 2 * time.Second

// sendAll sends each frame as one message of sendmmsg(2), in order, waiting where
// the socket's buffer or the device's queue is full.
func sendAll(fd int, frames [][]byte) error {
	iovs := make([]unix.Iovec, len(frames))
	msgs := make([]mmsghdr, len(frames))
	for i, f := range frames {
		if len(f) == 0 {
			return fmt.Errorf("frame %d is empty", i)
		}
		iovs[i].Base = &f[0]
		iovs[i].SetLen(len(f))
		msgs[i].hdr.Iov = &iovs[i]
		msgs[i].hdr.SetIovlen(1)
	}
	for sent, since := 0, time.Now(); sent < len(msgs); {
		batch := msgs[sent:min(sent+256, len(msgs))]
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&batch[0])), uintptr(len(batch)), 0, 0, 0)
		switch errno {
		case 0:
			sent, since = sent+int(n), time.Now()
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			// ENOBUFS is also what a veth says to a frame that is longer than its peer takes, and will say for ever.
			if time.Since(since) > sendWithin {
				return fmt.Errorf("sending frame %d (%s): not taken in %v: is it longer than the far end's MTU allows? %w", sent, Describe(frames[sent]), sendWithin, errno)
			}
			time.Sleep(100 * time.Microsecond) // a socket is writable while its device refuses
			if err := waitWritable(fd); err != nil {
				return err
			}
		default:
			return fmt.Errorf("sending frame %d (%s): %w", sent, Describe(frames[sent]), errno)
		}
	}
	return nil
}

func waitWritable(fd int) error {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 1000)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("waiting to send: %w", err)
	case n == 0:
		return errors.New("the interface takes no more frames: is it up?")
	}
	return nil
}
