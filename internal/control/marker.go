// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// marker tells Linux not to check the windows of TCP connections that the fast path is to carry: it will see a FIN after megabytes that
// it has not seen, and would call it invalid. Only connections that the data path names are marked (an event listener would cost every
// connection), each by itself; the sysctl that would do it for all is the user's. A mark stays for the connection's life.
type marker struct {
	netns string              // path of the namespace, "" for the process's own
	ns    *os.File            // the namespace itself
	fresh func() (int, error) // opens a socket
	told  *datapath.Unmarked
	sock  int // opened with the first mark, since to open it may load a module; -1 before
	log   *slog.Logger
	done  chan struct{}
}

func newMarker(d *datapath.Datapath, opts Options, ns *os.File, log *slog.Logger) (*marker, error) {
	told, err := d.Unmarked()
	if err != nil {
		return nil, err
	}
	m := &marker{netns: opts.NetnsPath, ns: ns, fresh: opts.trackSocket, told: told, sock: -1, log: log, done: make(chan struct{})}
	if m.fresh == nil {
		m.fresh = func() (int, error) {
			return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		}
	}
	go m.run()
	return m, nil
}

func (m *marker) close() {
	m.told.Close()
	<-m.done
}

func (m *marker) run() {
	defer close(m.done)
	defer func() {
		if m.sock >= 0 {
			unix.Close(m.sock)
		}
	}()
	for refused := false; ; {
		all, err := m.told.Next()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err == nil {
			err = m.mark(all)
		}
		if err != nil {
			level := slog.LevelDebug
			if !refused {
				level = slog.LevelWarn
			}
			refused = true
			m.log.Log(context.Background(), level, "TCP connections that Linux tracks stay with it (conntrack-window)", "connections", len(all), "err", err)
		}
	}
}

// open makes a socket in the namespace.
func (m *marker) open() (sock int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, whatever namespace it is in
		if m.netns != "" {
			if err = enterFile(int(m.ns.Fd()), m.netns); err != nil {
				return
			}
		}
		if sock, err = m.fresh(); err != nil {
			err = fmt.Errorf("opening a netlink socket for connections: %w", err)
		}
	}()
	<-done
	return sock, err
}

// mark marks some connections. Linux has done it when the messages are sent, and answers only what it did not do; connections may be gone by now.
func (m *marker) mark(all []datapath.Connection) (err error) {
	if m.sock < 0 {
		if m.sock, err = m.open(); err != nil {
			m.sock = -1
			return err
		}
	}
	var messages []byte
	for _, c := range all {
		message, err := marking(c)
		if err != nil {
			return err
		}
		messages = append(messages, message...)
	}
	if err := unix.Sendto(m.sock, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to connection tracking: %w", err)
	}
	return m.answers()
}

// answers empties the socket, and returns an error that Linux named.
func (m *marker) answers() (err error) {
	b := make([]byte, 8192)
	for {
		n, _, recvErr := unix.Recvfrom(m.sock, b, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(recvErr, unix.EAGAIN):
			return err
		case errors.Is(recvErr, unix.ENOBUFS): // more answers than there is room for
			continue
		case recvErr != nil:
			return fmt.Errorf("receiving from connection tracking: %w", recvErr)
		}
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
			continue
		}
		if code := unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:]))); code != unix.ENOENT {
			err = fmt.Errorf("connection tracking says: %w", code)
		}
	}
}

// linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_tcp.h
const (
	ctNew = 1 << 8 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW

	ctTupleOrig  = 1
	ctTupleReply = 2
	ctProtoInfo  = 4
	ctZone       = 18

	ctTupleIP    = 1
	ctTupleProto = 2
	ctTupleZone  = 3

	ctIPv4Src = 1
	ctIPv4Dst = 2
	ctIPv6Src = 3
	ctIPv6Dst = 4

	ctProtoNum     = 1
	ctProtoSrcPort = 2
	ctProtoDstPort = 3

	ctProtoInfoTCP     = 1
	ctTCPFlagsOriginal = 4
	ctTCPFlagsReply    = 5

	ctTCPBeLiberal          = 0x08
	ctTCPDataUnacknowledged = 0x10
)

// marking is a message that sets the flag on both sides of a connection, and clears the one that something is unacknowledged, which would stay for ever since Linux
// takes no notice of acknowledgements beyond the windows that it knows. Without NLM_F_CREATE nothing is made of one that is not there; either direction's addresses
// find it, in the zone that its packets are looked up in: Linux takes one for a single direction with the addresses that are called those of that direction
// (ctnetlink_parse_tuple_zone()), whichever the packet's is.
func marking(c datapath.Connection) ([]byte, error) {
	family, src, dst := byte(unix.AF_INET), uint16(ctIPv4Src), uint16(ctIPv4Dst)
	if c.Src.Addr().Is6() {
		family, src, dst = unix.AF_INET6, ctIPv6Src, ctIPv6Dst
	}
	tuple, oneWay := uint16(ctTupleOrig), c.ZoneDir == ruleset.ZoneOriginal || c.ZoneDir == ruleset.ZoneReply
	if c.ZoneDir == ruleset.ZoneReply {
		tuple = ctTupleReply
	}
	zone := []byte{byte(c.Zone >> 8), byte(c.Zone)}
	liberal := []byte{ctTCPBeLiberal, ctTCPBeLiberal | ctTCPDataUnacknowledged} // value, mask
	body, err := attributes(func(ae *netlink.AttributeEncoder) {
		ae.Nested(tuple, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(ctTupleIP, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(src, c.Src.Addr().AsSlice())
				ae.Bytes(dst, c.Dst.Addr().AsSlice())
				return nil
			})
			ae.Nested(ctTupleProto, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(ctProtoNum, unix.IPPROTO_TCP)
				ae.Bytes(ctProtoSrcPort, []byte{byte(c.Src.Port() >> 8), byte(c.Src.Port())})
				ae.Bytes(ctProtoDstPort, []byte{byte(c.Dst.Port() >> 8), byte(c.Dst.Port())})
				return nil
			})
			if oneWay {
				ae.Bytes(ctTupleZone, zone)
			}
			return nil
		})
		if !oneWay && c.Zone != 0 {
			ae.Bytes(ctZone, zone)
		}
		ae.Nested(ctProtoInfo, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(ctProtoInfoTCP, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(ctTCPFlagsOriginal, liberal)
				ae.Bytes(ctTCPFlagsReply, liberal)
				return nil
			})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	message := netlink.Message{Header: netlink.Header{Type: ctNew, Flags: netlink.Request}, Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, body...)}
	message.Header.Length = uint32(unix.SizeofNlMsghdr + len(message.Data))
	b, err := message.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encoding a message to connection tracking: %w", err)
	}
	return b, nil
}

func attributes(fill func(*netlink.AttributeEncoder)) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding a message to connection tracking: %w", err)
	}
	return b, nil
}
