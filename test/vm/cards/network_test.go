// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// card is the name of a card in the first namespace, by its address. One whose namespace was just deleted may still be on its way back.
func card(t *testing.T, wire, who int) string {
	t.Helper()
	want := fmt.Sprintf("52:54:00:%02x:%02x:01", wire, who)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		paths, _ := filepath.Glob("/sys/class/net/*/address")
		for _, path := range paths {
			if address, _ := os.ReadFile(path); strings.TrimSpace(string(address)) == want {
				return filepath.Base(filepath.Dir(path))
			}
		}
	}
	t.Fatalf("no card has the address %s", want)
	return ""
}

func move(t *testing.T, name string, to *lab.NS) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", name, "netns", to.Name).CombinedOutput(); err != nil {
		t.Fatalf("moving %s: %v: %s", name, err, out)
	}
}

func driverOf(t *testing.T, ns *lab.NS, name string) string {
	t.Helper()
	out, err := ns.Output("ethtool -i %s", name)
	if err != nil {
		t.Fatal(err)
	}
	driver, _, _ := strings.Cut(strings.TrimPrefix(out, "driver: "), "\n")
	return driver
}

// feature says whether an offload is on, by its name for ethtool.
func feature(t *testing.T, ns *lab.NS, name, offload string) bool {
	t.Helper()
	out, err := ns.Output("ethtool -k %s", name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, offload+": on")
}

// patience is how long something may take in an emulated machine.
const patience = 30 * time.Second

// pings is how many requests a ping sends.
const pings = 5

// ping has the first host ask the second, with every answer back and one hop in between.
func (r *router) ping(address string, options ...string) error {
	out, err := r.hosts[0].Output("ping -n -c %d -i 0.2 -W 5 %s %s", pings, strings.Join(options, " "), address)
	if err != nil || strings.Count(out, "ttl=63") != pings {
		return fmt.Errorf("ping %s %s: %w\n%s", strings.Join(options, " "), address, err, out)
	}
	return nil
}

// reach has the hosts talk by both families: pings, and streams by TCP in both directions.
func (r *router) reach() (err error) {
	for _, address := range []string{"10.0.2.2", "fd00:2::2"} {
		// The first may wait for neighbours longer than a ping does, and for a link that has just come up.
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if r.hosts[0].Exec("ping -n -c 1 -W 1 %s", address) == nil {
				break
			}
		}
		err = errors.Join(err, r.ping(address))
		if broken := r.stream(net.JoinHostPort(address, "4000")); broken != nil {
			err = errors.Join(err, fmt.Errorf("TCP to %s: %w", address, broken))
		}
	}
	return err
}

// stream sends a mebibyte each way.
func (r *router) stream(address string) error {
	const size = 1 << 20
	from, to, err := lab.ConnectTCP(r.hosts[0], r.hosts[1], address, patience)
	if err != nil {
		return err
	}
	defer from.Close()
	defer to.Close()
	done := make(chan error, 1)
	go func() { done <- exchange(to, size) }()
	return errors.Join(exchange(from, size), <-done)
}

// exchange sends random bytes and what they sum up to while it receives such.
func exchange(c net.Conn, size int) error {
	c.SetDeadline(time.Now().Add(patience))
	sent := make(chan error, 1)
	go func() {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		sum := sha256.Sum256(data)
		_, err := c.Write(append(data, sum[:]...))
		sent <- err
	}()
	data := make([]byte, size+sha256.Size)
	if _, err := io.ReadFull(c, data); err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	if sum := sha256.Sum256(data[:size]); string(sum[:]) != string(data[size:]) {
		return fmt.Errorf("what came is not what was sent")
	}
	return <-sent
}

// datagrams has each host send so many to the other, not faster than they are answered.
func (r *router) datagrams(t *testing.T, when string, n int) {
	t.Helper()
	var far net.PacketConn
	if err := r.hosts[1].Do(func() (err error) {
		far, err = net.ListenPacket("udp", "10.0.2.2:5000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // echoes
		buf := make([]byte, 2048)
		for {
			n, from, err := far.ReadFrom(buf)
			if err != nil {
				return
			}
			far.WriteTo(buf[:n], from)
		}
	}()
	var near net.Conn
	if err := r.hosts[0].Do(func() (err error) {
		near, err = net.Dial("udp", "10.0.2.2:5000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	lost, buf := 0, make([]byte, 2048)
	for i := range n {
		want := fmt.Sprintf("datagram %d", i)
		near.Write([]byte(want))
		near.SetReadDeadline(time.Now().Add(2 * time.Second))
		if m, err := near.Read(buf); err != nil || string(buf[:m]) != want {
			lost++
		}
	}
	if lost > n/100 {
		t.Errorf("%s: %d of %d datagrams were not answered", when, lost, n)
	}
}
