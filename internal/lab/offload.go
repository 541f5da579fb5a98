// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is a device feature switched by the ethtool ioctl of its own.
type Offload uint32

// The offloads that decide how frames travel between veth ends. Values are the
// ETHTOOL_S… commands of <linux/ethtool.h>.
const (
	TxChecksum Offload = 0x17 // off: local senders fill in checksums, as on the wire
	TSO        Offload = 0x1f
	GSO        Offload = 0x24
	GRO        Offload = 0x2c // on: a veth gets a NAPI, so that XDP frames can arrive
)

// SetOffload switches one offload of an interface, as `ethtool -K` does.
func (ns *NS) SetOffload(iface string, o Offload, on bool) error {
	value := ethtoolValue{cmd: uint32(o)}
	if on {
		value.data = 1
	}
	if err := ns.ethtool(iface, &value); err != nil {
		return fmt.Errorf("setting offload %#x of %s to %v: %w", uint32(o), iface, on, err)
	}
	return nil
}

// Offload reads one offload of an interface.
func (ns *NS) Offload(iface string, o Offload) (bool, error) {
	value := ethtoolValue{cmd: uint32(o) - 1} // each G… command precedes its S… command
	if err := ns.ethtool(iface, &value); err != nil {
		return false, fmt.Errorf("reading offload %#x of %s: %w", uint32(o), iface, err)
	}
	return value.data != 0, nil
}

// ethtoolValue is struct ethtool_value of <linux/ethtool.h>.
type ethtoolValue struct{ cmd, data uint32 }

func (ns *NS) ethtool(iface string, value *ethtoolValue) error {
	var req struct { // struct ifreq with a pointer in its union
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], iface)
	req.data = unsafe.Pointer(value)
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening a socket: %w", err)
		}
		defer unix.Close(fd)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return errno
		}
		return nil
	})
}

// SetThreaded moves the interface's NAPI polling to kernel threads called
// napi/IFACE-ID (or back), which [Meter] can pin and read.
func (ns *NS) SetThreaded(iface string, on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return ns.writeSysfs("class/net/"+iface+"/threaded", value)
}
