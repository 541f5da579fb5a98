// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// Front makes the image that stands before the images of a rule set while the one that followed it is being compiled: it leaves to Linux whoever satisfies what one of
// the changed rules asks (rules.Asked), and everybody else meets the same in both. It asks only for dimensions that programs of the shape know anyway, of fewer
// packets less than it could; and since it stands in front of everything, not for what the translation of connections, if there is any, changes before a rule is met.
// Nil where no packet of the family can satisfy any.
func Front(changes *rules.Changes, translated bool, class rules.Class, devices []rules.Device, shape Shape) (*Image, error) {
	chain := ruleset.Chain{Name: "changed", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}}
	for i := range changes.Rules {
		steps := slices.DeleteFunc(changes.AskedAtFirst(i, translated), func(s ruleset.Step) bool { return shape.Dims&(1<<dimension(s.(ruleset.Test).Field)) == 0 })
		steps = append(steps, ruleset.Unknown{Name: "changed", Text: "a changed rule is being compiled"})
		chain.Rules = append(chain.Rules, ruleset.Rule{Number: i + 1, Steps: steps})
	}
	rs := &ruleset.Ruleset{Tables: []ruleset.Table{{Family: class.Family, Chains: []ruleset.Chain{chain}}}}
	im, err := Compile(rules.Flatten(rs, rules.Class{Family: class.Family}), devices, Options{Stage: Post, TreeFrom: -1})
	if err == nil && im != nil && (im.Shape.Dims&^shape.Dims != 0 || im.Shape.Asks != 0 || im.Shape.Sets != 0 || len(im.Counters) > 0) {
		return nil, fmt.Errorf("changed rules ask for %+v, programs know %+v", im.Shape, shape)
	}
	return im, err
}

// ErrWhom is why there is no image of changed rules where it would leave out packets that they concern; who asked for one waits for the images of all rules.
var ErrWhom = errors.New("it cannot be said whom changed rules concern")

// Over makes the image of what packets of changed rules meet behind the route (rules.Over), to be asked there before the image from before those changed. It asks for nothing
// that programs of the shape do not know.
func Over(pr *rules.Program, devices []rules.Device, ct bool, shape Shape) (*Image, error) {
	im, err := Compile(pr, devices, Options{Stage: Post, CT: ct, Valued: valued(pr.Class.Family, shape) &^ shape.Dims, TreeFrom: -1})
	if err == nil && im != nil && (im.Shape.Dims&^shape.Dims != 0 || im.Shape.Asks&^(shape.Asks|always(pr.Class.Family, shape)) != 0 || im.Shape.Sets&^shape.Sets != 0) {
		return nil, fmt.Errorf("changed rules ask for %+v, programs know %+v", im.Shape, shape)
	}
	if err == nil && im != nil && slices.ContainsFunc(im.Left, func(s rules.SlowTraffic) bool { return s.By == rules.Ref{} }) {
		return nil, ErrWhom
	}
	return im, err
}

// valued are the dimensions whose values programs of a shape take from packets, whether or not they know rows of them.
func valued(family ruleset.Family, shape Shape) uint16 {
	out := uint16(1 << Proto)
	if family == ruleset.IP4 { // addresses of IPv6 are no values
		out |= 1<<Src | 1<<Dst
	}
	if shape.Dims&(1<<SPort|1<<DPort) != 0 || shape.Asks&(1<<vSPort|1<<vDPort) != 0 {
		out |= 1<<SPort | 1<<DPort
	}
	return out
}

// always are the values that programs take from every packet that meets rules.
func always(family ruleset.Family, shape Shape) uint32 {
	known := uint32(1<<vProto | 1<<vDS | 1<<vTTL | 1<<vLength | 1<<vMark)
	if valued(family, shape)&(1<<SPort) != 0 {
		known |= 1<<vSPort | 1<<vDPort
	}
	if family == ruleset.IP4 {
		return known | 1<<vSrc | 1<<vDst | 1<<vID | 1<<vFrag
	}
	return known | 1<<vFlow
}

// dimension is that of a field that rules.Asked lets through.
func dimension(f ruleset.Field) Dim {
	if d, ok := sideOf(f); ok {
		return d
	}
	return dimOf[f]
}
