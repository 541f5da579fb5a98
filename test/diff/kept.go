// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kept is what packet filters remember of packets besides counters, and in how many seconds they forget it, 0 for never: elements of sets and maps, counted or not, how
// much of a quota is used, the addresses of `-m recent`. A packet that meets a rule which writes something down leaves this behind, whether any rule asks for it later or not.
type kept map[string]int

// addSet reads the elements that nft lists of a set or map.
func (k kept) addSet(set string, list []json.RawMessage) {
	for _, raw := range list {
		var e struct {
			Elem struct {
				Val     json.RawMessage
				Expires int
			}
		}
		value := raw
		var pair []json.RawMessage // of a map
		if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
			raw = pair[0]
		}
		if json.Unmarshal(raw, &e) == nil && e.Elem.Val != nil {
			value = e.Elem.Val
			if len(pair) == 2 {
				value = slices.Concat(value, []byte(": "), pair[1])
			}
		}
		k[set+" has "+string(value)] = e.Elem.Expires
	}
}

const quotaOf = " quota "

// addQuota reads a quota that nft lists, a named one or one of a rule.
func (k kept) addQuota(at string, quota json.RawMessage) {
	var o struct{ Family string } // of a named one: a rule's may be its name alone
	if json.Unmarshal(quota, &o) == nil {
		k[at+quotaOf+string(quota)] = 0
	}
}

// addIPSet reads an element that `ipset save` prints, without what it has counted.
func (k kept) addIPSet(words []string) {
	key, expires := "ipset", 0
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "timeout":
			fmt.Sscan(words[i+1], &expires)
			i++
		case "packets", "bytes":
			i++
		default:
			key += " " + words[i]
		}
	}
	k[key] = expires
}

// addRecent reads the lists of `-m recent`: addresses with their TTL, and how often each was met, as far as a list keeps that.
func (t *twin) addRecent(k kept) error {
	return t.dut.Do(func() error {
		const folder = "/proc/thread-self/net/xt_recent"
		lists, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the lists of recent: %w", err)
		}
		for _, l := range lists {
			text, err := os.ReadFile(filepath.Join(folder, l.Name()))
			if err != nil {
				return fmt.Errorf("reading the lists of recent: %w", err)
			}
			for line := range strings.Lines(string(text)) {
				who, _, _ := strings.Cut(line, " last_seen")
				k[fmt.Sprintf("recent %s: %s, %d times", l.Name(), who, strings.Count(line, ",")+1)] = 0
			}
		}
		return nil
	})
}

// compareKept lists the differences between what the twins' packet filters remember, but for what is about to be forgotten.
func compareKept(a, b kept) (diffs []string) {
	for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
		x, inLinux := a[key]
		y, beside := b[key]
		switch {
		case !inLinux && (y == 0 || y > soon):
			diffs = append(diffs, fmt.Sprintf("%s: not in Linux, but beside shunt", key))
		case !beside && (x == 0 || x > soon):
			diffs = append(diffs, fmt.Sprintf("%s: in Linux, not beside shunt", key))
		case inLinux && beside && ((x == 0) != (y == 0) && max(x, y) > soon || max(x, y)-min(x, y) > soon):
			diffs = append(diffs, fmt.Sprintf("%s: for %d s in Linux, for %d s beside shunt", key, x, y))
		}
	}
	return diffs
}
