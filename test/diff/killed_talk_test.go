// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// way is how a client reaches a server: from which address, by which, and where that really is.
type way struct {
	client, server *lab.NS
	as, to, at     string
	failed         chan error // what the server's sides of conversations found wrong
}

// A conversation begins with a line of the client: the seed of what both sides will say, and how much. Then each says its part, in pieces, while it listens to the other, and ends its half.
const greeting = 24

// patience is how long an end waits for anything: longer than TCP takes to send several times again.
const patience = 30 * time.Second

// plan is what either side says: pieces of so many bytes, with pauses between.
type plan struct {
	seed          uint64
	pieces, bytes uint32
	pause         time.Duration
}

func (p plan) header() []byte {
	b := binary.BigEndian.AppendUint64(nil, p.seed)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, p.pieces), p.bytes)
	return binary.BigEndian.AppendUint64(b, uint64(p.pause))
}

func planOf(b []byte) plan {
	return plan{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:]), time.Duration(binary.BigEndian.Uint64(b[16:]))}
}

// nextPlan: most conversations are too short to be fast, some go on for some tenths of a second, and some for seconds, through several deaths of shunt's.
func nextPlan(rng *rand.Rand) plan {
	p := plan{seed: rng.Uint64(), pieces: 1 + rng.Uint32N(4), bytes: 1 + rng.Uint32N(1500)}
	switch n := rng.IntN(100); {
	case n < 6:
		p.pieces, p.bytes, p.pause = 20+rng.Uint32N(40), 1+rng.Uint32N(8000), time.Duration(50+rng.IntN(60))*time.Millisecond
	case n < 25:
		p.pieces, p.bytes, p.pause = 20+rng.Uint32N(60), 1+rng.Uint32N(3000), time.Duration(2+rng.IntN(8))*time.Millisecond
	}
	return p
}

// source is what a side says.
func (p plan) source(side byte) io.Reader {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], p.seed)
	seed[31] = side
	return rand.NewChaCha8(seed)
}

// say sends a side's part and ends its half.
func (p plan) say(c *net.TCPConn, side byte) error {
	from, piece := p.source(side), make([]byte, p.bytes)
	for i := range p.pieces {
		if i > 0 {
			time.Sleep(p.pause)
		}
		io.ReadFull(from, piece)
		c.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.Write(piece); err != nil {
			return fmt.Errorf("side %d, at piece %d of %d: %w", side, i+1, p.pieces, err)
		}
	}
	return c.CloseWrite()
}

// hear takes the other side's part, to its end.
func (p plan) hear(c *net.TCPConn, side byte) error {
	sum, want := sha256.New(), sha256.New()
	c.SetReadDeadline(time.Now().Add(patience + time.Duration(p.pieces)*p.pause))
	n, err := io.Copy(sum, c)
	all := int64(p.pieces) * int64(p.bytes)
	io.CopyN(want, p.source(side), all)
	switch {
	case err != nil:
		return fmt.Errorf("hearing side %d, after %d bytes of %d: %w", side, n, all, err)
	case n != all || !bytes.Equal(sum.Sum(nil), want.Sum(nil)):
		return fmt.Errorf("%d bytes of side %d arrived, which are not the %d that it said", n, side, all)
	}
	return nil
}

// converse is one end of a conversation.
func (p plan) converse(c *net.TCPConn, side byte) error {
	said := make(chan error, 1)
	go func() { said <- p.say(c, side) }()
	return errors.Join(p.hear(c, 1-side), <-said)
}

// open has the server listen until the test ends.
func (w *way) open(t *testing.T) error {
	w.failed = make(chan error, 1000)
	l, err := w.server.Listen("tcp", w.at)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, greeting)
				c.SetReadDeadline(time.Now().Add(patience))
				_, err := io.ReadFull(c, head)
				if err == nil {
					err = planOf(head).converse(c.(*net.TCPConn), 1)
				}
				if err != nil {
					select {
					case w.failed <- fmt.Errorf("at %s, from %s: %w", w.at, c.RemoteAddr(), err):
					default:
					}
				}
			}()
		}
	}()
	return nil
}

// talk has a conversation.
func (w *way) talk(p plan) error {
	c, err := w.client.Dial(context.Background(), net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(w.as)}, Timeout: patience}, "tcp", w.to)
	if err != nil {
		return fmt.Errorf("as %s: %w", w.as, err)
	}
	defer c.Close()
	if _, err := c.Write(p.header()); err != nil {
		return err
	}
	if err := p.converse(c.(*net.TCPConn), 0); err != nil {
		return fmt.Errorf("%s from %s: %w", w.to, c.LocalAddr(), err)
	}
	return nil
}

// talkersAtOnce is how many conversations there are at a time.
const talkersAtOnce = 96

// talkers are who converses, and what came of it.
type talkers struct {
	ways         []*way
	by           []atomic.Int64 // conversations by each way
	done, broken atomic.Int64
	first        atomic.Pointer[error] // what broke first
	ended        chan struct{}
}

func newTalkers(ways []*way) *talkers {
	return &talkers{ways: ways, by: make([]atomic.Int64, len(ways)), ended: make(chan struct{})}
}

// run has n conversations, or as many as there is time for.
func (k *talkers) run(n int, within time.Duration) {
	var asked atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range talkersAtOnce {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0x74616c6b))
			for {
				at := asked.Add(1)
				if within > 0 && time.Since(begun) > within || within == 0 && at > int64(n) {
					return
				}
				which := int(at) % len(k.ways)
				k.broke(k.ways[which].talk(nextPlan(rng)))
				k.by[which].Add(1)
				k.done.Add(1)
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // so that a machine with two CPUs has some of them left to start shunt
			}
		})
	}
	go func() {
		wg.Wait()
		close(k.ended)
	}()
}

func (k *talkers) broke(err error) {
	if err != nil {
		k.broken.Add(1)
		k.first.CompareAndSwap(nil, &err)
	}
}

// over says whether all have ended, and what servers found wrong that clients did not see counts by then.
func (k *talkers) over() bool {
	select {
	case <-k.ended:
	default:
		return false
	}
	for _, w := range k.ways {
		for len(w.failed) > 0 {
			k.broke(<-w.failed)
		}
	}
	return true
}
