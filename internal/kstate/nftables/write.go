// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"fmt"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// marks says whether a map gives marks or priorities, as numbers in the machine's order.
func (s *set) marks() bool { return len(s.data) == 1 && s.data[0].size == 4 && s.data[0].host }

// classText writes a priority as nft does, as the handle of a class.
func classText(n uint32) string {
	switch n {
	case 0:
		return "none"
	case ^uint32(0):
		return "root"
	}
	return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
}

// setMeta writes to the packet's metadata. Modelled are the mark, from a constant, from itself, from the connection's, or from a map, and the priority from a constant or a map.
func (m *machine) setMeta(e *Meta) {
	l := metaOf(e.Key)
	v := m.get(e.Src, l.size)
	from, self := v.from.(*Meta)
	conn, ofConn := v.from.(*CT)
	set := rs.SetField{Field: l.field}
	name := "meta " + strings.TrimPrefix(l.name, "meta ")
	text := name + " set " + m.valueText(v)
	switch {
	case l.field == rs.Mark && v.data != nil && len(v.data) == 4:
		set.Xor = nativeUint32(v.data)
		text = fmt.Sprintf("%s set 0x%08x", name, set.Xor)
	case l.field == rs.Mark && self && from.Key == e.Key && v.why == "" && v.host:
		set.And, set.Xor = uint32(v.mask.Lo), uint32(v.xor.Lo)
		text = fmt.Sprintf("%s set %s", name, maskText(l.name, set.And, set.Xor))
	case l.field == rs.Mark && ofConn && ctOf(conn.Key, conn.Dir).field == rs.CTMark && v.why == "" && v.host:
		m.steps = append(m.steps, rs.Test{Field: rs.CTMark, Not: true}) // without a connection the rule ends
		set.From, set.Mask, set.Xor = rs.CTMark, uint32(v.mask.Lo), uint32(v.xor.Lo)
	case l.field == rs.Priority && v.data != nil && len(v.data) == 4:
		set.Xor = nativeUint32(v.data)
		text = fmt.Sprintf("%s set %s", name, classText(set.Xor))
	case (l.field == rs.Mark || l.field == rs.Priority) && v.by != nil && v.by.err == nil && v.by.set.marks() && v.by.at == len(m.steps):
		m.steps = append(m.steps, rs.SetByMap{Field: l.field, Set: v.by.set.id, Key: v.by.key})
		m.words.add(name + " set " + v.by.text)
		return
	default:
		m.slow(name+" set", text)
		return
	}
	m.steps = append(m.steps, set)
	m.words.add(text)
}

// zones says whether a map gives zones, as numbers in the machine's order.
func (s *set) zones() bool { return len(s.data) == 1 && s.data[0].size == 2 && s.data[0].host }

// setZone says where the connection is looked up. Only a constant is modelled, and a map for both directions.
func (m *machine) setZone(e *CT) {
	set := rs.SetZone{Dir: rs.ZoneBoth, Back: true}
	switch e.Dir {
	case 0:
		set.Dir = rs.ZoneOriginal
	case 1:
		set.Dir = rs.ZoneReply
	}
	v := m.get(e.Src, 2)
	name := "ct " + set.Dir.String() + "zone set"
	switch {
	case len(v.data) >= 2 && e.Dir <= 1:
		set.Zone = binary.NativeEndian.Uint16(v.data)
		m.steps = append(m.steps, set)
		m.words.add(fmt.Sprintf("%s %d", name, set.Zone))
	case e.Dir < 0 && v.by != nil && v.by.err == nil && v.by.set.zones() && v.by.at == len(m.steps):
		m.steps = append(m.steps, rs.SetByMap{Field: rs.CTZone, Set: v.by.set.id, Key: v.by.key})
		m.words.add(name + " " + v.by.text)
	default:
		m.slow("ct zone set", name+" "+m.valueText(v))
	}
}

