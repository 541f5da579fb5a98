// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Rules are the images of the rules that packets meet, by family and stage.
type Rules struct {
	// Images by RuleStage; nil for a stage without rules. Equal rules should give the same pointer: the data path installs an image when the
	// pointer differs from the one in force.
	Images [2 * image.Stages]*image.Image
	Fronts [2]*image.Image           // asked before all images of IPv4, of IPv6; they have no counters
	Overs  [2]graph.Over             // asked before the image behind the route of IPv4, of IPv6
	Places [2][]ruleset.CounterPlace // of IPv4, of IPv6, by ruleset.CounterID: what Image.Counters speak of
}

// RuleStage is the index of a family's stage in Rules.Images, as the data path counts them (SHUNT_RULE_STAGES).
func RuleStage(family ruleset.Family, stage image.Stage) int {
	if family == ruleset.IP6 {
		return int(image.Stages + stage)
	}
	return int(stage)
}

// FamilyOf is the family that an index of Rules.Images belongs to, as Rules.Places counts them.
func FamilyOf(stage int) int { return stage / int(image.Stages) }

// images takes what the graph compiled. What it has of the families may be of different age, and so may what their counters are.
func images(g *graph.Graph) (out Rules) {
	for family, f := range []*graph.Filter{g.Filter4, g.Filter6} {
		if f == nil || f.Problem != "" {
			continue
		}
		for stage, im := range f.Images {
			out.Images[RuleStage(f.Program.Class.Family, image.Stage(stage))] = im
		}
		out.Fronts[family] = f.Front
		if f.Over != nil {
			out.Overs[family] = *f.Over
		}
		out.Places[family] = f.Places
	}
	return out
}
