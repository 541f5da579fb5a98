// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// output is what left a twin's ports, in order, noise taken out.
type output [Ports][][]byte

// tally counts the frames of a port by content.
func tally(frames [][]byte, own *addresses) map[string]int {
	counts := map[string]int{}
	for _, f := range frames {
		if limited(f, own) != none {
			continue
		}
		counts[string(normalise(f, own))]++
		if once(f, own) {
			counts[string(normalise(f, own))] = 1
		}
	}
	return counts
}

// compare lists the differences between what left the two twins.
//
// Frames are compared as a multiset for each port: packets that shunt forwards may overtake
// ones that go through Linux, and neighbour resolution reorders them too. The order
// within a flow is compared by compareOrder.
func compare(linux, shunt *output, own *addresses) []string {
	var diffs []string
	for i := range Ports {
		diffs = append(diffs, compareFrames(portName(i), linux[i], shunt[i], own)...)
	}
	return diffs
}

// compareFrames is compare for what was seen in one place.
func compareFrames(place string, linux, shunt [][]byte, own *addresses) []string {
	a, b := tally(linux, own), tally(shunt, own)
	var lost, extra, diffs []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if n := a[key] - b[key]; n > 0 {
			lost = append(lost, fmt.Sprintf("%d of %d", n, a[key])+"\x00"+key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if n := b[key] - a[key]; n > 0 {
			extra = append(extra, fmt.Sprintf("%d of %d", n, b[key])+"\x00"+key)
		}
	}
	for j := range max(len(lost), len(extra)) {
		diffs = append(diffs, describeDiff(place, at(lost, j), at(extra, j)))
	}
	return diffs
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

func describeDiff(place, lost, extra string) string {
	var b strings.Builder
	_, want, hasWant := strings.Cut(lost, "\x00")
	_, got, hasGot := strings.Cut(extra, "\x00")
	fmt.Fprintf(&b, "%s:", place)
	if hasWant {
		fmt.Fprintf(&b, "\n  only Linux:  %s", show(want))
	}
	if hasGot {
		fmt.Fprintf(&b, "\n  only shunt:  %s", show(got))
	}
	if hasWant && hasGot {
		b.WriteString("\n" + lab.Diff([]byte(want), []byte(got)))
	}
	return b.String()
}

func show(key string) string {
	if len(key) <= 160 {
		return lab.Describe([]byte(key)) + fmt.Sprintf(" [%x]", key)
	}
	return lab.Describe([]byte(key))
}

// compareOrder checks that the packets of a flow leave in the order in which they leave Linux, among those that
// keep counts as fast: where fast and slow packets of one flow alternate, order may change.
func compareOrder(linux, shunt *output, keep func(frame []byte) bool) []string {
	var diffs []string
	for i := range Ports {
		a, b := flows(linux[i], keep), flows(shunt[i], keep)
		for _, flow := range slices.Sorted(maps.Keys(a)) {
			if len(a[flow]) == len(b[flow]) && !slices.EqualFunc(a[flow], b[flow], bytes.Equal) {
				diffs = append(diffs, fmt.Sprintf("p%d: the order within the flow of %s differs", i, lab.Describe(a[flow][0])))
			}
		}
	}
	return diffs
}

func flows(frames [][]byte, keep func([]byte) bool) map[string][][]byte {
	out := map[string][][]byte{}
	for _, f := range frames {
		h, ok := readIP(f)
		if !ok || !h.first || !keep(f) || len(f) < h.l4+4 {
			continue
		}
		key := fmt.Sprint(h.src, h.dst, h.proto, f[h.l4:h.l4+4])
		out[key] = append(out[key], f)
	}
	return out
}
