// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Frame is a captured frame.
type Frame struct {
	Port *Port
	Data []byte // from the Ethernet header on, VLAN tags in their place
	Time time.Time
	// PartialChecksum says that the sender left the transport checksum to the
	// device (CHECKSUM_PARTIAL): the field holds the pseudo header's sum only.
	PartialChecksum bool
}

// String is the frame in one line, with the port it arrived at.
func (f Frame) String() string { return f.Port.String() + ": " + Describe(f.Data) }

// Capture records the frames that arrive at some ports. Frames that the ports'
// own namespaces send are not recorded.
type Capture struct {
	ports []*Port
	fds   []int
	stop  *os.File // closing it ends the reader
	done  chan struct{}

	mu     sync.Mutex
	frames []Frame
	err    error
	more   chan struct{} // closed, and replaced, when frames grows
}

// NewCapture starts to capture at all given ports. When it returns, every frame
// that arrives from then on is recorded.
func NewCapture(ports ...*Port) (*Capture, error) {
	wake, stop, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a capture: %w", err)
	}
	c := &Capture{ports: ports, stop: stop, done: make(chan struct{}), more: make(chan struct{})}
	for _, p := range ports {
		fd, err := p.packetSocket(true)
		if err != nil {
			c.closeSockets()
			return nil, errors.Join(err, wake.Close(), stop.Close())
		}
		c.fds = append(c.fds, fd)
	}
	go c.read(wake)
	return c, nil
}

// Capture starts to capture at this port alone.
func (p *Port) Capture() (*Capture, error) { return NewCapture(p) }

// Wait returns what has been captured once there are n frames or more, or once
// nothing has arrived for the time quiet, counted from the call at the earliest.
// With n ≤ 0 only quiet ends it. Frames are in order of arrival, by time stamp
// across ports; they stay recorded for the next call.
func (c *Capture) Wait(n int, quiet time.Duration) ([]Frame, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		more, enough := c.progress(n)
		if enough {
			return c.snapshot()
		}
		select {
		case <-more:
			timer.Reset(quiet)
		case <-timer.C:
			return c.snapshot()
		}
	}
}

// Take is [Capture.Wait] that also forgets the frames it returns.
func (c *Capture) Take(n int, quiet time.Duration) ([]Frame, error) {
	frames, err := c.Wait(n, quiet)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = slices.Clone(c.frames[len(frames):])
	return frames, err
}

// progress returns a channel that is closed at the next arrival, and whether
// there are n frames, if n is positive, or nothing more to wait for.
func (c *Capture) progress(n int) (more <-chan struct{}, enough bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.more, c.err != nil || (n > 0 && len(c.frames) >= n)
}

func (c *Capture) snapshot() ([]Frame, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames := slices.Clone(c.frames)
	slices.SortStableFunc(frames, func(a, b Frame) int { return a.Time.Compare(b.Time) })
	return frames, c.err
}

// Close ends the capture. It reports frames that the kernel dropped because the
// sockets' buffers were full.
func (c *Capture) Close() error {
	c.stop.Close()
	<-c.done
	var errs []error
	for i, fd := range c.fds {
		if stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil && stats.Drops > 0 {
			errs = append(errs, fmt.Errorf("capture at %s lost %d frames: buffer full", c.ports[i], stats.Drops))
		}
	}
	c.closeSockets()
	return errors.Join(append(errs, c.err)...)
}

func (c *Capture) closeSockets() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
	c.fds = nil
}

// read moves frames from the sockets to the record until wake ends.
func (c *Capture) read(wake *os.File) {
	defer close(c.done)
	defer wake.Close()
	polls := []unix.PollFd{{Fd: int32(wake.Fd()), Events: unix.POLLIN}}
	for _, fd := range c.fds {
		polls = append(polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	buf := make([]byte, 256<<10)
	for {
		if _, err := unix.Poll(polls, -1); err != nil && !errors.Is(err, unix.EINTR) {
			c.fail(fmt.Errorf("waiting for frames: %w", err))
			return
		}
		var frames []Frame
		for i, p := range c.ports {
			if polls[i+1].Revents == 0 {
				continue
			}
			got, err := receive(c.fds[i], p, buf)
			frames = append(frames, got...)
			if err != nil {
				c.fail(fmt.Errorf("capturing at %s: %w", p, err))
				return
			}
		}
		if len(frames) > 0 {
			c.mu.Lock()
			c.frames = append(c.frames, frames...)
			close(c.more)
			c.more = make(chan struct{})
			c.mu.Unlock()
		}
		if polls[0].Revents != 0 {
			return
		}
	}
}

func (c *Capture) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	close(c.more)
	c.more = make(chan struct{})
}

// receive returns frames that wait in the socket: some, so that a stream that
// does not end is seen while it lasts.
func receive(fd int, p *Port, buf []byte) ([]Frame, error) {
	var frames []Frame
	oob := make([]byte, 256)
	for len(frames) < 64 {
		n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return frames, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			continue
		case err != nil:
			return frames, err
		case flags&unix.MSG_TRUNC != 0:
			return frames, fmt.Errorf("a frame of more than %d bytes", len(buf))
		}
		f := Frame{Port: p, Data: slices.Clone(buf[:n])}
		if err := f.control(oob[:oobn]); err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// control applies a frame's control messages: the time stamp and, from struct
// tpacket_auxdata, a VLAN tag that the kernel took out of the data.
func (f *Frame) control(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("reading control messages: %w", err)
	}
	for _, m := range msgs {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS:
			ts := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			f.Time = time.Unix(ts.Unix())
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA:
			aux := *(*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
			f.PartialChecksum = aux.Status&unix.TP_STATUS_CSUMNOTREADY != 0
			if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 && len(f.Data) >= 12 {
				tpid := uint16(0x8100)
				if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
					tpid = aux.Vlan_tpid
				}
				tag := binary.BigEndian.AppendUint16(nil, tpid)
				f.Data = slices.Insert(f.Data, 12, binary.BigEndian.AppendUint16(tag, aux.Vlan_tci)...)
			}
		}
	}
	return nil
}