// setCT writes to the connection. Only its mark is modelled, from a constant, from itself, or from the packet's, and its zone.
func (m *machine) setCT(e *CT) {
	l := ctOf(e.Key, -1)
	if l.field == rs.CTZone {
		m.setZone(e)
		return
	}
	v := m.get(e.Src, l.size)
	meta, ofPacket := v.from.(*Meta)
	conn, self := v.from.(*CT)
	plain := l.field == rs.CTMark && v.why == "" && v.host
	text := l.name + " set " + m.valueText(v)
	switch {
	case l.field == rs.CTMark && v.data != nil && len(v.data) == 4:
		save := rs.SaveMark{Xor: nativeUint32(v.data)}
		m.steps = append(m.steps, save)
		text = fmt.Sprintf("%s set 0x%08x", l.name, save.Xor)
	case plain && ofPacket && metaOf(meta.Key).field == rs.Mark:
		m.steps = append(m.steps, rs.SaveMark{Xor: uint32(v.xor.Lo), Mask: uint32(v.mask.Lo)})
	case plain && self && ctOf(conn.Key, conn.Dir).field == rs.CTMark:
		save := rs.SaveMark{And: uint32(v.mask.Lo), Xor: uint32(v.xor.Lo)}
		m.steps = append(m.steps, rs.Test{Field: rs.CTMark, Not: true}, save) // without a connection the rule ends
		text = fmt.Sprintf("%s set %s", l.name, maskText(l.name, save.And, save.Xor))
	default:
		m.slow(l.name+" set", text)
		return
	}
	m.words.add(text)
}

// maskText writes "value & and ^ xor" as nft does.
func maskText(name string, and, xor uint32) string {
	switch {
	case and == ^uint32(0):
		return fmt.Sprintf("%s ^ 0x%08x", name, xor)
	case and == ^xor:
		return fmt.Sprintf("%s | 0x%08x", name, xor)
	case xor == 0:
		return fmt.Sprintf("%s & 0x%08x", name, and)
	case and&xor == 0:
		return fmt.Sprintf("%s & 0x%08x | 0x%08x", name, and|xor, xor)
	}
	return fmt.Sprintf("%s & 0x%08x ^ 0x%08x", name, and, xor)
}

// writePayload writes into the packet. Only the DS field is modelled, from what was read there before.
func (m *machine) writePayload(e *Payload) {
	v := m.get(e.Src, int(e.Len))
	slow := func() { m.slow("payload set", e.text()+" set "+m.valueText(v)) }
	from, ok := v.from.(*Payload)
	checksum := [3]uint32{1, 10, 0} // NFT_PAYLOAD_CSUM_INET, that of IPv4
	if m.facts.proto == 6 {
		checksum = [3]uint32{}
	}
	if !ok || e.Checksum != checksum || v.why != "" || from.Base != e.Base || from.Offset != e.Offset || from.Len != e.Len || e.Base != baseNetwork {
		slow()
		return
	}
	changed := v.mask.Not().Or(v.xor).And(rs.Max(8 * v.size))
	segments, err := m.facts.payloadSegments(from, changed)
	if err != nil || len(segments) != 1 || segments[0].field != rs.DSField || segments[0].lo < 0 {
		slow()
		return
	}
	s := segments[0]
	kept := v.mask.Or(rs.Max(8 * v.size).Not()) // what was not loaded stays, too: `ip6 ecn set` loads the lower half of the class
	set := rs.SetField{Field: rs.DSField, And: uint32(shift(kept, s.lo).Lo & 0xff), Xor: uint32(shift(v.xor, s.lo).Lo & 0xff), Payload: true}
	m.steps = append(m.steps, set)
	name := m.fieldName(rs.DSField, rs.Num(0xfc))
	if set.And == 0x03 && set.Xor&3 == 0 {
		m.words.add(fmt.Sprintf("%s set %s", name, dscpName(set.Xor>>2)))
		return
	}
	m.words.add(fmt.Sprintf("%s set dsfield & 0x%02x ^ 0x%02x", name, set.And, set.Xor))
}
