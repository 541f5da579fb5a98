// SPDX-License-Identifier: Apache-2.0

package ruleset

import "net/netip"

// Step is one step of a rule: Test, AnyTest, Lookup, Unknown, Verdict, VerdictMap, Count, SetField, SetByMap, SaveMark, NoTrack, SetZone or Slow.
type Step interface{ step() }

// Test holds when the packet has the field and (value & Mask lies in one of Ranges) is not Not.
//
//	-s 10.0.0.0/8             Test{Field: IP4Src, Ranges: {Prefix(10.0.0.0/8)}}
//	! -i eth+                 Test{Field: IIFName, Ranges: {Names("eth")}, Not: true}
//	ct state established      Test{Field: CTState, Mask: Num(CTEstablished), Ranges: {One(Num(0))}, Not: true}
//	--tcp-flags SYN,ACK SYN   Test{Field: TCPFlags, Mask: Num(0x12), Ranges: {One(Num(2))}}
//
// Without Ranges it never holds, with Not it then asks only whether the field is there.
type Test struct {
	Field  Field
	Mask   Value // the zero value stands for all bits
	Ranges []Range
	Not    bool
}

// AnyTest holds when one of the tests holds, or with Not when none does (xt_multiport --ports: either port). A test of a field that
// the packet lacks does not hold, so the reader puts a test for the field's presence before it.
type AnyTest struct {
	Of  []Test
	Not bool
}

// Lookup holds when the key is in the set, or with Not when it is not. A packet that lacks a part of the key fails it in nf_tables
// (nft_lookup, NFT_BREAK); in an ipset it counts as not in the set, so that Not holds (xt_set, match_set).
type Lookup struct {
	Set SetID
	Key []Field // one for each part of the set's key. ipset: each dimension by its direction, src or dst
	Not bool
	// Masks are, for each part of the key, the bits of the field that are looked up; the zero value stands for all of them, and nil for all of all fields. nf_tables only.
	Masks []Value
	// Of is for a list:set, which has no Key of its own: a lookup in each member that the dimensions and the family of the match fit,
	// in order. The packet is in the list when it is in one of them.
	Of []Lookup
	// Src is for an ipset that is Live: for each direction of the rule, whether it is src. A list:set gives them to all of its members.
	Src []bool
}

// Unknown is a test or an action that is not understood, or that is not modelled because the verdict depends on more than the
// packet (limit, recent, statistic, quota, string …). Whoever reaches it leaves the packet to the kernel.
type Unknown struct {
	Name string // short and stable, as its user knows it: "limit", "xt match u32 rev 0", "expression 77"
	Text string // all that is known of it, for status and explain
}

// Slow is an action that is understood and only the kernel can do: log, reject, queue, tproxy, trace, tee, snat, dnat, masquerade,
// redirect, set update, ct helper …
type Slow struct {
	Name string // short and stable: "log", "reject", "nfqueue", "dnat"
	Text string // with its parameters
	To   Mapping
}

// Mapping is what snat and dnat map to. The zero value stands for one that is not known, or for another action.
type Mapping struct {
	Addr, LastAddr netip.Addr // the same where there is one; invalid when the address stays
	Port, LastPort uint16     // the same where there is one; 0 when the port stays
	More           bool       // it says more than that: random, persistent …
}

// Code is what a verdict does.
type Code uint8

// The verdicts. Drop is final for the packet; Accept ends the base chain and goes on with the next one of the hook.
const (
	Continue Code = iota // go on with the next rule
	Accept
	Drop
	Return // to the rule behind the jump; in a base chain: its policy
	Jump   // to a chain and, at its end, to the next rule
	Goto   // to a chain and, at its end, to where this chain would have returned to
)

// Verdict ends the rule.
type Verdict struct {
	Code  Code
	Chain string // of the same table, for Jump and Goto
}

