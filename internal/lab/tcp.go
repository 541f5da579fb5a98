// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Listen opens a TCP listener in the namespace.
func (ns *NS) Listen(network, addr string) (l net.Listener, err error) {
	err = ns.Do(func() (err error) {
		l, err = net.Listen(network, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening at %s in %s: %w", addr, ns.Name, err)
	}
	return l, nil
}

// Dial connects from the namespace, by a dialer that says what is special; addr is an address, not a name.
func (ns *NS) Dial(ctx context.Context, d net.Dialer, network, addr string) (c net.Conn, err error) {
	err = ns.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("calling %s from %s: %w", addr, ns.Name, err)
	}
	return c, nil
}

// ConnectTCP connects two namespaces: the server's address is one of its own.
func ConnectTCP(client, server *NS, addr string, patience time.Duration) (from, to net.Conn, err error) {
	l, err := server.Listen("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if from, err = client.Dial(context.Background(), net.Dialer{Timeout: patience}, "tcp", addr); err != nil {
		return nil, nil, err
	}
	l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	if to, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("accepting at %s: %w", addr, err), from.Close())
	}
	return from, to, nil
}
