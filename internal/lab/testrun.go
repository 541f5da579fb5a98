// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// testRun is the part of union bpf_attr that BPF_PROG_TEST_RUN uses. The library's own call returns either a duration or takes a
// context, and a program that looks at its device needs both.
type testRun struct {
	progFD, retval        uint32
	sizeIn, sizeOut       uint32
	dataIn, dataOut       uint64
	repeat, duration      uint32
	ctxSizeIn, ctxSizeOut uint32
	ctxIn, ctxOut         uint64
	flags, cpu, batch     uint32
	_                     uint32
}

// TestRun runs a program on a frame as if the device with the index had received it, repeat times, and returns the mean time of a run in
// nanoseconds, by the kernel's clock, and what the last one returned. Each run gets the frame as the one before left it.
func TestRun(prog *ebpf.Program, index int, frame []byte, repeat int) (ns float64, verdict uint32, err error) {
	ctx := make([]byte, 4*48) // struct __sk_buff up to hwtstamp
	at := 40                  // of its ifindex
	if prog.Type() == ebpf.XDP {
		ctx = ctx[:24] // struct xdp_md
		binary.NativeEndian.PutUint32(ctx[4:], uint32(len(frame)))
		at = 12 // of its ingress_ifindex
	}
	binary.NativeEndian.PutUint32(ctx[at:], uint32(index))
	attr := testRun{
		progFD: uint32(prog.FD()), repeat: uint32(repeat),
		sizeIn: uint32(len(frame)), dataIn: uint64(uintptr(unsafe.Pointer(&frame[0]))),
		ctxSizeIn: uint32(len(ctx)), ctxIn: uint64(uintptr(unsafe.Pointer(&ctx[0]))),
	}
	const progTestRun = 10
	for {
		_, _, errno := unix.Syscall(unix.SYS_BPF, progTestRun, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		runtime.KeepAlive(frame)
		runtime.KeepAlive(ctx)
		switch {
		case errno == 0:
			return float64(attr.duration), attr.retval, nil
		case errors.Is(errno, unix.EINTR), errors.Is(errno, unix.EAGAIN): // a signal of the runtime
		default:
			return 0, 0, fmt.Errorf("running a program: %w", errno)
		}
	}
}
