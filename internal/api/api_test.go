// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serve answers in a folder of its own until the test ends.
func serve(t *testing.T, h Handler) (client *Client, server *Server) {
	t.Helper()
	dir := t.TempDir()
	s, err := Listen(Socket(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(context.Background(), h)
	t.Cleanup(s.Close)
	return &Client{RuntimeDir: dir, Netns: "blue"}, s
}

func kind(t *testing.T, err error) Kind {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no api.Error", err)
	}
	return e.Kind
}

func TestCall(t *testing.T) {
	c, s := serve(t, func(_ context.Context, r *Request, _ func(any) error) (any, error) {
		switch r.Verb {
		case VerbStatus:
			return Status{Version: "1", Netns: r.Netns}, nil
		case VerbExplain:
			return nil, Errorf(KindUsage, "no packet")
		case VerbPause:
			panic("made for this test")
		}
		return nil, errors.New("broken")
	})
	var got Status
	if err := c.Call(context.Background(), VerbStatus, nil, &got); err != nil || got.Version != "1" || got.Netns != "blue" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.Call(context.Background(), VerbExplain, nil, nil); kind(t, err) != KindUsage || err.Error() != "no packet" {
		t.Error(err)
	}
	if err := c.Call(context.Background(), VerbStop, nil, nil); kind(t, err) != KindFailed || err.Error() != "broken" {
		t.Error(err)
	}
	if err := c.Call(context.Background(), VerbPause, nil, nil); kind(t, err) != KindFailed || !strings.HasPrefix(err.Error(), "a fault of shunt: made for this test") {
		t.Error(err)
	}
	fi, err := os.Stat(s.path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", fi.Mode(), err)
	}
}

// Whoever listens is known without an answer.
func TestPID(t *testing.T) {
	c, s := serve(t, func(context.Context, *Request, func(any) error) (any, error) { return nil, nil })
	if pid := c.PID(context.Background()); pid != os.Getpid() {
		t.Errorf("the server is process %d, want %d", pid, os.Getpid())
	}
	s.Close()
	if pid := c.PID(context.Background()); pid != 0 {
		t.Errorf("nobody is process %d", pid)
	}
}

func TestStream(t *testing.T) {
	left := make(chan struct{})
	c, _ := serve(t, func(ctx context.Context, _ *Request, send func(any) error) (any, error) {
		defer close(left)
		for i := 0; ctx.Err() == nil; i++ {
			if err := send(i); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	n, enough := 0, errors.New("enough")
	err := c.Stream(context.Background(), VerbMonitor, nil, func(raw json.RawMessage) error {
		if string(raw) != string(rune('0'+n)) {
			t.Errorf("%s, want %d", raw, n)
		}
		if n++; n == 5 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Error("the handler goes on after the client has left")
	}
}

func TestStaleSocketIsReplacedAndLiveOneRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shunt.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as a killed daemon
	dead.Close()
	if err := (&Client{RuntimeDir: filepath.Dir(path)}).Call(context.Background(), VerbStatus, nil, nil); kind(t, err) != KindNoDaemon {
		t.Error(err)
	}
	s, err := Listen(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(context.Background(), func(context.Context, *Request, func(any) error) (any, error) { return nil, nil })
	defer s.Close()
	if _, err := Listen(path, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	if err := (&Client{RuntimeDir: filepath.Dir(path)}).Call(context.Background(), VerbStatus, nil, nil); err != nil {
		t.Error("the refused one disturbed the living:", err)
	}
}

// Of several that start in the same moment one listens, and its socket is the one that is there.
func TestListenAtOnce(t *testing.T) {
	dir := t.TempDir()
	for range 200 {
		servers := make(chan *Server, 8)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range cap(servers) {
			wg.Go(func() {
				<-begin
				s, err := Listen(Socket(dir), slog.New(slog.DiscardHandler))
				if err != nil {
					if !errors.Is(err, ErrInUse) {
						t.Error(err)
					}
					return
				}
				servers <- s
			})
		}
		close(begin)
		wg.Wait()
		close(servers)
		n := 0
		for s := range servers {
			n++
			defer s.Close()
			if !answers(Socket(dir)) {
				t.Error("who listens cannot be reached")
			}
			s.Close()
		}
		if n != 1 {
			t.Fatalf("%d listen", n)
		}
	}
}

// A daemon that is stopped, and has more callers waiting than the kernel lets wait, keeps its socket.
func TestListenerThatDoesNotAccept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shunt.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		defer syscall.Close(fd)
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = syscall.Listen(fd, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
	if _, err := Listen(path, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}

func TestFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shunt.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "mine" {
		t.Error("the file was touched")
	}
	if removed, err := RemoveSocket(path); removed || err != nil {
		t.Errorf("a file is removed as a socket: %t, %v", removed, err)
	}
}

// TestDaemonDiesMidReply cuts an answer at every place and expects an error that says so each time, never a short answer.
func TestDaemonDiesMidReply(t *testing.T) {
	whole := `{"protocol":1,"data":{"version":"1"}}` + "\n" + `{"protocol":1,"last":true}` + "\n"
	for cut := range whole {
		dir := t.TempDir()
		l, err := net.Listen("unix", Socket(dir))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			io.WriteString(c, whole[:cut])
			c.Close()
		}()
		if err := (&Client{RuntimeDir: dir}).Call(context.Background(), VerbStatus, nil, &Status{}); kind(t, err) != KindNoDaemon || !strings.Contains(err.Error(), "ended before") {
			t.Errorf("cut at %d: %v", cut, err)
		}
		l.Close()
	}
}

// TestHungDaemon asks one that accepts and says nothing, as under SIGSTOP.
func TestHungDaemon(t *testing.T) {
	defer func(d time.Duration) { answerLimit = d }(answerLimit)
	answerLimit = 50 * time.Millisecond
	dir := t.TempDir()
	l, err := net.Listen("unix", Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := (&Client{RuntimeDir: dir}).Call(context.Background(), VerbStatus, nil, nil); kind(t, err) != KindFailed || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	c, s := serve(t, func(context.Context, *Request, func(any) error) (any, error) { return nil, nil })
	for request, want := range map[string]string{
		"{\"protocol\":1,\"verb\":\"status\"}\n":  `"last":true`,
		"{\"protocol\":99,\"verb\":\"status\"}\n": "protocol 99",
		"this is no request\n":                    "reading the request",
		strings.Repeat("x", maxRequest+10) + "\n": "does not end",
	} {
		conn, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(conn, request)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		got, _ := io.ReadAll(conn)
		if !strings.Contains(string(got), want) {
			t.Errorf("%.40q: %s, want %s", request, got, want)
		}
		conn.Close()
	}
	if err := c.Call(context.Background(), VerbStatus, nil, nil); err != nil {
		t.Error("after the refusals:", err)
	}
}

// A client that asked for a stream and has stopped reading it does not hold up the end of the server.
func TestCloseDoesNotWaitForHungClient(t *testing.T) {
	full := make(chan struct{})
	c, s := serve(t, func(_ context.Context, _ *Request, send func(any) error) (any, error) {
		close(full)
		for {
			if err := send(strings.Repeat("x", 1<<16)); err != nil {
				return nil, err
			}
		}
	})
	hung, err := net.Dial("unix", Socket(c.RuntimeDir))
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	io.WriteString(hung, `{"protocol":1,"verb":"monitor"}`+"\n")
	<-full
	time.Sleep(100 * time.Millisecond) // until its buffer is full
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > writeLimit/2 {
		t.Errorf("closing took %v", took)
	}
}
