// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/internal/kstate/ipset"
	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Options of a Reader. The zero value is usable.
type Options struct {
	// IsOwn tells the caller's own BPF programs from foreign ones; nil means that all are foreign.
	IsOwn func(progID uint32, name string) bool
	// Recorder writes down all questions to the kernel with their answers; nil records nothing.
	Recorder *Recorder
	// ReceiveBuffer is the size in bytes of each event socket's buffer in the kernel; 0 means 8 MiB. Memory is used only
	// while events wait.
	ReceiveBuffer int
	// Settle bounds how long Wait goes on draining after the first event, while more are immediately there; 0 means 300 µs.
	Settle time.Duration
}

// Stats are counters since Open.
type Stats struct {
	Events      uint64 // messages from the kernel, route events included
	Resyncs     uint64 // times that events were lost
	Interrupted uint64 // dumps that had to be repeated
	RuleDumps   uint64 // times that all of nf_tables was read
	RuleChanges uint64 // rules that were read from an event instead
	SetDumps    uint64 // sets whose elements alone were read again
}

// Reader reads the kernel state of the network namespace that it was opened in. See the package's description for the
// thread that it belongs to.
type Reader struct {
	opts Options
	k    kernel
	live *live
	tid  int // of the thread that it was opened on

	sources []source // sockets and watches, in poll order
	wake    int      // eventfd
	wakeMu  sync.Mutex
	closed  bool // under wakeMu
	watch   *watch
	events  atomic.Uint64
	resyncs atomic.Uint64

	interrupted atomic.Uint64
	nftDumps    atomic.Uint64
	nftChanges  atomic.Uint64
	setDumps    atomic.Uint64

	woken  bool
	dirty  Parts        // found by events, not yet returned by Wait
	links  map[int]bool // ifindexes to be read again
	addrs  map[int]bool
	fresh  map[int]bool // devices that appeared in this Read
	stale  Parts        // found while reading: parts to be read in the same Read
	read   Parts        // by the last Read
	last   model.Network
	began  bool // something was read
	routes routeState
	nft    *nftTables
	nftLog nftLog
	noNFT  *nftTables // while the module is not loaded
	legacy []*legacyTable
	filter filter
	whole  bool // rules are read with all sets and counters, for their user

	genl        genl
	faults      map[Parts][]model.ReadFault
	unknown     map[Parts][]model.Unknown
	qdisc       map[int]string // root qdisc by ifindex
	lives       lives
	drivers     map[int]string
	progNames   map[uint32]string
	owners      map[uint64]string
	builtin     map[string]bool
	builtinList map[string]bool

	transparentRead time.Time
	transparentCost time.Duration

	lessons   lessons
	paths     paths
	underlays underlays
}

func newReader(opts Options, k kernel) *Reader {
	if opts.ReceiveBuffer == 0 {
		opts.ReceiveBuffer = 8 << 20
	}
	if opts.Settle == 0 {
		opts.Settle = 300 * time.Microsecond
	}
	return &Reader{
		nft: &nftTables{}, noNFT: &nftTables{dump: &nftables.Dump{}}, filter: filter{sets: &ipset.Dump{}},
		opts: opts, k: k, wake: -1, links: map[int]bool{}, addrs: map[int]bool{}, fresh: map[int]bool{},
		faults: map[Parts][]model.ReadFault{}, unknown: map[Parts][]model.Unknown{}, qdisc: map[int]string{}, lives: lives{of: map[int]int{}}, drivers: map[int]string{},
		progNames: map[uint32]string{}, owners: map[uint64]string{}, builtin: map[string]bool{},
	}
}

// Open opens all sockets in the network namespace of the calling thread, which must be locked, and subscribes to every
// source of events. Nothing is read yet.
func Open(opts Options) (*Reader, error) {
	l := newLive()
	var k kernel = l
	if opts.Recorder != nil {
		k = &recorded{kernel: l, rec: opts.Recorder}
	}
	r := newReader(opts, k)
	r.live, r.tid = l, unix.Gettid()
	if err := r.open(); err != nil {
		r.Close()
		return nil, fmt.Errorf("opening the kernel's event sources: %w", err)
	}
	return r, nil
}

