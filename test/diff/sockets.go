// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openSocket opens a socket in the router that may take packets which are not for it: "udp LOCAL [REMOTE]", bound and perhaps connected; "udp-transparent LOCAL [REMOTE]" and
// "tcp-transparent LOCAL", which listens, with addresses that are not the router's; "xdp PORT". "none" closes all.
func (t *twin) openSocket(args string) error {
	f := strings.Fields(args)
	if args == "none" {
		return t.closeSockets()
	}
	if len(f) < 2 {
		return fmt.Errorf("socket %q: want a kind and an address", args)
	}
	fd, err := -1, error(nil)
	if f[0] == "xdp" {
		fd, err = t.afXDP(f[1])
	} else {
		fd, err = t.ipSocket(f[0], f[1:])
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", args, err)
	}
	t.sockets = append(t.sockets, fd)
	return nil
}

func (t *twin) closeSockets() error {
	var errs []error
	for _, fd := range t.sockets {
		errs = append(errs, unix.Close(fd))
	}
	t.sockets = nil
	return errors.Join(errs...)
}

func (t *twin) ipSocket(kind string, where []string) (fd int, err error) {
	var addrs []unix.Sockaddr
	family, level, transparent := unix.AF_INET, unix.SOL_IP, unix.IP_TRANSPARENT
	for _, text := range where {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			return -1, err
		}
		if at.Addr().Is6() {
			family, level, transparent = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_TRANSPARENT
			addrs = append(addrs, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
			continue
		}
		addrs = append(addrs, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	typ := unix.SOCK_DGRAM
	if strings.HasPrefix(kind, "tcp") {
		typ = unix.SOCK_STREAM
	}
	if err := t.dut.Do(func() (err error) {
		fd, err = unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return -1, err
	}
	do := func() error {
		if strings.HasSuffix(kind, "transparent") {
			if err := unix.SetsockoptInt(fd, level, transparent, 1); err != nil {
				return fmt.Errorf("making it transparent: %w", err)
			}
		}
		if err := unix.Bind(fd, addrs[0]); err != nil {
			return fmt.Errorf("binding: %w", err)
		}
		if typ == unix.SOCK_STREAM {
			return unix.Listen(fd, 10)
		}
		if len(addrs) > 1 {
			return unix.Connect(fd, addrs[1])
		}
		return nil
	}
	if err := do(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// afXDP binds an AF_XDP socket to a port's first queue, by copy, as programs do before they load a program that fills it.
func (t *twin) afXDP(port string) (int, error) {
	dev, err := t.dut.Netlink().LinkByName(port)
	if err != nil {
		return -1, err
	}
	fd := -1
	if err := t.dut.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return -1, err
	}
	do := func() error {
		const frames, size, ring = 16, 2048, 16
		if t.umem == nil {
			if t.umem, err = unix.Mmap(-1, 0, frames*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
				return err
			}
		}
		reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&t.umem[0]))), Len: uint64(len(t.umem)), Size: size}
		if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG, uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0); errno != 0 {
			return fmt.Errorf("giving it memory: %w", errno)
		}
		for _, option := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
			if err := unix.SetsockoptInt(fd, unix.SOL_XDP, option, ring); err != nil {
				return fmt.Errorf("making its rings: %w", err)
			}
		}
		return unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(dev.Attrs().Index)})
	}
	if err := do(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
