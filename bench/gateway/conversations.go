// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var conversationsSection = suite.Section{
	Name:   "conversations",
	Title:  "Conversations that must not break",
	Budget: budget(240),
	About: "TCP conversations between a container and a host outside, masqueraded one way and by a published port the other, 64 at a time: random bytes there and back, compared, three times or, one in ten, forty times; " +
		"then one side ends its half and the other answers that. Anything else than these bytes and this end counts as broken. First Linux alone, then with shunt left alone, then with its process killed " +
		"every second and started again.",
	Run: runConversations,
}

const (
	caseLinuxAlone = "without shunt"
	caseLeftAlone  = "shunt left alone"
	caseKilled     = "shunt killed every second"

	talkers = 64
)

func runConversations(b *suite.Bench) error {
	n := extents[b.Size.Name].conversations
	for _, c := range []struct {
		name   string
		n      int
		killed bool
	}{{caseLinuxAlone, n / 10, false}, {caseLeftAlone, n / 2, false}, {caseKilled, n, true}} {
		if err := b.Part(c.name, func() error { return measureConversations(b, c.name, c.n, c.name != caseLinuxAlone, c.killed) }); err != nil {
			return err
		}
	}
	return nil
}

func measureConversations(b *suite.Bench, name string, n int, accelerated, killed bool) error {
	host, err := publishing(b, "0")
	if err != nil {
		return err
	}
	var d *suite.Daemon
	if accelerated {
		if d, err = suite.NewDaemon(b, host.Node(lab.Dut)); err != nil {
			return err
		}
		if err := d.Start("auto"); err != nil {
			return err
		}
		if err := d.UntilQuiet(); err != nil {
			return err
		}
	}
	ways, err := openWays(b, host)
	if err != nil {
		return err
	}
	talk := func(n int, wg *sync.WaitGroup) (broken *atomic.Int64, first *atomic.Pointer[error]) {
		var asked atomic.Int64
		broken, first = new(atomic.Int64), new(atomic.Pointer[error])
		for i := range talkers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for k := asked.Add(1); k <= int64(n); k = asked.Add(1) {
					rounds := 3
					if k%10 == 0 {
						rounds = 40
					}
					if err := ways[k%int64(len(ways))].converse(random, rounds); err != nil {
						broken.Add(1)
						first.CompareAndSwap(nil, &err)
					}
				}
			})
		}
		return broken, first
	}
	var wg sync.WaitGroup
	talk(n/20, &wg) // the first connections make the daemon look for what it needs
	wg.Wait()
	busy, start := cpuTime(d), time.Now()
	broken, first := talk(n, &wg)
	kills, err := killUntil(d, killed, &wg)
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	b.Say("%s: %d conversations in %.0f s, %d broken, %d kills", name, n, took, broken.Load(), kills)
	if err := first.Load(); err != nil {
		b.Note("%s: the first that broke: %v", name, *err)
	}
	b.Set.Add("conversations", name, "conversations", "conversations", float64(n))
	b.Set.Add("conversations", name, "rate", "conversations/s", float64(n)/took)
	b.Set.Add("conversations", name, "broken", "conversations", float64(broken.Load()))
	b.Set.Add("conversations", name, "kills", "kills", float64(kills))
	if d == nil || killed {
		return nil
	}
	b.Set.Add("conversations", name, "daemon", "of a CPU", (cpuTime(d)-busy)/took)
	mib, err := d.Memory("VmRSS")
	b.Set.Add("conversations", name, "memory", "MiB", mib)
	return err
}

// killUntil waits for the talkers, and kills the daemon all the while if that is asked for.
func killUntil(d *suite.Daemon, killed bool, wg *sync.WaitGroup) (kills int, err error) {
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for {
		var next <-chan time.Time
		if killed && err == nil {
			next = time.After(time.Second)
		}
		select {
		case <-over:
			return kills, err
		case <-next:
			if err = d.Kill(); err == nil {
				kills++
				err = d.Start("auto")
			}
		}
	}
}

// cpuTime is what a daemon's process has used, in seconds; nil has used nothing.
func cpuTime(d *suite.Daemon) float64 {
	if d == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.PID()))
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(after))
	user, _ := strconv.ParseFloat(fields[11], 64) // proc(5): utime and stime, in ticks of 10 ms
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// way is how one side reaches the other, who sends back what it gets.
type way struct {
	from *lab.NS
	addr string
}

func openWays(b *suite.Bench, n *lab.Net) (out []way, err error) {
	for _, w := range []struct{ from, to, listen, dial string }{{"outside", "container", "172.18.0.2:80", publishedAt}, {"container", "outside", "192.0.2.2:80", "192.0.2.2:80"}} {
		if err := errors.Join(n.Node(w.from).Sysctl("net.ipv4.tcp_tw_reuse=1"), n.Node(w.from).Sysctl("net.ipv4.ip_local_port_range=1024 65535")); err != nil {
			return nil, err
		}
		l, err := n.Node(w.to).Listen("tcp4", w.listen)
		if err != nil {
			return nil, err
		}
		b.Later(l.Close)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					io.Copy(c, c)
				}()
			}
		}()
		out = append(out, way{n.Node(w.from), w.dial})
	}
	return out, nil
}

// patience is how long a step of a conversation may take: longer than it takes TCP to send a few times again.
const patience = 10 * time.Second

func (w way) converse(random *rand.Rand, rounds int) error {
	c, err := w.from.Dial(context.Background(), net.Dialer{Timeout: patience}, "tcp4", w.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	sent, got := make([]byte, 700), make([]byte, 700)
	for range rounds {
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return errors.New("other bytes came back")
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if n, err := c.Read(got); n != 0 || err != io.EOF {
		return fmt.Errorf("%d bytes behind the end, %w", n, err)
	}
	return nil
}
