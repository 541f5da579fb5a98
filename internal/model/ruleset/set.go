// SPDX-License-Identifier: Apache-2.0

package ruleset

// SetID is an index into Ruleset.Sets.
type SetID int32

// Set is a set or map of nf_tables, or an ipset.
type Set struct {
	Dialect Dialect // NFT or IPSet
	Family  Family  // nf_tables: of its table. ipset: IP4, IP6, or 0 when it takes any (hash:mac, bitmap:port, list:set)
	Table   string  // nf_tables
	Name    string
	Type    string // ipset: "hash:net,port" …; nf_tables: ""
	Handle  uint64 // nf_tables

	// Widths are the bits of each part of the key, in order; several parts make a concatenation. ipset: "hash:ip,port" has three,
	// address, protocol and port.
	Widths   []int
	Interval bool // elements can be ranges
	Timeout  bool // elements can expire
	Dynamic  bool // rules may add or delete elements (nft dynset, an xt SET target)
	Verdicts bool // a map whose elements have verdicts
	Data     bool // a map whose elements have other data

	// Live is for an ipset whose elements were not read, since they change without notice: what is in it has to be asked of the kernel, which knows it
	// by its Index.
	Live  bool
	Index uint16

	Members  []SetID // of a list:set, in order; a Lookup says how each is asked
	Elements []Element

	// Unread is for a set of nf_tables that no rule asks: what is in it was not read.
	Unread bool

	// Unknown is what was not understood of the set or its elements ("" when all was): a packet that is looked up in it is slow.
	Unknown string
}

// LiveTypes are the types of ipset whose elements programs can look up in the kernel's own tables (bpf/node/ipset.h).
var LiveTypes = []string{
	"hash:ip", "hash:net", "hash:ip,port", "hash:net,port", "bitmap:ip", "bitmap:port", "list:set", "hash:ip,port,ip", "hash:ip,port,net",
	"hash:net,iface", "bitmap:ip,mac", "hash:ip,mark", "hash:mac", "hash:ip,mac", "hash:net,net", "hash:net,port,net",
}

// Element is one element. A key matches when each part lies in its range. Where several match, one counts. Of an ipset it is the most specific: the
// smallest range of the first part, then of the second, and so on (longer prefixes first, ip_set_hash_gen.h). Of nf_tables it is the first: elements
// of a concatenation with intervals may cross, are looked through in the order of their making, and are listed in it (nft_set_pipapo.c); those of
// other sets are disjoint; and the catch-all element *, one with full ranges, stands behind the others.
type Element struct {
	Key     []Range   // one for each part of the key
	NoMatch bool      // ipset: nomatch, a key whose most specific element this is is not in the set
	Verdict *Verdict  // for Set.Verdicts
	Data    Value     // for Set.Data
	Expires uint64    // milliseconds from the reading to its end; 0 for never
	Counter CounterID // NoCounter if it has none. ipset counts what finds the element, nf_tables what also goes on in the rule
}
