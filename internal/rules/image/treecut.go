// SPDX-License-Identifier: Apache-2.0

package image

// cut is a way to part the values of a field.
type cut struct {
	field, shift int
	from         uint32
	parts        int
	cost         float64 // how many records a record is with, on average
}

func (c *cut) part(v uint32) int { return int(min(v>>c.shift-c.from>>c.shift, uint32(c.parts))) }

// end is the last value that the parts stand for.
func (c *cut) end() uint32 { return c.from + uint32(c.parts)<<c.shift - 1 }

// choose finds the cut that leaves a record with the fewest others, unless none leaves fewer than there are.
func (f *forest) choose(of []int32, region *[numCuts]span) (best cut, ok bool) {
	best.cost = float64(len(of)) * 0.9
	for field := range numCuts {
		within := region[field]
		hull, some := f.hull(of, field, within)
		if !some {
			continue
		}
		for parts := maxParts; parts > 1; parts /= 2 {
			if c, fits := f.try(of, field, within, hull, parts); fits {
				if c.cost < best.cost {
					best, ok = c, true
				}
				break
			}
		}
	}
	return best, ok
}

// hull is from the first to the last value of a field that tells records apart: what asks for all that there is asks for nothing.
func (f *forest) hull(of []int32, field int, within span) (hull span, some bool) {
	for _, i := range of {
		s := f.boxes[i].at[field]
		if s.has(within) {
			continue
		}
		s = s.and(within)
		if !some {
			hull, some = s, true
		}
		hull = span{min(hull.lo, s.lo), max(hull.hi, s.hi)}
	}
	return hull, some
}

// try weighs a cut of a field's hull in so many parts at most; it does not fit where it would write records many times over.
func (f *forest) try(of []int32, field int, within, hull span, parts int) (c cut, fits bool) {
	c = cut{field: field}
	for int(hull.hi>>c.shift)-int(hull.lo>>c.shift) >= parts {
		c.shift++
	}
	c.from = hull.lo >> c.shift << c.shift
	c.parts = int(hull.hi>>c.shift) - int(hull.lo>>c.shift) + 1
	var counts [maxParts + 1]int32 // by how many more than the part before
	everywhere := int32(0)
	for _, i := range of {
		s := f.boxes[i].at[field]
		if s.has(within) {
			everywhere++
			continue
		}
		s = s.and(within)
		counts[c.part(s.lo)]++
		counts[c.part(s.hi)+1]--
	}
	total, squares, now := int(everywhere), int(everywhere)*int(everywhere), int32(0)
	for p := range c.parts {
		now += counts[p]
		n := int(now + everywhere)
		total += n
		squares += n * n
	}
	c.cost = float64(squares) / float64(max(total, 1))
	return c, c.parts > 1 && total <= 2*len(of)+c.parts
}
