// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// programOf describes an attached program. Names are kept: an id is not used again while the program lives, and the kernel
// hands ids out in a cycle of two thousand million.
func (r *Reader) programOf(id uint32, hook string) model.Program {
	name, ok := r.progNames[id]
	if !ok {
		var err error
		if name, err = r.k.program(id); err == nil {
			if len(r.progNames) >= 4096 {
				clear(r.progNames)
			}
			r.progNames[id] = name
		}
	}
	return model.Program{ID: id, Name: name, Hook: hook, Own: r.opts.IsOwn != nil && r.opts.IsOwn(id, name)}
}

// readTCX asks devices for their tcx programs, of which no event tells: all, or those in only.
func (r *Reader) readTCX(n *model.Network, only map[int]bool) {
	links := slices.Clone(n.Links)
	for i, l := range links {
		if only != nil && !only[l.Index] {
			continue
		}
		var progs []model.Program
		for _, at := range []struct {
			typ  ebpf.AttachType
			hook string
		}{{ebpf.AttachTCXIngress, "tcx-ingress"}, {ebpf.AttachTCXEgress, "tcx-egress"}} {
			ids, err := r.k.attached(l.Index, at.typ)
			if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrNotExist) {
				r.fault(XDP, fmt.Sprintf("%s programs of %s", at.hook, l.Name), err)
			}
			for _, id := range ids {
				progs = append(progs, r.programOf(id, at.hook))
			}
		}
		if !slices.Equal(l.TCX, progs) {
			changed := *l
			changed.TCX, links[i] = progs, &changed
		}
	}
	n.Links = links
}
