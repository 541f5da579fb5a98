// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"golang.org/x/sys/unix"
)

// Legacy iptables: IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES, which have the same numbers in IPv6.
const (
	soGetInfo    = 64
	soGetEntries = 65

	tableNameLen  = 32
	infoSize      = tableNameLen + 4 + 5*4 + 5*4 + 4 + 4 // struct ipt_getinfo
	entriesHeader = 40                                   // struct ipt_get_entries up to its entries
	infoEntry     = 36                                   // hook_entry[5]
	infoUnderflow = 56
	infoEntries   = 76 // how many
	infoSizeOff   = 80

	countersSize  = 16 // struct xt_counters, the last of an entry
	targetHeader  = 32 // struct xt_entry_target
	targetNameLen = 29
	verdictAccept = -2
)

// layout is where fields lie in struct ipt_entry and struct ip6t_entry.
type layout struct {
	target, next, size int
}

var (
	entry4 = layout{88, 90, 112}
	entry6 = layout{140, 142, 168}
)

func (l *live) legacy(family int, table string) ([]byte, error) {
	level := unix.SOL_IP
	if family == unix.AF_INET6 {
		level = unix.SOL_IPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for range 8 {
		info := make([]byte, infoSize)
		copy(info, table)
		if err := getsockopt(fd, level, soGetInfo, info); err != nil {
			return nil, err
		}
		size := get32(info, infoSizeOff)
		// The answers lie one behind the other as they are to be, but for the second one's header, which the first is put over.
		both := make([]byte, infoSize+int(size))
		entries := both[infoSize-entriesHeader:]
		copy(entries, table)
		put32(entries, tableNameLen, size)
		err := getsockopt(fd, level, soGetEntries, entries)
		if err == unix.EAGAIN { // replaced by a table of another size in between
			continue
		}
		if err != nil {
			return nil, err
		}
		copy(both, info)
		return both, nil
	}
	return nil, unix.EAGAIN
}

// legacyTable is a legacy table as it was last read.
type legacyTable struct {
	name   string
	family model.Family
	blob   []byte // without counters, but in a whole reading
	counts []ruleset.Amount
	hooks  []model.NFHook
	tracks bool // a rule or the table itself turns connection tracking on
	sets   bool // a rule looks into ipsets
}

// legacyFamily is a family that has legacy tables.
type legacyFamily struct {
	af     int
	family model.Family
	names  string // the file that lists them
	layout layout
}

var legacyFamilies = []legacyFamily{
	{unix.AF_INET, model.IP4, "/proc/net/ip_tables_names", entry4},
	{unix.AF_INET6, model.IP6, "/proc/net/ip6_tables_names", entry6},
}

// readLegacy reads the legacy tables that exist, and says whether something else is in them than at the last time. A table that does not
// exist is never asked for: the question would create it.
func (r *Reader) readLegacy() (tables []*legacyTable, changed bool) {
	for i := range legacyFamilies {
		f := &legacyFamilies[i]
		names, err := r.k.file(f.names)
		if errors.Is(err, os.ErrNotExist) {
			continue // the module is not loaded
		}
		if err != nil {
			r.fault(Netfilter, f.names, err)
			continue
		}
		list := strings.Fields(names)
		slices.Sort(list)
		for _, name := range list {
			t, err := r.readLegacyTable(f, name)
			if err != nil {
				r.fault(Netfilter, fmt.Sprintf("legacy table %s of %s", name, f.family), err)
				continue
			}
			tables, changed = append(tables, t), changed || !slices.Contains(r.legacy, t)
		}
	}
	changed = changed || len(tables) != len(r.legacy)
	r.legacy = tables
	return tables, changed
}

// readLegacyTable gives the same value as at the last time where nothing but counters changed.
func (r *Reader) readLegacyTable(f *legacyFamily, name string) (*legacyTable, error) {
	blob, err := r.k.legacy(f.af, name)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w (needs CAP_NET_RAW)", err)
	}
	if err != nil {
		return nil, err
	}
	t := &legacyTable{name: name, family: f.family, blob: blob}
	if !r.whole {
		if t.counts, err = takeCounters(blob, f.layout); err != nil {
			return nil, err
		}
	}
	for _, old := range r.legacy {
		if old.name == name && old.family == f.family && bytes.Equal(old.blob, blob) {
			old.counts = t.counts
			return old, nil
		}
	}
	if t.hooks, t.tracks, t.sets, err = decodeLegacy(blob, name, f.family, f.layout); err != nil {
		return nil, err
	}
	t.tracks = t.tracks || name == "nat"
	return t, nil
}

// takeCounters takes the counters out of a table's entries, so that tables with the same rules are equal, and gives them by entry.
func takeCounters(blob []byte, lay layout) (counts []ruleset.Amount, err error) {
	if len(blob) < infoSize {
		return nil, errors.New("legacy table too short")
	}
	t := legacyBlob{b: blob[infoSize:], layout: lay}
	counts = make([]ruleset.Amount, 0, min(int(get32(blob, infoEntries)), len(t.b)/lay.size))
	for off := 0; off < len(t.b); {
		e, err := t.at(off)
		if err != nil {
			return nil, err
		}
		c := t.b[off+lay.size-countersSize : off+lay.size]
		counts = append(counts, ruleset.Amount{Packets: binary.NativeEndian.Uint64(c), Bytes: binary.NativeEndian.Uint64(c[8:])})
		clear(c)
		off = e.next
	}
	return counts, nil
}

// legacyEntry is one rule in the blob of a table.
type legacyEntry struct {
	next    int // offset of the entry behind it
	target  []byte
	verdict int32 // of the standard target: negative for a verdict, else the offset of a user chain
}