// VerdictMap looks the key up in a map of verdicts and does what the element says; a key that is not there, or a part of it that
// the packet lacks, ends the rule as a failed test does. Kernel: nft_lookup with the verdict register.
type VerdictMap struct {
	Set   SetID
	Key   []Field
	Masks []Value // as in a Lookup
}

// Lookup is the lookup of the key.
func (m VerdictMap) Lookup() Lookup { return Lookup{Set: m.Set, Key: m.Key, Masks: m.Masks} }

// Part is the test that part i of the key lies in a range.
func (l Lookup) Part(i int, in Range) Test {
	t := Test{Field: l.Key[i], Ranges: []Range{in}}
	if l.Masks != nil {
		t.Mask = l.Masks[i]
	}
	return t
}

// Count adds the packet to a counter: one packet, and skb->len bytes. At the IP hooks these are the bytes of the IP packet. An
// iptables rule counts after all of its matches and before its target (ip_tables.c: ADD_COUNTER).
type Count struct{ Counter CounterID }

// SetField changes a field: value = value & And ^ Xor, in the field's width. Only Mark, Priority and DSField; other changes are Slow.
// Kernel: nft_meta and nft_payload set, xt_MARK (And = ^mask, Xor = mark), xt_CLASSIFY, xt_DSCP, TOS.
//
// Payload says that nf_tables writes it into the packet: it writes an IPv4 checksum of 0 as 0xffff (nft_csum_replace), the targets of iptables do not.
//
// With From the value of that field & Mask is xored in too, and a packet without that field stays as it is: CONNMARK --restore-mark, from CTMark.
type SetField struct {
	Field    Field
	And, Xor uint32
	Payload  bool
	From     Field
	Mask     uint32
}

// SetByMap changes a field to the Data of the element of a map that the key is in; a key that is not there, or a part of it that the packet lacks, ends the rule.
// Only Mark, Priority, and CTZone, which is a SetZone of nf_tables. Kernel: nft_lookup with a register, then nft_meta or nft_ct set.
type SetByMap struct {
	Field Field
	Set   SetID
	Key   []Field
}

// SaveMark sets the mark of the packet's connection: ct mark = ct mark & And ^ Xor ^ mark & Mask. A packet without a connection goes on unchanged. Whoever evaluates it leaves
// packets to the kernel whose connection would get another mark than it has. Kernel: nft_ct_set_eval, connmark_tg_shift (save and set).
type SaveMark struct{ And, Xor, Mask uint32 }

// NoTrack keeps the packet out of connection tracking: its state is CTUntracked from here on. It does nothing to a packet that
// has a connection. Kernel: nft_ct notrack, xt_CT --notrack.
type NoTrack struct{}

// SetZone says in which zone the packet's connection is looked up. Until it is, the packet has a connection of state new that is none (a template), and neither another
// SetZone nor NoTrack do anything. A packet that NoTrack has kept out comes back with Back alone. Kernel: nft_ct_set_zone_eval (which has Back), xt_CT --zone.
type SetZone struct {
	Zone uint16
	Dir  ZoneDir
	Back bool
}

// ZoneDir are the directions of a connection that a zone is for: in others its addresses are in zone 0.
type ZoneDir uint8

// The directions, NF_CT_ZONE_DIR_*.
const (
	ZoneOriginal ZoneDir = 1 << iota
	ZoneReply
	ZoneBoth = ZoneOriginal | ZoneReply
)

func (d ZoneDir) String() string { return [...]string{"", "original ", "reply ", ""}[d&ZoneBoth] }

func (Test) step()       {}
func (AnyTest) step()    {}
func (Lookup) step()     {}
func (Unknown) step()    {}
func (Slow) step()       {}
func (Verdict) step()    {}
func (VerdictMap) step() {}
func (Count) step()      {}
func (SetField) step()   {}
func (SetByMap) step()   {}
func (SaveMark) step()   {}
func (NoTrack) step()    {}
func (SetZone) step()    {}
