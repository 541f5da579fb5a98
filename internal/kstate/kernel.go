// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// request is one netlink question.
type request struct {
	proto int    // NETLINK_*
	typ   uint16 // message type
	flags uint16 // NLM_F_*, beyond those of a question
	dump  bool
	body  []byte // fixed header and attributes
}

// kernel is every way in which the package asks the kernel. live is the real one; a recording stands in for it in Replay.
type kernel interface {
	// netlink sends a request and calls each for every message of the answer. The data is valid during the call only.
	netlink(q request, each func(typ uint16, data []byte) error) error
	// file reads a small file of /proc or /sys without trailing newline.
	file(path string) (string, error)
	// builtin says which of these functions the kernel itself has, and no module of it.
	builtin(functions []string) (map[string]bool, error)
	// list names the entries of a directory.
	list(path string) ([]string, error)
	// driver is the ethtool driver name of a device.
	driver(name string) (string, error)
	// attached are the ids of the programs of one attach type on a device; none where the kernel lacks the attach type.
	attached(index int, at ebpf.AttachType) ([]uint32, error)
	// program is the name of a BPF program.
	program(id uint32) (string, error)
	// walk lists the functions at a netfilter hook of IPv4 or IPv6, on kernels that do not list them by themselves.
	walk(family model.Family, hook uint32) ([]walkedHook, error)
	// netfilterLinks are the BPF netfilter links of the whole machine.
	netfilterLinks() ([]netfilterLink, error)
	// legacy is the blob of a legacy table (struct ipt_getinfo followed by the entries). The table must exist.
	legacy(family int, table string) ([]byte, error)
	// owner is "command[pid]" of a process that holds the socket, "" when none is found.
	owner(inode uint64) (string, error)
}

// live asks the kernel that the calling thread runs in.
type live struct {
	socks map[int]*reqSocket
	buf   []byte // reused for every answer
	ioctl int    // socket for ethtool ioctls, -1 until needed
}

func newLive() *live {
	return &live{socks: map[int]*reqSocket{}, buf: make([]byte, 1<<18), ioctl: -1}
}

func (l *live) close() {
	for _, s := range l.socks {
		unix.Close(s.fd)
	}
	if l.ioctl >= 0 {
		unix.Close(l.ioctl)
	}
}

func (l *live) netlink(q request, each func(typ uint16, data []byte) error) error {
	s := l.socks[q.proto]
	if s == nil {
		var err error
		if s, err = newReqSocket(q.proto); err != nil {
			return err
		}
		l.socks[q.proto] = s
	}
	return s.do(q, l.buf, each)
}

// thread makes /proc paths speak of the calling thread: /proc/net belongs to the main thread's namespace.
func thread(path string) string {
	if rest, ok := strings.CutPrefix(path, "/proc/net/"); ok {
		return "/proc/thread-self/net/" + rest
	}
	return path
}

func (l *live) file(path string) (string, error) {
	fd, err := unix.Open(thread(path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var out []byte
	for {
		n, err := unix.Read(fd, l.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return strings.TrimRight(string(out), "\n"), nil
		}
		out = append(out, l.buf[:n]...)
	}
}

func (l *live) builtin(functions []string) (map[string]bool, error) {
	return builtinFunctions(functions)
}

func (l *live) list(path string) ([]string, error) {
	entries, err := os.ReadDir(thread(path))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (l *live) driver(name string) (string, error) {
	if l.ioctl < 0 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		l.ioctl = fd
	}
	info, err := unix.IoctlGetEthtoolDrvinfo(l.ioctl, name)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return unix.ByteSliceToString(info.Driver[:]), nil
}

func (l *live) attached(index int, at ebpf.AttachType) ([]uint32, error) {
	res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
	// Kernels before 6.6 do not know tcx and say EINVAL.
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids := make([]uint32, len(res.Programs))
	for i, p := range res.Programs {
		ids[i] = uint32(p.ID)
	}
	return ids, nil
}

func (l *live) program(id uint32) (string, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

func (l *live) walk(family model.Family, hook uint32) ([]walkedHook, error) {
	w, err := theHookWalk()
	if err != nil {
		return nil, err
	}
	return w.hooks(family, hook)
}

// netfilterLink is a BPF program hooked into netfilter.
type netfilterLink struct {
	Family   uint32 `json:"family"` // NFPROTO_*
	Hook     uint32 `json:"hook"`
	Priority int    `json:"priority"`
}

// A link that somebody is making at that moment has a number and cannot be opened yet: EAGAIN (kernel/bpf/syscall.c, bpf_link_by_id).
func (l *live) netfilterLinks() (out []netfilterLink, err error) {
	for range 100 {
		if out, err = linksNow(); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return out, err
}

func linksNow() (out []netfilterLink, err error) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			return nil, err
		}
		if info.Type != link.NetfilterType {
			continue
		}
		n := info.Netfilter()
		if n == nil {
			return nil, fmt.Errorf("BPF link %d: no netfilter information", info.ID)
		}
		out = append(out, netfilterLink{uint32(n.ProtocolFamily), uint32(n.Hook), int(n.Priority)})
	}
	return out, it.Err()
}

// getsockopt with a buffer that is read and written, which x/sys/unix does not offer.
func getsockopt(fd, level, opt int, buf []byte) error {
	n := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (l *live) owner(inode uint64) (string, error) {
	want := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "", err
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != want {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s[%s]", strings.TrimSpace(string(comm)), pid), nil
	}
	return "", nil
}
