// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/synth"
)

// handled is what was found of a device that no program watches.
type handled struct {
	life int
	is   bool
}

// Handled notes whose frames another device takes before Linux looks at them that this namespace may not list: a macvlan or ipvlan keeps its rx_handler at the
// device below when it is moved to a container. Who belongs to a bridge or the like has one for that, which the graph knows. Programs watch the word; of devices
// without one it is read anew where links were.
func (d *Datapath) Handled(net *model.Network, s *Snapshot, links bool) error {
	old := d.handled
	d.handled = map[int]handled{}
	var out []*model.Link
	for i, l := range net.Links {
		if !l.Up || l.Type != unix.ARPHRD_ETHER || l.Master != 0 && l.MasterKind != "vrf" {
			continue
		}
		is := false
		if v, read := s.word(synth.Word{Word: bpfobj.WordDevHandler, Index: l.Index}); read && d.watched[l.Index] > 0 {
			is = v.Value != 0
		} else if known, ok := old[l.Index]; ok && known.life == l.Life && !links {
			is, d.handled[l.Index] = known.is, known
		} else {
			q, err := d.query(l.Index)
			if err != nil {
				return err
			}
			is = q.Word[bpfobj.WordDevHandler].Value != 0
			d.handled[l.Index] = handled{l.Life, is}
		}
		if !is {
			continue
		}
		if out == nil {
			out = slices.Clone(net.Links)
		}
		changed := *l
		changed.Handled = true
		out[i] = &changed
	}
	if out != nil {
		net.Links = out
	}
	return nil
}
