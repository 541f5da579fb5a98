// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
)

const (
	stubXDP       = "shunt_stub_xdp"
	stubXDPLinear = "shunt_stub_xdp_linear"
)

// OwnName says whether an attached program is called as this package calls those that it attaches. (Those of `shunt compile` have another name.)
func OwnName(name string) bool {
	for _, own := range []string{stubXDP, stubXDPLinear, "shunt_stub_tc", "shunt_xdp", "shunt_tc", "shunt_pass"} {
		if name == own[:min(len(own), unix.BPF_OBJ_NAME_LEN-1)] { // as much as the kernel keeps
			return true
		}
	}
	return false
}

// attachStub puts the stub on a device and pins its link: the one that takes frames in several buffers, or, where the driver refuses that,
// the one that does not.
func (d *Datapath) attachStub(index int) (*attachment, error) {
	a, err := d.attachOneStub(index, stubXDP)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		var linear error
		if a, linear = d.attachOneStub(index, stubXDPLinear); linear != nil {
			return nil, err
		}
		a.linear = true
		return a, nil
	}
	return a, err
}

func (d *Datapath) attachOneStub(index int, name string) (*attachment, error) {
	spec := d.objects.stubs.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the XDP stub: %w", err)
	}
	defer coll.Close()
	l, err := d.attachXDP(link.XDPOptions{Program: coll.Programs[name], Interface: index, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attaching to XDP: %w", err)
	}
	if err := l.Pin(d.pins.stub(index)); err != nil {
		l.Close()
		return nil, fmt.Errorf("pinning the XDP stub: %w", err)
	}
	return &attachment{hold: linkHold{l}, slot: coll.DetachMap("slot")}, nil
}

// withStats gives an adopted attachment its counters, or undoes it.
func (d *Datapath) withStats(a *attachment) (*attachment, error) {
	c, err := d.newCounters()
	if err != nil {
		a.close()
		return nil, err
	}
	a.counters = c
	return a, nil
}

// adopt takes over the stubs that an earlier daemon left; those of devices that are gone are removed.
func (d *Datapath) adopt() error {
	pinned, err := d.pins.stubs()
	if err != nil {
		return err
	}
	for index, path := range pinned {
		a, err := d.adoptStub(index, path)
		if err != nil {
			d.log.Warn("removing a stub that cannot be adopted", "pin", path, "err", err)
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("removing the pin %s: %w", path, err)
			}
			continue
		}
		d.ports[hookKey{index, graph.XDP}] = a
	}
	return nil
}

func (d *Datapath) adoptStub(index int, path string) (*attachment, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, err
	}
	slot, name, err := slotOf(l, index)
	if err != nil {
		l.Close()
		return nil, err
	}
	// The kernel has emptied it, unless somebody else had it open when the daemon before died, such as a tool that lists maps, or that daemon was still dying when this one opened it.
	if err := slot.Delete(uint32(0)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		slot.Close()
		l.Close()
		return nil, fmt.Errorf("emptying its slot: %w", err)
	}
	// The kernel keeps 15 characters of a program's name, enough to tell the two stubs apart.
	return d.withStats(&attachment{hold: linkHold{l}, slot: slot, linear: name != stubXDP})
}

// slotOf finds the PROG_ARRAY of an attached stub, and the stub's name.
func slotOf(l link.Link, index int) (*ebpf.Map, string, error) {
	info, err := l.Info()
	if err != nil {
		return nil, "", err
	}
	if x := info.XDP(); x == nil || int(x.Ifindex) != index {
		return nil, "", errors.New("its device is gone")
	}
	if !runsHere(index, info.Program) { // it is removed from there: what this daemon has to say is not about that device
		return nil, "", errors.New("its device has moved to another namespace")
	}
	return mapOf(info.Program)
}

// xdpAttachedMulti is XDP_ATTACHED_MULTI of linux/if_link.h.
const xdpAttachedMulti = 4

// runsHere says whether a device of the thread's namespace runs an XDP program. A device keeps its program and its number when it is moved to another namespace, and
// its number may be another device's here by then.
func runsHere(index int, id ebpf.ProgramID) bool {
	dev, err := netlink.LinkByIndex(index)
	if err != nil || dev.Attrs().Xdp == nil {
		return false
	}
	x := dev.Attrs().Xdp
	return x.ProgId == uint32(id) || x.AttachMode == xdpAttachedMulti // a second program hangs there too, and which ones do is not told in one word
}

// mapOf finds the only map of a stub, and the stub's name.
func mapOf(id ebpf.ProgramID) (*ebpf.Map, string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, "", err
	}
	defer prog.Close()
	pi, err := prog.Info()
	if err != nil {
		return nil, "", err
	}
	ids, ok := pi.MapIDs()
	if !ok || len(ids) != 1 {
		return nil, "", fmt.Errorf("its program %q has %d maps, not one", pi.Name, len(ids))
	}
	slot, err := ebpf.NewMapFromID(ids[0])
	return slot, pi.Name, err
}
