// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// LegacyTable is a legacy table with what its entries stand at.
type LegacyTable struct {
	Family  ruleset.Family
	Name    string
	Entries []byte           // struct ipt_getinfo and the entries, counters set to zero: equal for equal rules
	Counts  []ruleset.Amount // by entry, as Linux has them
}

// LegacyTables are the legacy tables as the last Read that asked for netfilter found them.
func (r *Reader) LegacyTables() (out []LegacyTable) {
	for _, t := range r.legacy {
		family := ruleset.IP4
		if t.family == model.IP6 {
			family = ruleset.IP6
		}
		out = append(out, LegacyTable{family, t.name, t.blob, t.counts})
	}
	return out
}

// ReadLegacy reads a legacy table, which must exist, of the calling thread's network namespace.
func ReadLegacy(family ruleset.Family, name string) (*LegacyTable, error) {
	af, lay := unix.AF_INET, entry4
	if family == ruleset.IP6 {
		af, lay = unix.AF_INET6, entry6
	}
	blob, err := new(live).legacy(af, name)
	if err != nil {
		return nil, fmt.Errorf("reading legacy table %s: %w", name, err)
	}
	counts, err := takeCounters(blob, lay)
	return &LegacyTable{family, name, blob, counts}, err
}

// AddLegacyCounts adds to what the entries of a legacy table stand at, in the calling thread's network namespace. Linux refuses another
// number of entries than the table has; that they are the entries that are meant is the caller's affair.
func AddLegacyCounts(family ruleset.Family, name string, add []ruleset.Amount) error {
	af, level := unix.AF_INET, unix.SOL_IP
	if family == ruleset.IP6 {
		af, level = unix.AF_INET6, unix.SOL_IPV6
	}
	b := make([]byte, addHeader, addHeader+len(add)*countersSize)
	copy(b, name)
	put32(b, tableNameLen, uint32(len(add)))
	for _, a := range add {
		b = binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(b, a.Packets), a.Bytes)
	}
	fd, err := unix.Socket(af, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("opening a socket for legacy tables: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptString(fd, level, soAddCounters, unsafe.String(&b[0], len(b))); err != nil {
		return fmt.Errorf("adding to the counters of legacy table %s: %w", name, err)
	}
	return nil
}

// struct xt_counters_info: the table's name, the number of counters, padding, the counters.
const (
	soAddCounters = 65 // IPT_SO_SET_ADD_COUNTERS, IP6T_SO_SET_ADD_COUNTERS
	addHeader     = 40
)

// LegacyBusy says whether a tool that changes legacy tables is at work. It asks who holds the tools' lock and does not take it: a tool that finds it
// taken fails, unless it was told to wait.
func LegacyBusy() bool {
	var file unix.Stat_t
	if unix.Stat(lockPath(), &file) != nil {
		return false
	}
	locks, err := os.ReadFile("/proc/locks")
	return err != nil || heldIn(string(locks), unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
}

// heldIn looks for a file in the text of /proc/locks, where lines of processes that wait have an arrow.
func heldIn(locks string, major, minor uint32, inode uint64) bool {
	return strings.Contains(locks, fmt.Sprintf(" %02x:%02x:%d ", major, minor, inode))
}
