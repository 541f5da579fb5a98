// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"slices"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

func load(from Expr, l loaded) *value {
	v := &value{from: from, name: l.name, size: l.size, host: l.host, mask: rs.Max(8 * l.size), dep: -1}
	if l.field == rs.NoField {
		v.why = "it is not modelled"
	}
	return v
}

func (m *machine) payload(e *Payload) {
	if e.Write {
		m.writePayload(e)
		return
	}
	v := &value{from: e, size: int(e.Len), mask: rs.Max(8 * int(e.Len)), dep: -1}
	if e.Len == 0 || e.Len > 16 {
		v.why = "it is longer than a field"
		v.size = min(max(v.size, 1), 64)
	}
	m.store(e.Dst, v)
}

func (m *machine) exthdr(e *ExtHdr) {
	name := fmt.Sprintf("exthdr %d", e.Type)
	switch e.Op {
	case 0:
		name = fmt.Sprintf("extension header %d", e.Type)
	case 1:
		name = fmt.Sprintf("tcp option %d", e.Type)
	case 2:
		name = fmt.Sprintf("ip option %d", e.Type)
	case 3:
		name = fmt.Sprintf("sctp chunk %d", e.Type)
	}
	if e.Write {
		m.slow(name+" set", name+" set "+m.valueText(m.get(e.Src, int(e.Len))))
		return
	}
	size := int(e.Len)
	if e.Present {
		size, name = 1, "exthdr "+name+" exists"
	}
	v := &value{name: name, size: min(max(size, 1), 64), dep: -1, why: "it is not modelled"}
	if m.without(e) {
		v.from, v.mask = e, rs.Max(8*v.size)
	}
	m.store(e.Dst, v)
}

// without says whether a header or option is one that no packet has which comes to rules.
func (m *machine) without(e *ExtHdr) bool {
	const hopByHop, routing, fragment, destination = 0, 43, 44, 60
	switch {
	case !m.facts.ipHook():
		return false
	case e.Op == 0 && m.facts.proto == 6:
		return slices.Contains([]uint8{hopByHop, routing, fragment, destination}, e.Type)
	}
	return e.Op == 2 && m.facts.proto == 4
}

func fibValue(e *FIB) *value {
	names := []string{"saddr", "daddr", "mark", "iif", "oif"}
	name := "fib"
	sep := " "
	for i, n := range names {
		if e.Flags&(1<<i) != 0 {
			name += sep + n
			sep = " . "
		}
	}
	v := &value{from: e, name: name + " " + pick([]string{"unspec", "oif", "oifname", "type"}, e.Result), size: 4, host: true, mask: rs.Max(32), dep: -1}
	if e.Result == 2 {
		v.size = 16
	}
	if _, _, known := e.lookedBack(); !known && (e.Result != 3 || e.Flags != 1 && e.Flags != 2) {
		v.why = "the lookup is not modelled"
	}
	return v
}

// lookedBack is the field that a lookup of the sender is, with the mark or without; and whether it says only that there is a route, not by which interface.
func (e *FIB) lookedBack() (f rs.Field, present, known bool) {
	const source, mark, in, oif, only = 1, 4, 8, 1, 32
	if e.Result != oif {
		return 0, false, false
	}
	present = e.Flags&only != 0
	switch e.Flags &^ (mark | only) {
	case source | in:
		return rs.RouteBack, present, true
	case source:
		return rs.RouteBackBy, present, true
	}
	return 0, false, false
}

// routeBack is that field where the value is only whether there is a route.
func (e *FIB) routeBack() (rs.Field, bool) {
	f, present, known := e.lookedBack()
	return f, present && known
}

// segments are the fields that a value consists of.
func (m *machine) segments(v *value, mask rs.Value) ([]segment, error) {
	if v.why != "" {
		return nil, errors.New(v.why)
	}
	switch e := v.from.(type) {
	case *Payload:
		return m.facts.payloadSegments(e, mask)
	case *Meta:
		return []segment{{field: metaOf(e.Key).field, width: metaOf(e.Key).field.Width()}}, nil
	case *CT:
		return []segment{{field: ctOf(e.Key, e.Dir).field, width: ctOf(e.Key, e.Dir).field.Width()}}, nil
	case *FIB:
		if f, is := e.routeBack(); is {
			return []segment{{field: f, width: f.Width()}}, nil
		}
		if _, _, index := e.lookedBack(); index {
			return nil, errors.New("by which interface the route leads is not modelled")
		}
		f := rs.SrcAddrType
		if e.Flags == 2 {
			f = rs.DstAddrType
		}
		return []segment{{field: f, width: f.Width()}}, nil
	}
	return nil, errors.New("it is no part of a packet")
}
