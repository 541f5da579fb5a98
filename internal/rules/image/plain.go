// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// A host has hundreds of devices of which rules say nothing, and gets more all the time. They are in no table of an image, which has one row for all of them; therefore an image
// that is for some of them is for others as well, and need not be made anew.

// deviceAsk is what an entry asks of the packet's device on one side: that one of some tests holds, or none.
type deviceAsk struct {
	side  Dim
	of    []ruleset.Test
	not   bool
	plain bool // whether those devices satisfy it that no table has
}

func (a *deviceAsk) holds(d rules.Device) bool {
	return slices.ContainsFunc(a.of, func(t ruleset.Test) bool { return holds(t, d) }) != a.not
}

// Plain says whether the image, made for other devices, is right for d as well, if its packets meet it: whatever is asked of a device is answered as for those that no
// table has. A device that was not plain and is no more leaves its number behind in a table.
func (im *Image) Plain(d rules.Device) bool {
	for i := range im.asks {
		if a := &im.asks[i]; a.holds(d) != a.plain {
			return false
		}
	}
	return !im.named
}

// deviceRows writes the rows of the devices of one side but for those that have the commonest.
func (w *writer) deviceRows(side Dim, rows map[uint32]uint32) (table int, factor uint32) {
	common := w.commonest(rows)
	listed := map[uint32]uint32{}
	for index, row := range rows {
		if row != common || index == 0 || index == noPort { // none: 0 is what stands where the table is empty
			listed[index] = row
		}
	}
	for _, d := range w.devices {
		if rows[uint32(d.Index)] == common {
			w.plain[side] = d
		}
	}
	return w.hashed(listed, common)
}

// commonest is the row that most devices have, of several that of the device with the lowest number; 0, which leaves packets to Linux, where there are no devices.
func (w *writer) commonest(rows map[uint32]uint32) (row uint32) {
	of := map[uint32]int{}
	for _, d := range w.devices {
		of[rows[uint32(d.Index)]]++
	}
	for _, d := range w.devices {
		if r := rows[uint32(d.Index)]; of[r] > of[row] {
			row = r
		}
	}
	return row
}

// answer notes how a device that no table has answers what is asked.
func (w *writer) answer(asks []deviceAsk) {
	for i := range asks {
		a := &asks[i]
		d := w.plain[a.side]
		if d == (rules.Device{}) && len(w.devices) > 0 { // there is no table: nothing of what is asked tells devices apart
			d = w.devices[len(w.devices)-1]
		}
		a.plain = a.holds(d)
	}
}
