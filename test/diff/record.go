// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record is what is kept of a long run: what was compared, on what, and what came of it.
type record struct {
	Version        string // of shunt
	First, Last    uint64 // seeds
	Size           int    // packets asked for in each configuration
	Configurations int64
	Differed       []uint64 // seeds of configurations that did, each time they were run
	Unconfirmed    int      // that did once, and not when run again
	Began          time.Time
	Took           time.Duration
	Result         *Result
}

// String is the record for people.
func (r *record) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("Generated configurations of a Linux router with shunt and of one without, compared packet by packet (docs/rig.md).\n\n")
	line("shunt", "%s", r.Version)
	line("kernel", "%s", kernel())
	line("began", "%s", r.Began.UTC().Format(time.RFC3339))
	line("duration", "%v", r.Took.Round(time.Second))
	line("seeds", "%d to %d, %d packets each", r.First, r.Last, r.Size)
	line("configurations", "%d; asked for: %d %% with packet filters, %d %% with bridges, %d %% with tunnels", r.Configurations, filterShare, bridgeShare, overlayShare)
	line("packets", "%d into each twin, %d of %d that had to be fast were", r.Result.Packets, r.Result.WasFast, r.Result.MustFast)
	line("explained", "%d packets, as they then went", r.Result.Explained)
	line("differences", "%d %v", len(r.Differed), r.Differed)
	line("unconfirmed", "%d differed in one run and not in two more", r.Unconfirmed)
	fmt.Fprintf(&b, "\n%s", &r.Result.Seen)
	return b.String()
}

func (r *record) save(path string) error {
	if err := os.WriteFile(path, []byte(r.String()), 0o644); err != nil {
		return fmt.Errorf("recording a run: %w", err)
	}
	return nil
}

// kernel is the release and the machine of the kernel that runs.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}
