// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func htons(v uint16) int { return int(v<<8 | v>>8) }

// packetSocket opens a packet socket in the thread's namespace.
func packetSocket(t *testing.T, typ int, proto uint16, index int, filter []byte) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if filter != nil {
		prog := make([]unix.SockFilter, len(filter)/8)
		for i := range prog {
			b := filter[8*i:]
			prog[i] = unix.SockFilter{Code: get16(b, 0), Jt: b[2], Jf: b[3], K: get32(b, 4)}
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(htons(proto)), Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestPacketSockets(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Sockets.Packet) != 0 {
		t.Fatalf("sockets: %+v", n.Sockets)
	}
	index := n.LinkByName("e0").Index
	filters := map[string][]byte{}
	compiled(t, func(name string, _, _ bool, raw []byte) { filters[name] = raw })
	for _, c := range []struct {
		what     string
		typ      int
		proto    uint16
		filter   string
		listed   bool
		harmless bool
		bridge   bool
	}{
		{"all", unix.SOCK_RAW, unix.ETH_P_ALL, "", true, false, true},
		{"IPv4", unix.SOCK_DGRAM, unix.ETH_P_IP, "", true, false, false},
		{"ARP", unix.SOCK_RAW, unix.ETH_P_ARP, "", true, true, false},
		{"LLDP", unix.SOCK_RAW, unix.ETH_P_LLDP, "", true, true, false},
		{"EAPOL", unix.SOCK_RAW, unix.ETH_P_PAE, "", true, true, false},
		{"nothing", unix.SOCK_RAW, 0, "", false, false, false},
		{"all, ARP filter", unix.SOCK_RAW, unix.ETH_P_ALL, "arp", true, true, false},
		{"all, DHCP filter", unix.SOCK_RAW, unix.ETH_P_ALL, "udp dst port 68", true, true, true},
		{"all, DNS filter", unix.SOCK_RAW, unix.ETH_P_ALL, "udp port 53", true, false, true},
		{"IPv6, IPv4 filter", unix.SOCK_RAW, unix.ETH_P_IPV6, "icmp", true, true, false},
	} {
		fd := packetSocket(t, c.typ, c.proto, index, filters[c.filter])
		n, err := r.Read(Sockets)
		if err != nil {
			t.Fatal(err)
		}
		got := n.Sockets.Packet
		switch {
		case !c.listed:
			if len(got) != 0 {
				t.Errorf("%s: %+v", c.what, got)
			}
		case len(got) != 1 || got[0].Harmless != c.harmless || got[0].OfBridge != c.bridge || got[0].Index != index || got[0].Protocol != c.proto:
			t.Errorf("%s: %+v", c.what, got)
		case !c.harmless && !strings.Contains(got[0].Process, "["):
			t.Errorf("%s: process %q of %d", c.what, got[0].Process, os.Getpid())
		}
		unix.Close(fd)
	}
}

func TestTransparentSockets(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	read := func(want bool, locals ...string) {
		t.Helper()
		r.transparentCost = 0
		n, err := r.Read(Sockets)
		if err != nil {
			t.Fatal(err)
		}
		if n.Sockets.Transparent != want || len(n.Faults) > 0 {
			t.Errorf("transparent = %t, want %t (faults %v)", n.Sockets.Transparent, want, n.Faults)
		}
		if got := fmt.Sprint(n.Sockets.Locals); got != fmt.Sprint(locals) {
			t.Errorf("own addresses of connected sockets are %s, want %s", got, locals)
		}
	}
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	connected := func(transparent bool) net.Conn {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(10, 1, 0, 1)}, Control: func(_, _ string, c syscall.RawConn) error {
			if !transparent {
				return nil
			}
			var err error
			c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
			return err
		}}
		conn, err := d.Dial("udp4", "10.1.0.9:9")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// Neither takes anything of what is forwarded: the one listens, the other has nobody to talk to.
	for _, network := range []string{"tcp4", "udp4"} {
		listening(t, network, "10.1.0.1:99")
	}
	read(false)
	plain := connected(false)
	read(false, "10.1.0.1")
	c := connected(true)
	read(true, "10.1.0.1")
	c.Close()
	read(false, "10.1.0.1")
	plain.Close()
	read(false)
}

// listening opens a transparent socket that waits for anybody.
func listening(t *testing.T, network, addr string) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
		return err
	}}
	var socket io.Closer
	var err error
	if network == "tcp4" {
		socket, err = config.Listen(t.Context(), network, addr)
	} else {
		socket, err = config.ListenPacket(t.Context(), network, addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
}

// A TCP connection that waits for its end (TIME_WAIT) is no socket any more that is counted, and early demultiplexing finds it all the same.
func TestWaitingConnectionsHaveAddresses(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	ns.run(t, "ip link set lo up")
	r := open(t, Options{})
	l, err := net.Listen("tcp4", "10.1.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 1, 0, 1)}}
	near, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	far.Close()
	l.Close()
	counts, err := r.socketCounts()
	if err != nil || counts["TCP"] != 0 {
		t.Fatalf("%d TCP sockets (%v)", counts["TCP"], err)
	}
	if n, err := r.Read(Sockets); err != nil || fmt.Sprint(n.Sockets.Locals) != "[10.1.0.1]" {
		t.Errorf("addresses %v (%v)", n.Sockets.Locals, err)
	}
}