// untrackedXT are the matches and targets that leave connection tracking alone.
var untrackedXT = setOfNames("addrtype ah bpf cgroup comment cpu dccp devgroup dscp dst ecn esp eui64 frag hashlimit hbh hl icmp icmp6 iprange " +
	"ipv6header length limit mac mark mh multiport nfacct osf owner physdev pkttype policy quota realm recent rpfilter rt sctp set srh statistic " +
	"string tcp tcpmss time tos ttl u32 udp udplite " +
	"AUDIT CHECKSUM CLASSIFY DSCP ECN ERROR HL LOG MARK NFLOG NFQUEUE REJECT SET TCPMSS TCPOPTSTRIP TEE TOS TRACE TTL")

type legacyBlob struct {
	b []byte
	layout
	// What was last asked of a name: those of neighbouring entries are often the same.
	asked        []byte
	tracks, sets bool
}

func (t *legacyBlob) at(off int) (e legacyEntry, err error) {
	if off < 0 || off+t.size > len(t.b) {
		return e, malformed(off)
	}
	target, next := int(get16(t.b, off+t.target)), int(get16(t.b, off+t.next))
	if target < t.size || next < target+targetHeader || off+next > len(t.b) {
		return e, malformed(off)
	}
	e.target = t.name(off + target)
	e.next = off + next
	if len(e.target) == 0 {
		if next < target+targetHeader+4 {
			return e, malformed(off)
		}
		e.verdict = int32(get32(t.b, off+target+targetHeader))
	}
	return e, nil
}

// uses says what the matches and the target of an entry that at has given need: tracks, connection tracking, perhaps; sets, ipsets.
func (t *legacyBlob) uses(off int, e *legacyEntry) (tracks, sets bool, err error) {
	target := int(get16(t.b, off+t.target))
	if len(e.target) > 0 {
		tracks, sets = t.use(e.target)
	}
	for m := t.size; m < target; { // matches lie between the entry and its target
		if m+targetHeader > target {
			return tracks, sets, malformed(off)
		}
		n := int(get16(t.b, off+m))
		if n < targetHeader {
			return tracks, sets, malformed(off)
		}
		x, y := t.use(t.name(off + m))
		tracks, sets = tracks || x, sets || y
		m += n
	}
	return tracks, sets, nil
}

func (t *legacyBlob) use(name []byte) (tracks, sets bool) {
	if t.asked == nil || !bytes.Equal(t.asked, name) {
		t.asked, t.tracks, t.sets = name, !untrackedXT[string(name)], isSet(string(name))
	}
	return t.tracks, t.sets
}

func malformed(off int) error { return fmt.Errorf("legacy entry at %d is malformed", off) }

// name is that of a match or target: both begin with their size and their name.
func (t *legacyBlob) name(off int) []byte {
	name := t.b[off+2 : off+2+targetNameLen]
	return name[:max(bytes.IndexByte(name, 0), 0)]
}

// decodeLegacy turns a table into one hook for each built-in chain. The rules of a built-in chain lie between its entry point
// and its underflow, which holds the policy; a user chain ends before the next ERROR entry, with a RETURN that counts as its
// policy.
func decodeLegacy(blob []byte, table string, family model.Family, lay layout) (out []model.NFHook, tracks, sets bool, err error) {
	if len(blob) < infoSize {
		return nil, false, false, errors.New("legacy table too short")
	}
	valid := get32(blob, tableNameLen)
	t := legacyBlob{b: blob[infoSize:], layout: lay}
	for off := 0; off < len(t.b); {
		e, err := t.at(off)
		if err != nil {
			return nil, false, false, err
		}
		x, y, err := t.uses(off, &e)
		if err != nil {
			return nil, false, false, err
		}
		tracks, sets = tracks || x, sets || y
		off = e.next
	}
	for num := range 5 {
		if valid&(1<<num) == 0 {
			continue
		}
		entry, underflow := int(get32(blob, infoEntry+4*num)), int(get32(blob, infoUnderflow+4*num))
		policy, err := t.at(underflow)
		if err != nil {
			return nil, false, false, err
		}
		rules, err := t.count(entry, underflow)
		if err != nil {
			return nil, false, false, err
		}
		prio, _ := xtables.Priority(table, ruleset.Prerouting+ruleset.Hook(num))
		out = append(out, model.NFHook{
			Family: family, Hook: inetHooks[num], Priority: int(prio), Kind: model.Legacy, Table: table, Chain: strings.ToUpper(inetHooks[num]),
			Rules: rules, NAT: table == "nat", PolicyAccept: len(policy.target) == 0 && policy.verdict == verdictAccept,
		})
	}
	return out, tracks, sets, nil
}

// count counts the rules from one offset to another and those of the user chains that they lead to.
func (t *legacyBlob) count(from, to int) (int, error) {
	rules := 0
	seen := map[int]bool{}
	queue := []int{}
	walk := func(off int, end func(off int, e legacyEntry) bool) error {
		for {
			e, err := t.at(off)
			if err != nil {
				return err
			}
			if end(off, e) {
				return nil
			}
			rules++
			if len(e.target) == 0 && e.verdict >= 0 && !seen[int(e.verdict)] && int(e.verdict) != e.next {
				seen[int(e.verdict)] = true
				queue = append(queue, int(e.verdict))
			}
			off = e.next
		}
	}
	if err := walk(from, func(off int, _ legacyEntry) bool { return off >= to }); err != nil {
		return 0, err
	}
	for i := 0; i < len(queue); i++ {
		err := walk(queue[i], func(_ int, e legacyEntry) bool { return string(e.target) == "ERROR" })
		if err != nil {
			return 0, err
		}
		rules-- // the RETURN at the end of each user chain
	}
	return rules, nil
}
