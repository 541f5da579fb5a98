// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// A beat says once of each thing that is attached to a device of the namespace without an event, and of each that goes, and nothing of what is elsewhere.
func TestBeatTellsWhatIsAttached(t *testing.T) {
	n := lab.BuildT(t, lab.Star(2))
	near, far := n.Port(lab.Dut, "p1"), n.Port("wire", "w1")
	xdp, tc := passing(t, ebpf.XDP), passing(t, ebpf.SchedCLS)
	socket := func(proto uint16, index int) (io.Closer, error) {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), "socket"), unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: index})
	}
	tcx := func(at ebpf.AttachType) func(int) (io.Closer, error) {
		return func(index int) (io.Closer, error) {
			return link.AttachTCX(link.TCXOptions{Program: tc, Interface: index, Attach: at})
		}
	}
	things := map[string]func(index int) (io.Closer, error){
		"a socket for all":          func(index int) (io.Closer, error) { return socket(unix.ETH_P_ALL, index) },
		"a socket for one protocol": func(index int) (io.Closer, error) { return socket(unix.ETH_P_IP, index) },
		"XDP by a link": func(index int) (io.Closer, error) {
			return link.AttachXDP(link.XDPOptions{Program: xdp, Interface: index})
		},
	}
	if have, _ := haveTCX(); have {
		things["tcx ingress"], things["tcx egress"] = tcx(ebpf.AttachTCXIngress), tcx(ebpf.AttachTCXEgress)
	} else {
		t.Run("tcx", func(t *testing.T) { t.Skip("this kernel has no tcx (Linux 6.6): tried") })
	}
	err := near.NS.Do(func() error {
		d, err := Open(Options{PinDir: t.TempDir() + "/bpf", Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
		expect := func(want bool, what string) {
			t.Helper()
			if got, err := d.Beat(); err != nil || got != want {
				t.Errorf("%s: a beat says %t, want %t (%v)", what, got, want, err)
			}
		}
		if _, err := d.Beat(); err != nil { // the first tells of whatever there was
			return err
		}
		for what, attach := range things {
			expect(false, "before "+what)
			thing, err := attach(near.Index)
			if err != nil {
				return err
			}
			expect(true, what)
			expect(false, what+", once more")
			if err := thing.Close(); err != nil {
				return err
			}
			expect(true, what+" goes")
		}
		if have, _ := haveTCX(); have {
			if err := ownHooks(d, near.Index, tcx(ebpf.AttachTCXIngress), expect); err != nil {
				return err
			}
		}
		if err := near.NS.Shell("ip link add plain type veth peer name other; ip link set plain up"); err != nil {
			return err
		}
		expect(false, "a device that carries nothing")
		err = far.NS.Do(func() error {
			thing, err := socket(unix.ETH_P_ALL, far.Index)
			if err == nil {
				t.Cleanup(func() { thing.Close() })
			}
			return err
		})
		expect(false, "in another namespace")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ownHooks takes a hook as the daemon does for a container that starts, and gives it back: no beat says so, unless something else was attached there meanwhile, or before.
func ownHooks(d *Datapath, index int, foreign func(index int) (io.Closer, error), expect func(want bool, what string)) error {
	key := hookKey{index, graph.TC}
	take := func() error {
		a, err := d.attachCounted(index)
		if err == nil {
			d.ports[key] = a
			d.added(a, a.adds, d.changes)
		}
		return err
	}
	if err := take(); err != nil {
		return err
	}
	expect(false, "its own hook")
	other, err := foreign(index)
	if err != nil {
		return err
	}
	expect(true, "another one beside it")
	if err := errors.Join(other.Close(), d.drop(key, d.ports[key])); err != nil {
		return err
	}
	expect(true, "both go")
	if err := take(); err != nil {
		return err
	}
	expect(false, "its own hook again")
	if err := d.drop(key, d.ports[key]); err != nil {
		return err
	}
	expect(false, "its own hook goes")
	if other, err = foreign(index); err != nil {
		return err
	}
	if err := take(); err != nil {
		return err
	}
	expect(true, "its own hook where another one has come unheard")
	err = errors.Join(other.Close(), d.drop(key, d.ports[key]))
	expect(true, "both go again")
	return err
}

// passing is a program that lets everything pass.
func passing(t *testing.T, kind ebpf.ProgramType) *ebpf.Program {
	t.Helper()
	result := map[ebpf.ProgramType]int32{ebpf.XDP: 2, ebpf.SchedCLS: 0}[kind]
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
