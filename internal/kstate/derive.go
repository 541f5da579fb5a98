// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
)

// Where the kernel cannot list its hooks (nfnetlink_hook was not built) and its tables of hooks cannot be walked by BPF either
// (hookwalk.go), hooks follow from their users. In the kernel's own
// tree these are: nf_tables and the legacy tables, which are read anyway; conntrack, NAT and defragmentation, which are
// registered only on behalf of rules and NAT chains; br_netfilter, for packets that came through a bridge; IPVS, BPF netfilter
// links, ILA, SELinux and Smack, which are looked for here; AppArmor and ipvlan, which hook in where forwarded packets do not
// pass. Beyond that only modules from elsewhere could hook in, and the kernel marks those.

// Where connection tracking hooks in: NF_IP_PRI_CONNTRACK and NF_IP_PRI_CONNTRACK_CONFIRM.
const (
	priorityConntrack = -200
	priorityConfirm   = math.MaxInt32
)

// deriveHooks gives the hooks of the users that no table shows; tracked are the families in which rules turn connection
// tracking on, for all packets and wherever the rules are.
func (r *Reader) deriveHooks(tracked map[model.Family]bool, bridges bool) (out []rawHook, err error) {
	for f, on := range tracked {
		if on && (f == model.IP4 || f == model.IP6) {
			out = append(out, rawHook{NFHook: model.NFHook{Family: f, Hook: "prerouting", Priority: priorityConntrack, Kind: model.Conntrack}},
				rawHook{NFHook: model.NFHook{Family: f, Hook: "postrouting", Priority: priorityConfirm, Kind: model.Conntrack}})
		}
	}
	everywhere := func(kind model.NFKind, families []model.Family, function string) {
		for _, f := range families {
			for _, hook := range []string{"prerouting", "forward", "postrouting"} {
				out = append(out, rawHook{NFHook: model.NFHook{Family: f, Hook: hook, Kind: kind, Function: function}})
			}
		}
	}
	both := []model.Family{model.IP4, model.IP6}
	if bridges { // ebtables and br_netfilter leave no trace that could be read
		everywhere(model.NFOther, []model.Family{model.BridgeFamily}, "not known")
	}

	links, err := r.k.netfilterLinks()
	if err != nil {
		return nil, fmt.Errorf("listing BPF netfilter links: %w", err)
	}
	for _, l := range links { // a link does not tell its namespace, so it counts in all
		if f, ok := nfFamily(byte(l.Family)); ok {
			out = append(out, rawHook{NFHook: model.NFHook{Family: f, Hook: hookName(f, l.Hook), Priority: l.Priority, Kind: model.NFBPF}})
		}
	}

	services, err := r.k.file("/proc/net/ip_vs")
	if err == nil && strings.Count(services, "\n") > 2 { // three lines of heading
		everywhere(model.NFOther, both, "ip_vs")
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	// Their file systems are registered only when they are the active security module.
	systems, err := r.k.file("/proc/filesystems")
	if err != nil {
		return nil, err
	}
	for _, s := range []string{"selinuxfs", "smackfs"} {
		if strings.Contains(systems, s) {
			everywhere(model.NFOther, both, strings.TrimSuffix(s, "fs"))
		}
	}
	if r.genl.ila {
		everywhere(model.NFOther, []model.Family{model.IP6}, "ila")
	}

	modules, err := r.k.file("/proc/modules")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(modules) {
		f := strings.Fields(line) // name size users by state address (taint flags)
		if len(f) > 0 && strings.HasPrefix(f[len(f)-1], "(") && strings.Contains(f[len(f)-1], "O") {
			everywhere(model.NFOther, both, "module "+f[0])
		}
	}
	return out, nil
}
