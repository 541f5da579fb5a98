// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// A device that vanishes between its event and being attached to is told as what it is, whatever the kernel says of it at each hook, and is not held on to.
func TestVanishedDevice(t *testing.T) {
	const nobody = 4711
	n := lab.BuildLineT(t, lab.LineOptions{})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		var log bytes.Buffer
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			return err
		}
		defer d.Detach()
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			if a, err := d.attach(&job{key: hookKey{nobody, hook}, prog: d.objects.pass}); a != nil || !errors.Is(err, unix.ENODEV) {
				t.Errorf("%s: %v", hook, err)
			}
		}
		key, hold := hookKey{nobody, graph.TC}, &pendingHold{}
		d.ports[key] = &attachment{hold: hold}
		d.taken(key, hold, nil, fmt.Errorf("attaching to tcx: %w", unix.ENODEV))
		if d.ports[key] != nil || !strings.Contains(log.String(), `level=INFO msg="a device has vanished before it could be attached to" ifindex=4711 hook=tc`) {
			t.Errorf("held: %t; log: %s", d.ports[key] != nil, &log)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A stub whose device was moved to another namespace while nobody lived is not taken for that of the device that has its number here by now.
func TestStubOfAMovedDeviceIsNotAdopted(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{Receive: lab.ReceiveGRO})
	other, err := lab.NewNS(lab.UniquePrefix(t.Name()) + "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Delete() })
	pins, index := t.TempDir()+"/bpf", n.Port(lab.Dut, "in").Index
	open := func(do func(d *Datapath)) {
		t.Helper()
		err := n.Node(lab.Dut).Do(func() error {
			d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				do(d)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	open(func(d *Datapath) {
		defer d.Close()
		if _, err := d.attachStub(index); err != nil {
			t.Error(err)
		}
	})
	open(func(d *Datapath) {
		defer d.Close()
		if !d.Holds(index, graph.XDP) {
			t.Error("a stub whose device is here is not adopted")
		}
	})
	for _, command := range []string{fmt.Sprintf("ip link set in netns %s", other.Name), fmt.Sprintf("ip link add in index %d type veth peer name far", index)} {
		if err := n.Node(lab.Dut).Exec("%s", command); err != nil {
			t.Fatal(err)
		}
	}
	open(func(d *Datapath) {
		defer d.Detach()
		if d.Holds(index, graph.XDP) {
			t.Error("a stub in another namespace is taken for that of a device here")
		}
	})
	dev, err := other.Netlink().LinkByName("in")
	for end := time.Now().Add(10 * time.Second); err == nil && dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		dev, err = other.Netlink().LinkByName("in") // the kernel lets go of it a little later
	}
	if err != nil || dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached {
		t.Errorf("the device that was moved still has the stub (%v)", err)
	}
}

// What a daemon left in a slot that somebody else held while it died is taken out by the next one, also where that wants no program there.
func TestAdoptedSlotIsEmpty(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{Receive: lab.ReceiveGRO})
	pins, index := t.TempDir()+"/bpf", n.Port(lab.Dut, "in").Index
	err := n.Node(lab.Dut).Do(func() error {
		before, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		a, err := before.attachStub(index)
		if err != nil {
			return err
		}
		defer a.slot.Close() // as who lists maps at that moment

		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // XDP_PASS
		if err == nil {
			defer prog.Close()
			err = a.slot.Put(uint32(0), prog)
		}
		if err != nil {
			return err
		}
		before.Close() // which knows nothing of it
		a.hold.close()
		after, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer after.Detach()
		var id uint32
		if err := a.slot.Lookup(uint32(0), &id); !errors.Is(err, ebpf.ErrKeyNotExist) || !after.Holds(index, graph.XDP) {
			t.Errorf("the slot has program %d (%v); it is adopted: %t", id, err, after.Holds(index, graph.XDP))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
