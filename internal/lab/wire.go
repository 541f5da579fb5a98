// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
)

// Shot is a frame and the port that it is to leave.
type Shot struct {
	Port  *Port
	Frame []byte
}

// Wire sends frames out of ports as XDP frames: to the peers they arrive in pages
// in their NAPI polls, as a NIC driver's do. It is BPF_PROG_TEST_RUN in live-frames
// mode with a program that copies the frames, one after the other, out of a map
// and redirects them to their ports. Needs Linux 5.18.
type Wire struct {
	ports []*Port
	prog  *liveProgram
	data  *ebpf.Map // array of wireSlot
	next  *ebpf.Map // index of the next frame to send, and how many there are

	// Unchecked stops Fire from failing over frames that the peers did not take:
	// they also count what their network stacks drop, such as frames of an unknown
	// type, which some tests mean to send.
	Unchecked bool

	checked time.Time // when the ports were last found to take frames
}

const (
	// MaxWireFrame is the longest frame a Wire takes: a page, less the headroom,
	// tailroom and bookkeeping that the kernel keeps in it, 3368 on Linux 6.1.
	MaxWireFrame = 3328
	// recheck is how long ports are believed to take frames: asking costs several times what sending does.
	recheck = 100 * time.Millisecond
	// wireSlots frames go in one system call; veth queues hold 256.
	wireSlots = 256
	// wireBatch frames are handed over before the receivers' polls may run.
	wireBatch = 32
)

// wireSlot is one value of the data map.
type wireSlot struct {
	Ifindex, Len uint32
	Frame        [MaxWireFrame]byte
}

// NewWire opens a wire that sends out of the given ports, which are to be in one
// namespace. It fails if a peer takes no XDP frames: its End needs ReceiveGRO,
// ReceiveXDP or a program of its own.
func NewWire(ports ...*Port) (*Wire, error) {
	w := &Wire{ports: ports}
	if err := w.check(); err != nil {
		return nil, fmt.Errorf("opening a wire: %w", err)
	}
	if err := w.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening a wire at %s: %w", ports[0], err), w.Close())
	}
	return w, nil
}

// Wire opens a wire that sends out of this port alone.
func (p *Port) Wire() (*Wire, error) { return NewWire(p) }

// Send sends the frames in order out of the wire's first port; see [Wire.Fire].
func (w *Wire) Send(frames ...[]byte) error {
	shots := make([]Shot, len(frames))
	for i, f := range frames {
		shots[i] = Shot{w.ports[0], f}
	}
	return w.Fire(shots...)
}

// Fire sends the shots in order and fails if a peer did not take all of its
// frames. A peer that does not poll from a kernel thread has handled them, in
// order, by the time Fire returns, as far as the machine's load lets it.
func (w *Wire) Fire(shots ...Shot) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("injecting: %w", err)
	}
	for len(shots) > 0 {
		chunk := shots[:min(wireSlots, len(shots))]
		if err := w.fire(chunk); err != nil {
			return fmt.Errorf("injecting at %s: %w", chunk[0].Port, err)
		}
		shots = shots[len(chunk):]
	}
	return nil
}

// Move makes the wire send out of other ports, of any network: that takes no time,
// opening a wire takes milliseconds.
func (w *Wire) Move(ports ...*Port) error {
	moved := Wire{ports: ports}
	if err := moved.check(); err != nil {
		return fmt.Errorf("moving a wire: %w", err)
	}
	w.ports, w.checked = ports, moved.checked
	return nil
}

// Close frees the program and its maps.
func (w *Wire) Close() error {
	return errors.Join(w.prog.Close(), w.data.Close(), w.next.Close())
}

func (w *Wire) check() error {
	if len(w.ports) == 0 {
		return errors.New("no port to send from")
	}
	if time.Since(w.checked) < recheck {
		return nil
	}
	for _, p := range w.ports {
		if p.NS != w.ports[0].NS {
			return fmt.Errorf("%s and %s are in two namespaces", p, w.ports[0])
		}
		if err := p.Peer.takesXDP(); err != nil {
			return err
		}
	}
	w.checked = time.Now()
	return nil
}

