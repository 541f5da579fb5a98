// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
)

const refreshEvery = 500 * time.Millisecond

// refresher looks after neighbours for the XDP path: it keeps those alive that are in use, and tells the data path of changes. bpf_fib_lookup() takes a MAC from an entry without telling the entry, so it
// would turn STALE and a changed MAC would never be noticed. NTF_USE does what a forwarded packet does (neigh_event_send()).
type refresher struct {
	data   *datapath.Datapath
	handle *netlink.Handle
	log    *slog.Logger
	asking map[int]*nl.SocketHandle // what touch asks through, by netlink family
	events *nl.NetlinkSocket        // neighbours, IPv6 routes
	next   time.Time
	closed atomic.Bool
	done   chan struct{}
}

func newRefresher(d *datapath.Datapath, log *slog.Logger) (*refresher, error) {
	h, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for neighbours: %w", err)
	}
	asking, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("opening a netlink socket for neighbours in use: %w", err)
	}
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		h.Close()
		asking.Close()
		return nil, fmt.Errorf("subscribing to neighbour and route events: %w", err)
	}
	r := &refresher{data: d, handle: h, asking: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: asking}}, log: log, events: events, done: make(chan struct{})}
	go r.forget()
	return r, nil
}

func (r *refresher) close() {
	r.closed.Store(true)
	r.events.Close()
	<-r.done
	r.handle.Close()
	for _, s := range r.asking {
		s.Close()
	}
}

// forget ends remembered route lookups whenever a neighbour changes, since MACs are remembered with them, or an IPv6 route, whose removal no
// generation tells. An error (events were lost) counts as a change.
func (r *refresher) forget() {
	defer close(r.done)
	for !r.closed.Load() {
		if _, _, err := r.events.Receive(); err != nil && !r.closed.Load() {
			r.log.Debug("neighbour or route events were lost", "err", err)
			time.Sleep(time.Millisecond)
		}
		r.data.Forget()
	}
}

// tick is called from the loop, about twenty times a second.
func (r *refresher) tick(now time.Time) {
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(refreshEvery)
	used, err := r.data.UsedNeighbours()
	if err != nil {
		r.log.Error("reading which neighbours are in use", "err", err)
		return
	}
	stale := map[[2]int]map[netip.Addr]entryFlags{}
	for _, n := range used {
		key := [2]int{n.Index, n.Family}
		if stale[key] == nil {
			stale[key] = r.stale(n.Index, n.Family)
		}
		if flags, is := stale[key][n.Addr]; is {
			r.touch(n, flags)
		}
	}
}

// entryFlags are what an entry has been given by whoever made it: learned elsewhere (NTF_EXT_LEARNED), kept alive by the kernel itself (NTF_EXT_MANAGED).
type entryFlags struct {
	flags uint8
	ext   uint32
}

// stale lists a device's neighbours that a packet would now make the kernel probe. Others must not be touched: NTF_USE takes the
// PERMANENT from a permanent entry (__neigh_update(), NEIGH_UPDATE_F_USE).
func (r *refresher) stale(index, family int) map[netip.Addr]entryFlags {
	out := map[netip.Addr]entryFlags{}
	list, err := r.handle.NeighList(index, family)
	if err != nil {
		r.log.Debug("listing neighbours", "ifindex", index, "err", err)
		return out
	}
	for _, n := range list {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State == netlink.NUD_STALE {
			out[addr.Unmap()] = entryFlags{uint8(n.Flags), uint32(n.FlagsExt)}
		}
	}
	return out
}

// touch makes the kernel treat a neighbour as one that a packet was sent to. The request is put together here, since those of the netlink package
// may also create: an entry that was deleted since it was listed would come back. Flags that a request leaves out the kernel takes from the entry (neigh_update_flags()).
func (r *refresher) touch(n datapath.Neighbour, keep entryFlags) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.Sockets = r.asking
	req.AddData(&netlink.Ndmsg{Family: uint8(n.Family), Index: uint32(n.Index), Flags: keep.flags | netlink.NTF_USE})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, n.Addr.AsSlice()))
	if keep.ext != 0 {
		req.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(keep.ext)))
	}
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		r.log.Debug("refreshing a neighbour", "neighbour", n.Addr, "ifindex", n.Index, "err", err)
	}
}
