// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
)

// attachTCX puts a program last at a device's tcx ingress, so that programs of others run before it.
func (d *Datapath) attachTCX(index int, prog *ebpf.Program) (*attachment, error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
	if err != nil {
		return nil, fmt.Errorf("attaching to tcx: %w", err)
	}
	return &attachment{hold: linkHold{l}}, nil
}

// clsact is the way before Linux 6.6: a direct-action filter with a stub, on a clsact queueing discipline. A filter outlives its maker, so
// the stub's slot, which the kernel empties when we die, makes it harmless.
type clsact struct {
	index  int
	handle uint32 // of the filter
}

const (
	filterName     = "shunt"
	filterPriority = 0xff00 // late: filters of others run first
	// The handle tells a later daemon whether the clsact below was ours to remove.
	handleForeign = 0x5301
	handleOwn     = 0x5302
)

// attachClsact attaches the TC stub with a filter.
func (d *Datapath) attachClsact(index int) (*attachment, error) {
	spec := d.objects.stubs.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{"shunt_stub_tc": spec.Programs["shunt_stub_tc"]}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the TC stub: %w", err)
	}
	defer coll.Close()
	c := clsact{index: index, handle: handleOwn}
	qdisc := netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	switch err := netlink.QdiscAdd(&qdisc); {
	case errors.Is(err, unix.EEXIST):
		c.handle = handleForeign
	case err != nil:
		return nil, fmt.Errorf("adding a clsact queueing discipline: %w", err)
	}
	f := c.filter()
	f.Fd, f.Name, f.DirectAction = coll.Programs["shunt_stub_tc"].FD(), filterName, true
	if err := netlink.FilterAdd(f); err != nil {
		return nil, errors.Join(fmt.Errorf("adding the TC filter: %w", err), c.removeQdisc())
	}
	return &attachment{hold: c, slot: coll.DetachMap("slot")}, nil
}

func (c clsact) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: c.index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: c.handle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
	}}
}

// adoptClsact takes over the filters that an earlier daemon left.
func (d *Datapath) adoptClsact() error {
	if d.features.TCX {
		return nil
	}
	return eachClsact(func(c clsact, name string, prog ebpf.ProgramID) error {
		slot, _, err := mapOf(prog)
		if err != nil {
			return fmt.Errorf("adopting the TC stub of %s: %w", name, err)
		}
		a, err := d.withStats(&attachment{hold: c, slot: slot})
		if err != nil {
			return err
		}
		d.ports[hookKey{c.index, graph.TC}] = a
		return nil
	})
}

// eachClsact visits shunt's filters in the thread's namespace, with their devices' names and their programs.
func eachClsact(visit func(c clsact, name string, prog ebpf.ProgramID) error) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	for _, l := range links {
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			continue // a device that vanished
		}
		for _, f := range filters {
			b, ok := f.(*netlink.BpfFilter)
			if !ok || b.Name != filterName || b.Priority != filterPriority {
				continue
			}
			if err := visit(clsact{l.Attrs().Index, b.Handle}, l.Attrs().Name, ebpf.ProgramID(b.Id)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c clsact) attached() (ebpf.ProgramID, error) {
	filters, err := netlink.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: c.index}}, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return 0, err
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName {
			return ebpf.ProgramID(b.Id), nil
		}
	}
	return 0, ebpf.ErrKeyNotExist
}

func (c clsact) update(*ebpf.Program) error { return errors.New("a clsact stub is never replaced") }
func (c clsact) close()                     {}

func (c clsact) remove() error {
	if err := netlink.FilterDel(c.filter()); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the TC filter: %w", err)
	}
	return c.removeQdisc()
}

// removeQdisc removes the clsact if it was ours and nobody else has put a filter there.
func (c clsact) removeQdisc() error {
	if c.handle != handleOwn {
		return nil
	}
	l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: c.index}}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if left, err := netlink.FilterList(l, parent); err != nil || len(left) > 0 {
			return nil
		}
	}
	err := netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: c.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the clsact queueing discipline: %w", err)
	}
	return nil
}
