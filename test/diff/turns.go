// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/datapath"
)

// chosen is how a case by hand runs this time: at which hooks, at which others as well where a reason was not met that it must meet, and where with both tiers.
type chosen struct {
	hooks, spare []string
	both         string // the hook at which it has both tiers from the start
}

// everyTurn runs everything.
const everyTurn = -1

// allTurns is after how many runs every case has run at every hook.
const allTurns = 8

// turnsOf chooses what runs of the cases by hand in one run of many. Those of the large families take eight turns: each runs in two of them, at one hook in either; all others run each time, at their
// hooks by turns. A case whose turn it is not runs all the same if no other that runs must meet one of its reasons.
//
// One in four, or each at one of its hooks where everything runs, has its generic programs from the start, as a machine has them that has been at rest for a while.
func turnsOf(cases []hand, hooks []string, number int) []chosen {
	out := make([]chosen, len(cases))
	met := map[string]bool{}
	idle := []int{}
	nth := 0
	for i := range cases {
		h := &cases[i]
		out[i].hooks = hooks
		if len(h.hooks) > 0 {
			out[i].hooks = h.hooks
		}
		if number == everyTurn {
			out[i].both = out[i].hooks[i%len(out[i].hooks)]
		}
		if number != everyTurn {
			group := (nth + number) % allTurns
			nth++
			if len(out[i].hooks) == 2 {
				at := group % 2
				out[i].hooks, out[i].spare = out[i].hooks[at:at+1], out[i].hooks[1-at:2-at]
			}
			if h.takesTurns() && group/2 != 0 {
				idle = append(idle, i)
				continue
			}
		}
		for _, r := range h.reasons {
			met[r] = true
		}
	}
	for _, i := range idle {
		alone := slices.ContainsFunc(cases[i].reasons, func(r string) bool { return !met[r] })
		for _, r := range cases[i].reasons {
			met[r] = met[r] || alone
		}
		if !alone {
			out[i] = chosen{}
		}
	}
	runs := 0
	for i := range out {
		if number == everyTurn || len(out[i].hooks) == 0 {
			continue
		}
		if (runs+number/allTurns)%4 == 0 {
			out[i].both = out[i].hooks[0]
		}
		runs++
	}
	return out
}

// at is the tier at a hook.
func (c *chosen) at(hook string) string {
	if hook == c.both {
		return string(datapath.Both)
	}
	return ""
}

// takesTurns says whether a case belongs to one of the families in which every feature has several cases and what differs between them is asked of the
// same nodes at both hooks: rules, connections, translation, bridges, tunnels and ports with programs at both hooks.
func (h *hand) takesTurns() bool {
	family, _, _ := strings.Cut(h.name, " ")
	return slices.Contains([]string{"rules", "conntrack", "nat", "bridge", "overlay", "hooks"}, family)
}
