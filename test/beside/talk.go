// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

// Talker is an agent that goes on until it is told to end.
type Talker struct {
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{}
	mu    sync.Mutex
	said  bytes.Buffer
}

// Talk starts one in a namespace; what a failed test did not end, its cleanup does.
func Talk(t *testing.T, ns *lab.NS, agent string, args ...string) *Talker {
	t.Helper()
	k := &Talker{cmd: exec.Command(agent, args...), ended: make(chan struct{})}
	k.cmd.Stdout, k.cmd.Stderr = k, k // the same for both: written by one goroutine at a time
	in, err := k.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.in = in
	if err := ns.Start(k.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { k.cmd.Wait(); close(k.ended) }()
	t.Cleanup(func() { k.cmd.Process.Kill(); <-k.ended })
	return k
}

// Write takes what the agent says.
func (k *Talker) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.said.Write(b)
}

// Said is what it has said until now.
func (k *Talker) Said() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.TrimSpace(k.said.String())
}

// Last is its last line.
func (k *Talker) Last() string {
	said := k.Said()
	return said[strings.LastIndexByte(said, '\n')+1:]
}

// Lines is how many lines it has said until now.
func (k *Talker) Lines() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Count(k.said.Bytes(), []byte("\n"))
}

// Ended says whether it has ended by itself.
func (k *Talker) Ended() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// Hush ends it and gives what it said.
func (k *Talker) Hush() string {
	k.in.Close()
	<-k.ended
	return k.Said()
}

// Traffic is what goes on while something happens: calls, each a new connection, and connections that are kept busy, by name.
type Traffic struct{ Calls, Streams map[string]*Talker }

// End ends all of it. It tells what was said, and by name what was not as it must be where nothing is in the way: that a call failed or a connection ended.
func (f Traffic) End() (summary string, wrong map[string]string) {
	var out []string
	wrong = map[string]string{}
	for name, k := range f.Calls {
		said := k.Hush()
		if !strings.Contains(said, " 0 failed") || strings.HasPrefix(said, "0 calls") {
			wrong[name] = said
		}
		out = append(out, name+": "+k.Last())
	}
	for name, k := range f.Streams {
		k.Hush()
		if _, err := strconv.Atoi(k.Last()); err != nil {
			wrong[name] = "the connection ended: " + k.Last()
		}
		out = append(out, fmt.Sprintf("%s: %d messages", name, k.Lines()))
	}
	slices.Sort(out)
	return strings.Join(out, "; "), wrong
}