func (w *Wire) fire(shots []Shot) error {
	for i, s := range shots {
		if !slices.Contains(w.ports, s.Port) {
			return fmt.Errorf("frame %d is for a port that the wire was not opened for", i)
		}
		if n := len(s.Frame); n < 14 || n > MaxWireFrame {
			return fmt.Errorf("frame %d has %d bytes, a wire takes 14 to %d", i, n, MaxWireFrame)
		}
		slot := wireSlot{Ifindex: uint32(s.Port.Index), Len: uint32(len(s.Frame))}
		copy(slot.Frame[:], s.Frame)
		if err := w.data.Put(uint32(i), &slot); err != nil {
			return fmt.Errorf("storing frame %d: %w", i, err)
		}
	}
	state := [2]uint32{0, uint32(len(shots))}
	if err := w.next.Put(uint32(0), &state); err != nil {
		return fmt.Errorf("resetting the frame index: %w", err)
	}
	before, err := w.refused()
	if err != nil {
		return err
	}
	// A signal makes the call start over; the index in the map makes it go on
	// where it was, and what it runs beyond the last frame is dropped.
	err = w.ports[0].NS.Do(func() error {
		return w.prog.run(make([]byte, MaxWireFrame), len(shots), wireBatch)
	})
	if err != nil {
		return err
	}
	after, err := w.refused()
	if err == nil && after != before {
		err = fmt.Errorf("%d of %d frames were not taken: a queue is full", after-before, len(shots))
	}
	return err
}

// refused counts the frames that the peers of the wire's ports have not taken, if anyone wants to know.
func (w *Wire) refused() (total uint64, err error) {
	if w.Unchecked {
		return 0, nil
	}
	for _, p := range w.ports {
		n, err := p.refused()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

func (w *Wire) load() (err error) {
	w.data, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "lab_frames", Type: ebpf.Array, KeySize: 4, ValueSize: 8 + MaxWireFrame, MaxEntries: wireSlots,
	})
	if err != nil {
		return fmt.Errorf("making the frame map: %w", err)
	}
	w.next, err = ebpf.NewMap(&ebpf.MapSpec{Name: "lab_next", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("making the index map: %w", err)
	}
	w.prog, err = loadLive("lab_wire", w.program())
	return err
}

// program is, in C:
//
//	if (next.index >= next.count) return XDP_DROP;
//	slot = lookup(&data, next.index++);
//	len = slot->len;
//	bpf_xdp_adjust_tail(ctx, len - MaxWireFrame);
//	bpf_xdp_store_bytes(ctx, 0, slot->frame, len);
//	return bpf_redirect(slot->ifindex, 0);
func (w *Wire) program() asm.Instructions {
	const ctx, slot, length = asm.R6, asm.R8, asm.R9
	return asm.Instructions{
		asm.Mov.Reg(ctx, asm.R1),

		asm.LoadMapValue(asm.R3, w.next.FD(), 0),
		asm.LoadMem(asm.R1, asm.R3, 0, asm.Word),
		asm.LoadMem(asm.R2, asm.R3, 4, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "drop"),
		asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R3, 0, asm.R1, asm.Word),

		asm.LoadMapPtr(asm.R1, w.data.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Reg(slot, asm.R0),
		asm.LoadMem(length, slot, 4, asm.Word),
		asm.JLT.Imm(length, 14, "drop"), // bounds for the verifier; send checks them
		asm.JGT.Imm(length, MaxWireFrame, "drop"),

		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Reg(asm.R2, length), asm.Sub.Imm(asm.R2, MaxWireFrame),
		asm.FnXdpAdjustTail.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),

		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, slot), asm.Add.Imm(asm.R3, 8),
		asm.Mov.Reg(asm.R4, length),
		asm.FnXdpStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),

		asm.LoadMem(asm.R1, slot, 0, asm.Word),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	}
}

// takesXDP fails if XDP frames redirected to the port's peer, so that they arrive
// here, would be lost.
func (p *Port) takesXDP() error {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("%s is down and would lose XDP frames", p)
	}
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		return nil
	}
	gro, err := p.NS.Offload(p.Name, GRO)
	if err != nil {
		return err
	}
	if !gro {
		return fmt.Errorf("%s polls without NAPI and would lose XDP frames: give its End ReceiveGRO or ReceiveXDP", p)
	}
	return nil
}

// refused counts the XDP frames that the port's peer did not take.
func (p *Port) refused() (uint64, error) {
	_, refused, err := p.answered()
	return refused, err
}

// answered counts the XDP frames that the port's peer took, and those that it did not.
func (p *Port) answered() (taken, refused uint64, err error) {
	link, err := p.Peer.NS.nl.LinkByIndex(p.Peer.Index)
	if err != nil {
		return 0, 0, err
	}
	s := stats(link)
	return s.RxPackets, s.RxDropped, nil
}

// Received counts the frames that the port's receive queue has handed on, to an XDP program or to the network stack: once all that
// was sent to it has been counted, none of it can share a batch with what is sent next.
func (p *Port) Received() (uint64, error) {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", p, err)
	}
	return stats(link).RxPackets, nil
}

func stats(link netlink.Link) netlink.LinkStatistics {
	if s := link.Attrs().Statistics; s != nil {
		return *s
	}
	return netlink.LinkStatistics{}
}