func (r *Reader) open() (err error) {
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	r.sources = append(r.sources, source{name: "wake", fd: r.wake, drain: (*Reader).drainWake})
	if err := r.subscribe("rtnetlink", unix.NETLINK_ROUTE, rtEvents, Links|Addrs|Rules|TC|Sysctl|XDP, rtGroups...); err != nil {
		return err
	}
	// Routes have a socket of their own, so that their churn cannot crowd out the other events.
	if err := r.subscribe("routes", unix.NETLINK_ROUTE, routeEvents, Routes, routeGroups...); err != nil {
		return err
	}
	if r.genl, err = findGenl(r.k); err != nil {
		return fmt.Errorf("listing generic netlink families: %w", err)
	}
	if r.genl.netdevMgmt != 0 {
		if err := r.subscribe("netdev", unix.NETLINK_GENERIC, netdevEvents, Links, r.genl.netdevMgmt); err != nil {
			return err
		}
	}
	if _, err := r.k.file("/proc/modules"); err == nil {
		if err := r.subscribe("modules", unix.NETLINK_KOBJECT_UEVENT, nil, Netfilter|XFRM, 1); err != nil {
			return err
		}
	}
	if r.loaded("nf_tables") {
		r.subscribeNFT()
	}
	if r.loaded("xfrm_user") {
		r.subscribeXFRM()
	}
	return r.openWatch()
}

// Close closes all sockets and watches.
func (r *Reader) Close() error {
	r.wakeMu.Lock()
	r.closed = true
	r.wakeMu.Unlock()
	for _, s := range r.sources {
		if r.watch == nil || s.fd != r.watch.fd {
			unix.Close(s.fd)
		}
	}
	r.sources = nil
	if r.watch != nil {
		r.watch.close()
		r.watch = nil
	}
	if r.live != nil {
		r.live.close()
		r.live = nil
	}
	return nil
}

// Wake makes a running or the next Wait return at once. It may be called from any goroutine; after Close it does nothing.
func (r *Reader) Wake() {
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	if r.closed { // the descriptor may be another's by now
		return
	}
	one := [8]byte{1}
	unix.Write(r.wake, one[:]) // fails only when the counter is full, and then Wait wakes anyway
}

// Stats gives the counters. It may be called from any goroutine.
func (r *Reader) Stats() Stats {
	return Stats{Events: r.events.Load(), Resyncs: r.resyncs.Load(), Interrupted: r.interrupted.Load(),
		RuleDumps: r.nftDumps.Load(), RuleChanges: r.nftChanges.Load(), SetDumps: r.setDumps.Load()}
}

// onThread makes sure that a caller is where the sockets were opened: elsewhere, /proc and BPF would speak of another
// namespace, and the Network would be a mixture.
func (r *Reader) onThread() error {
	switch {
	case r.live != nil && unix.Gettid() != r.tid:
		return errors.New("the reader is used on another thread than it was opened on (runtime.LockOSThread is missing)")
	case r.live == nil && r.tid != 0:
		return errors.New("the reader is closed")
	}
	return nil
}

// attempts bounds how often an interrupted dump is repeated before it counts as unreadable.
const attempts = 5

// ask runs a question again while changes interrupt it. The question must begin by dropping what an earlier run collected.
func (r *Reader) ask(what string, question func() error) (err error) {
	for range attempts {
		err = question()
		if !errors.Is(err, errInterrupted) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOBUFS) {
			break
		}
		r.interrupted.Add(1)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// fault remembers that something of a part could not be read.
func (r *Reader) fault(p Parts, part string, err error) {
	r.faults[p] = append(r.faults[p], model.ReadFault{Part: part, Err: err.Error()})
}
