// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

// Trace is what a loaded program did with one frame.
type Trace struct {
	Reason   reason.Code
	Egress   int    // logical ifindex, 0 unless forwarded
	Frame    []byte // as the program left it; at TC the neighbour layer still has to write the addresses
	Duration time.Duration
}

const (
	minFrame   = 14                 // an Ethernet header: the kernel runs nothing on less
	shortFrame = 14 + 40            // below, the kernel may refuse: on IP ethertypes it wants a whole header (net/bpf/test_run.c, late stable kernels)
	largeFrame = 3000               // from about here on the kernel may refuse, see ErrFrameSize
	traceSize  = 16                 // struct shunt_trace
	traceMagic = 0x7368756e74747263 // SHUNT_TRACE_MAGIC
)

// ErrFrameSize is returned by Explain for frames on which the kernel cannot run a program by itself: at TC they fit into a page with its
// bookkeeping, and have more than an Ethernet header, and a whole IP header where the ethertype says IP.
var ErrFrameSize = errors.New("the kernel cannot test a TC program on such a frame")

// frameSize says what is wrong with a frame of a length that the kernel refused.
func frameSize(length int) error {
	limit := "it takes up to about 3500 bytes"
	if length < shortFrame {
		limit = "it is too short: the kernel wants a whole IP header where the Ethernet type says IP, and more than an Ethernet header elsewhere"
	}
	return fmt.Errorf("running the TC program on %d bytes: %w: %s", length, ErrFrameSize, limit)
}

// ErrNotLoaded is returned by Explain where no program runs.
var ErrNotLoaded = errors.New("no program is loaded there")

// Explain runs the very program that is loaded at a hook on one frame (BPF_PROG_TEST_RUN), as if the device had received it. Nothing is sent,
// and Counters do not show it.
func (d *Datapath) Explain(index int, hook graph.Hook, frame []byte) (t Trace, err error) {
	a := d.ports[hookKey{index, hook}]
	if a == nil || a.prog == nil {
		return t, ErrNotLoaded
	}
	if len(frame) < minFrame {
		return t, fmt.Errorf("running the program: a frame has at least %d bytes, this one %d", minFrame, len(frame))
	}
	if hook == graph.XDP {
		t, err = runXDP(a.prog, index, frame)
	} else {
		t, err = runTC(a.prog, index, frame)
	}
	if err != nil {
		return t, err
	}
	if t.Reason >= reason.Count {
		return t, fmt.Errorf("the %s program answered with reason %d, which does not exist", hook, t.Reason)
	}
	a.explained[t.Reason].Packets++
	a.explained[t.Reason].Bytes += uint64(len(t.Frame))
	return t, nil
}

// xdpContext is struct xdp_md (include/uapi/linux/bpf.h): offsets into the data given.
type xdpContext struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueue, EgressIfindex uint32 }

// runXDP puts the trace in front of the frame as metadata, where the program looks for it.
func runXDP(prog *ebpf.Program, index int, frame []byte) (t Trace, err error) {
	in := make([]byte, traceSize, traceSize+len(frame))
	binary.NativeEndian.PutUint64(in, traceMagic)
	in = append(in, frame...)
	ctx := xdpContext{Data: traceSize, DataEnd: uint32(len(in)), IngressIfindex: uint32(index)}
	var back xdpContext
	opts := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256), Context: ctx, ContextOut: &back}
	start := time.Now()
	if _, err := prog.Run(&opts); err != nil {
		return t, fmt.Errorf("running the XDP program: %w", err)
	}
	t.Duration = time.Since(start)
	if back.Data < traceSize || int(back.Data) > len(opts.DataOut) {
		return t, fmt.Errorf("running the XDP program: it left no trace (metadata of %d bytes)", back.Data)
	}
	var trace bpfobj.Trace
	if _, err := binary.Decode(opts.DataOut, binary.NativeEndian, &trace); err != nil || trace.Magic != traceMagic {
		return t, errors.New("running the XDP program: it left no trace")
	}
	t.Reason, t.Egress, t.Frame = reason.Code(trace.Reason), int(trace.Egress), opts.DataOut[back.Data:]
	return t, nil
}

// skbContext is struct __sk_buff (include/uapi/linux/bpf.h), with room for what later kernels add: the kernel gives back all of its own.
type skbContext struct {
	Len, PktType, Mark, QueueMapping, Protocol, VLANPresent, VLANTCI, VLANProto uint32
	Priority, IngressIfindex, Ifindex, TCIndex                                  uint32
	CB                                                                          [5]uint32
	_                                                                           [47]uint32
}

func runTC(prog *ebpf.Program, index int, frame []byte) (t Trace, err error) {
	ctx := skbContext{Ifindex: uint32(index)}
	const unset = ^uint32(0)
	ctx.CB[0], ctx.CB[1], ctx.CB[3] = traceMagic&0xffffffff, traceMagic>>32, unset
	var back skbContext
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: ctx, ContextOut: &back}
	start := time.Now()
	if _, err := prog.Run(&opts); errors.Is(err, unix.EINVAL) && (len(frame) < shortFrame || len(frame) > largeFrame) {
		return t, frameSize(len(frame))
	} else if err != nil {
		return t, fmt.Errorf("running the TC program on %d bytes: %w", len(frame), err)
	}
	t.Duration = time.Since(start)
	if back.CB[3] == unset {
		return t, errors.New("running the TC program: it left no trace")
	}
	t.Reason, t.Egress, t.Frame = reason.Code(back.CB[3]), int(back.CB[4]), opts.DataOut
	return t, nil
}
