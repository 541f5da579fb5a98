// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hz gives jiffies per second: user space's own tick is always 100, but the kernel tells the resolution of its coarse clock,
// which is one jiffy.
func hz() (int, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		return 0, fmt.Errorf("asking for the length of a jiffy: %w", err)
	}
	if ts.Nano() <= 0 {
		return 0, errors.New("the kernel tells no length of a jiffy")
	}
	return int((1e9 + ts.Nano()/2) / ts.Nano()), nil
}

// tcxQuery asks the loopback device for its tcx programs, which only kernels with tcx answer.
func tcxQuery() error {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err
}
