// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Client asks the daemon of a runtime directory.
type Client struct {
	RuntimeDir string
	Netns      string // of the requests
}

// answerLimit is how long Call waits where the caller's context has no deadline of its own.
var answerLimit = 10 * time.Second

// Call asks and fills out, a pointer, with the answer; out may be nil.
func (c *Client) Call(ctx context.Context, verb Verb, args, out any) error {
	if _, limited := ctx.Deadline(); !limited {
		hung := Errorf(KindFailed, "the shunt daemon does not answer within %s: it hangs or was stopped, and packets go through Linux meanwhile; restart it", answerLimit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, answerLimit, hung)
		defer cancel()
	}
	return c.Stream(ctx, verb, args, func(data json.RawMessage) error {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(data, out); err != nil {
			return fmt.Errorf("understanding the daemon's answer: %w", err)
		}
		return nil
	})
}

// Stream asks and hands every part of the answer to visit, until the daemon has said its last, visit fails or the context ends.
func (c *Client) Stream(ctx context.Context, verb Verb, args any, visit func(json.RawMessage) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := c.ask(conn, verb, args); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadBytes('\n')
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return c.gone(err)
		}
		var r Reply
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("understanding the daemon's answer: %w", err)
		}
		if r.Error != nil {
			return r.Error
		}
		if len(r.Data) > 0 {
			if err := visit(r.Data); err != nil {
				return err
			}
		}
		if r.Last {
			return nil
		}
	}
}

// ask sends the request. A daemon that refused it and closed has answered before; the answer is then still to be read.
func (c *Client) ask(conn net.Conn, verb Verb, args any) error {
	r := Request{Protocol: Protocol, Verb: verb, Netns: c.Netns}
	if args != nil {
		raw, err := json.Marshal(args)
		if err != nil {
			return fmt.Errorf("writing the request: %w", err)
		}
		r.Args = raw
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the request: %w", err)
	}
	if _, err := conn.Write(append(raw, '\n')); err != nil && !errors.Is(err, syscall.EPIPE) {
		return c.gone(err)
	}
	return nil
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	path := Socket(c.RuntimeDir)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrNotExist) && deaf(c.RuntimeDir) != nil { // or it is about to open it, or has just closed it
		time.Sleep(deafAfter)
		conn, err = d.DialContext(ctx, "unix", path)
	}
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, Errorf(KindFailed, "no permission to open %s; the socket belongs to who started the daemon, try sudo", path)
	case errors.Is(err, fs.ErrNotExist):
		if err := deaf(c.RuntimeDir); err != nil {
			return nil, err
		}
		return nil, Errorf(KindNoDaemon, "no shunt daemon: %s does not exist; start one with `shunt run`, or name its --runtime-dir", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, Errorf(KindNoDaemon, "no shunt daemon: nobody listens on %s, whose daemon is gone; start one with `shunt run`", path)
	}
	return nil, Errorf(KindNoDaemon, "reaching the shunt daemon at %s: %v", path, err)
}

// PID is the process that listens on the socket, also one that answers nothing; 0 where it cannot be told.
func (c *Client) PID(ctx context.Context) int {
	conn, err := c.dial(ctx)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid) // of who called listen
		}
	})
	return pid
}

// gone explains an answer that stopped in the middle.
func (c *Client) gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) {
		return Errorf(KindNoDaemon, "the shunt daemon ended before it had answered; packets go through Linux until it is started again (its log says why it ended)")
	}
	return Errorf(KindFailed, "talking to the shunt daemon: %v", err)
}
