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
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

const (
	maxRequest   = 1 << 20 // bytes; the longest sensible request is a jumbo frame in hex
	requestLimit = 10 * time.Second
	writeLimit   = 30 * time.Second // a client that stopped reading is let go
	closeLimit   = time.Second      // and sooner when the server closes, which waits for it
	longestPath  = 107              // bytes, struct sockaddr_un
)

// Handler answers requests. It calls send for each part of a stream; what it returns is the last reply, and may be nil after a stream.
// The context ends when the client goes away or the server closes.
type Handler func(ctx context.Context, r *Request, send func(any) error) (any, error)

// Server answers on a socket.
type Server struct {
	path     string
	claim    *os.File // of the socket's folder
	listener *net.UnixListener
	handle   Handler
	log      *slog.Logger
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// ErrInUse is returned by Listen when a daemon answers on the socket, or is about to.
var ErrInUse = errors.New("a shunt daemon already answers there; stop it with `shunt stop`, or choose another --runtime-dir")

// claimWait is how long Listen waits for the folder of a daemon that is on its way: one that ends gives it up, one that starts answers.
const claimWait = time.Second

// Listen opens the socket, in place of one that a dead daemon left.
func Listen(path string, log *slog.Logger) (*Server, error) {
	if len(path) > longestPath {
		return nil, fmt.Errorf("listening on %s: a socket's path has at most %d bytes, this one %d; choose a shorter --runtime-dir", path, longestPath, len(path))
	}
	claimed, err := claim(path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	s, err := listen(path, log)
	if err != nil {
		claimed.Close()
		return nil, err
	}
	s.claim = claimed
	return s, nil
}

// claim makes sure that nobody else opens or replaces the socket meanwhile: of two that look for a daemon at once neither finds one, and the second would remove the first one's socket, without which
// a daemon cannot be asked or stopped. The lock is on the folder itself, so that nothing is left there, and the kernel gives it up with the process.
func claim(path string) (*os.File, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(claimWait); ; time.Sleep(claimWait / 50) {
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return dir, nil // where the file system knows no locks there is none to be had
		}
		if answers(path) {
			dir.Close()
			return nil, ErrInUse
		}
		if time.Now().After(end) {
			dir.Close()
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				if err := deaf(filepath.Dir(path)); err != nil {
					return nil, err
				}
			}
			return nil, ErrInUse
		}
	}
}

// answers says whether somebody listens on the socket, also one who has too many callers waiting.
func answers(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, syscall.EAGAIN)
}

// listen opens the socket once that is claimed.
func listen(path string, log *slog.Logger) (*Server, error) {
	if answers(path) { // an older version, which makes no claim
		return nil, fmt.Errorf("listening on %s: %w", path, ErrInUse)
	}
	if removed, err := RemoveSocket(path); err != nil {
		return nil, err
	} else if _, err := os.Lstat(path); err == nil && !removed {
		return nil, fmt.Errorf("listening on %s: there is a file that is not a socket; remove it or choose another --runtime-dir", path)
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, err
	}
	return &Server{path: path, listener: l, log: log}, nil
}

// RemoveSocket deletes a socket that a daemon left which is gone, and says whether there was one. What is no socket is not shunt's, and stays.
func RemoveSocket(path string) (removed bool, err error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for the socket of a daemon that is gone: %w", err)
	case fi.Mode()&fs.ModeSocket == 0:
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("removing the socket of a daemon that is gone: %w", err)
	}
	return true, nil
}

// listenPrivate makes the socket inaccessible to others from its first moment: the mode of a new socket is what the umask leaves.
func listenPrivate(path string) (*net.UnixListener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

// Serve answers until Close.
func (s *Server) Serve(ctx context.Context, h Handler) {
	s.handle = h
	ctx, s.cancel = context.WithCancel(ctx)
	s.wg.Go(func() {
		for {
			c, err := s.listener.AcceptUnix()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // too many open files, for example, which ends
				s.log.Error("accepting a client", "err", err)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
					continue
				}
			}
			s.wg.Go(func() { s.connection(ctx, c) })
		}
	})
}

// StopListening removes the socket; requests under way go on.
func (s *Server) StopListening() {
	s.listener.Close()
	s.claim.Close()
}

// Close ends the server and removes the socket; requests under way are cut off.
func (s *Server) Close() {
	s.StopListening()
	if s.cancel != nil {
		s.cancel()
	}
	s.wg.Wait()
}

func (s *Server) connection(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &client{UnixConn: c, limit: writeLimit}
	context.AfterFunc(ctx, client.hurry)

	c.SetReadDeadline(time.Now().Add(requestLimit))
	in := bufio.NewReader(io.LimitReader(c, maxRequest))
	line, err := in.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			s.send(client, Reply{Error: Errorf(KindUsage, "reading the request: it does not end with a newline within %d bytes and %s", maxRequest, requestLimit), Last: true})
		}
		return // someone looked whether we are alive
	}
	c.SetReadDeadline(time.Time{})
	go func() { // the client sends nothing more, so a read ends when it goes away
		in.ReadByte()
		cancel()
	}()
	data, err := s.answer(ctx, line, func(v any) error {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return s.send(client, Reply{Data: raw})
	})
	last := Reply{Last: true}
	if err == nil && data != nil {
		last.Data, err = json.Marshal(data)
	}
	if err != nil {
		last.Data, last.Error = nil, asError(err)
	}
	if err := s.send(client, last); err != nil {
		s.log.Debug("answering a client", "err", err)
	}
}

// answer is dispatch, with a panic for an error: a question must not end the daemon.
func (s *Server) answer(ctx context.Context, line []byte, send func(any) error) (data any, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("a fault of shunt", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			data, err = nil, Errorf(KindFailed, "a fault of shunt: %v; the daemon's log has the place", v)
		}
	}()
	return s.dispatch(ctx, line, send)
}

func (s *Server) dispatch(ctx context.Context, line []byte, send func(any) error) (any, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, Errorf(KindUsage, "reading the request: %v", err)
	}
	if r.Protocol != Protocol {
		return nil, Errorf(KindUnsupported, "the client speaks protocol %d, this daemon %d; use the shunt binary that the daemon was started from", r.Protocol, Protocol)
	}
	return s.handle(ctx, &r, send)
}

func (s *Server) send(c *client, r Reply) error {
	r.Protocol = Protocol
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.patience()
	_, err = c.Write(append(raw, '\n'))
	return err
}

// client is a connection, and how long an answer may wait for it to read.
type client struct {
	*net.UnixConn
	mu    sync.Mutex
	limit time.Duration
}

// patience begins with an answer.
func (c *client) patience() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SetWriteDeadline(time.Now().Add(c.limit))
}

// hurry ends to read, and gives an answer that is being written, or is yet to be, little time: whoever has stopped reading must not hold up the daemon's end.
func (c *client) hurry() {
	c.SetReadDeadline(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = closeLimit
	c.SetWriteDeadline(time.Now().Add(closeLimit))
}
