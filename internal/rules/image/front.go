// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// Front makes the image that stands before the images of a rule set while the one that followed it is being compiled: it leaves to Linux whoever satisfies what one of
// the changed rules asks (rules.Asked), and everybody else meets the same in both. It asks only for dimensions that programs of the shape know anyway, of fewer
// packets less than it could. Nil where no packet of the family can satisfy any.
func Front(changed []ruleset.Rule, class rules.Class, devices []rules.Device, shape Shape) (*Image, error) {
	chain := ruleset.Chain{Name: "changed", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}}
	for i := range changed {
		steps := slices.DeleteFunc(rules.Asked(&changed[i]), func(s ruleset.Step) bool { return shape.Dims&(1<<dimension(s.(ruleset.Test).Field)) == 0 })
		steps = append(steps, ruleset.Unknown{Name: "changed", Text: "a changed rule is being compiled"})
		chain.Rules = append(chain.Rules, ruleset.Rule{Number: i + 1, Steps: steps})
	}
	rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: class.Family, Chains: []ruleset.Chain{chain}}}}
	im, err := Compile(rules.Flatten(rs, rules.Class{Family: class.Family}), devices, Options{Stage: Post})
	if err == nil && im != nil && (im.Shape.Dims&^shape.Dims != 0 || im.Shape.Asks != 0 || im.Shape.Sets != 0 || len(im.Counters) > 0) {
		return nil, fmt.Errorf("changed rules ask for %+v, programs know %+v", im.Shape, shape)
	}
	return im, err
}

// dimension is that of a field that rules.Asked lets through.
func dimension(f ruleset.Field) Dim {
	if d, ok := sideOf(f); ok {
		return d
	}
	return dimOf[f]
}
