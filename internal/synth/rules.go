// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Rules are the images of the rules that packets meet, by family and stage.
type Rules struct {
	// Images by way and stage, as the data path counts them (SHUNT_RULE_STAGES); nil for a stage without rules. Equal rules should give the same pointer: the data path installs an image when the
	// pointer differs from the one in force.
	Images [Ways * image.Stages]*image.Image
	Fronts [2]*image.Image              // asked before all images of IPv4, of IPv6; they have no counters
	Overs  [2]graph.Over                // asked before the image behind the route of IPv4, of IPv6
	Places [Ways][]ruleset.CounterPlace // by way and ruleset.CounterID: what Image.Counters speak of
}

// Ways of packets, each with rules of its own: routed IPv4 and IPv6, and frames with them between the ports of bridges.
const Ways = 4

// WayOf is the way that an index of Rules.Images belongs to, as Rules.Places counts them.
func WayOf(stage int) int { return stage / int(image.Stages) }

// images takes what the graph compiled. What it has of the families may be of different age, and so may what their counters are.
func images(g *graph.Graph) (out Rules) {
	for way, f := range [Ways]*graph.Filter{g.Filter4, g.Filter6, g.Frames4, g.Frames6} {
		if f == nil || f.Problem != "" {
			continue
		}
		copy(out.Images[way*int(image.Stages):], f.Images[:])
		out.Places[way] = f.Places
		if way >= len(out.Fronts) { // those of frames wait for their images
			continue
		}
		out.Fronts[way] = f.Front
		if f.Over != nil {
			out.Overs[way] = *f.Over
		}
	}
	return out
}
