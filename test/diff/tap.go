// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// tap is a packet socket in the router: what tcpdump or a DHCP client opens.
type tap int

// listen reads "any" or a device's name, and "all" or a protocol's number in hex.
func (t *twin) listen(args string) (tap, error) {
	f := strings.Fields(args)
	if len(f) != 2 {
		return -1, fmt.Errorf("listen %q: want a port and a protocol", args)
	}
	index := 0
	if f[0] != "any" {
		link, err := t.dut.Netlink().LinkByName(f[0])
		if err != nil {
			return -1, fmt.Errorf("listening %s: %w", args, err)
		}
		index = link.Attrs().Index
	}
	proto := uint16(unix.ETH_P_ALL)
	if f[1] != "all" {
		if _, err := fmt.Sscanf(f[1], "%x", &proto); err != nil {
			return -1, fmt.Errorf("listen %q: %w", args, err)
		}
	}
	wire := binary.NativeEndian.Uint16([]byte{byte(proto >> 8), byte(proto)})
	fd := -1
	err := t.dut.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: wire, Ifindex: index})
	})
	if err != nil {
		return -1, fmt.Errorf("listening %s: %w", args, err)
	}
	return tap(fd), nil
}

func (s tap) close() error { return unix.Close(int(s)) }
