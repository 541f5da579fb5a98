// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Hook is where the object will be attached.
type Hook string

// The hooks.
const (
	XDP Hook = "xdp"
	TC  Hook = "tc"
)

// Options say what for.
type Options struct {
	Hook      Hook
	Interface string // the one that it will be attached to; "" leaves rules that name one to Linux
}

// Result is what a rule set became.
type Result struct {
	Object  []byte
	Section string // that holds the program, as loaders call it
	Fates   []Fate // of every rule, in their order
	Unsaid  int    // rules' elements and combinations beyond those in Fates that are left to Linux
	Bytes   int    // of rules in the object
}

// Compile makes the object.
func Compile(rs *ruleset.Ruleset, o Options) (*Result, error) {
	maps, err := staticNAT(rs, o.Interface)
	if err != nil {
		return nil, err
	}
	known := reduce(rs, o.Interface)
	class := rules.Class{}
	if o.Interface != "" {
		class.IIF = &rules.Device{Name: o.Interface, Type: arphrdEther}
	}
	parts := contents{maps: maps}
	out := &Result{Section: string(o.Hook)}
	e := newExplainer(rs, known, maps)
	for i, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
		class.Family = family
		program := rules.Flatten(known, class)
		e.program(program)
		for stage := range image.Stages {
			im, err := image.Compile(program, nil, image.Options{Stage: stage})
			if err != nil {
				return nil, fmt.Errorf("compiling the rules for %s: %w", family, err)
			}
			parts.images[i*int(image.Stages)+int(stage)] = im
			if im != nil {
				out.Unsaid += im.Unsaid
				out.Bytes += len(im.Bytes)
			}
		}
	}
	out.Fates = e.fates()
	out.Object, err = parts.write(o.Hook)
	return out, err
}

const arphrdEther = 1
