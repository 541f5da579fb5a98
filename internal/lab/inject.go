// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Injector sends frames out of a port through a packet socket. The peer receives
// them as sk_buffs.
type Injector struct {
	port *Port
	fd   int
}

// Injector opens an injector at the port. With bypass frames skip the port's
// queueing discipline (PACKET_QDISC_BYPASS), which also makes a full peer drop
// them instead of holding the sender back.
func (p *Port) Injector(bypass bool) (*Injector, error) {
	fd, err := p.packetSocket(false)
	if err != nil {
		return nil, err
	}
	if bypass {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("bypassing the qdisc of %s: %w", p, err)
		}
	}
	return &Injector{port: p, fd: fd}, nil
}

// Send sends the frames in order. Each must hold an Ethernet header and fit the
// MTU; for larger ones see [Wire].
func (i *Injector) Send(frames ...[]byte) error {
	if err := sendAll(i.fd, frames); err != nil {
		return fmt.Errorf("injecting at %s: %w", i.port, err)
	}
	return nil
}

// Close releases the socket.
func (i *Injector) Close() error { return unix.Close(i.fd) }

// Send sends the frames in order out of the port, through an [Injector] that stays
// open until the network is closed.
func (p *Port) Send(frames ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.injector == nil {
		var err error
		if p.injector, err = p.Injector(false); err != nil {
			return err
		}
	}
	return p.injector.Send(frames...)
}

// Send sends the shots in order, each through its port's [Port.Send].
func Send(shots ...Shot) error {
	for len(shots) > 0 {
		port, n := shots[0].Port, 0
		var frames [][]byte // as many as go out of one port in a row
		for ; n < len(shots) && shots[n].Port == port; n++ {
			frames = append(frames, shots[n].Frame)
		}
		if err := port.Send(frames...); err != nil {
			return err
		}
		shots = shots[n:]
	}
	return nil
}
