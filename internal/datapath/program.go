// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth/specialise"
)

// specialised makes the program for one configuration: constants folded, what is not configured gone. bound names the maps that it
// may refer to.
func (o *objects) specialised(hook graph.Hook, c bpfobj.Config, bound map[string]*ebpf.Map) (*ebpf.ProgramSpec, error) {
	frozen := make([]byte, binary.Size(c))
	if _, err := binary.Encode(frozen, binary.NativeEndian, &c); err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	insns, err := o.fold(hook, c, frozen)
	if err != nil {
		return nil, err
	}
	made := *o.programs[hook]
	spec := &made
	spec.Instructions = insns
	if slices.Contains(specialise.Maps(insns), rodata) {
		// Something is read by a computed address; the verifier gets the values from a frozen map instead.
		m, err := o.freeze(frozen)
		if err != nil {
			return nil, err
		}
		bound[rodata] = m
	}
	return spec, nil
}

// fold specialises, or finds the result of having done so before: configurations come back (a rule is added and removed, an interface goes
// down and up), and folding costs as much as loading.
func (o *objects) fold(hook graph.Hook, c bpfobj.Config, frozen []byte) (asm.Instructions, error) {
	key := foldKey{hook, c}
	o.mu.Lock()
	insns, ok := o.folded[key]
	o.mu.Unlock()
	if ok {
		return slices.Clone(insns), nil
	}
	insns, stats, err := specialise.Run(o.programs[hook].Instructions, map[string][]byte{rodata: frozen})
	if err != nil {
		return nil, err
	}
	restSoon()
	untyped(insns)
	if stats.Untouched != "" {
		o.log.Warn("a program could not be specialised", "hook", hook, "why", stats.Untouched)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.folded) >= maxFolded {
		clear(o.folded)
	}
	o.folded[key] = insns
	return slices.Clone(insns), nil
}

// load makes and loads the program for one configuration. stats are the port's counters. Old verifiers walk more paths: where one gives up over a program, it
// does without what can be spared.
func (o *objects) load(hook graph.Hook, c bpfobj.Config, stats *ebpf.Map) (prog *ebpf.Program, err error) {
	defer func() { // a fault of shunt over one configuration leaves that port to Linux, and no other
		if v := recover(); v != nil {
			o.log.Error("a fault of shunt", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			prog, err = nil, fmt.Errorf("a fault of shunt: %v", v)
		}
	}()
	for {
		less, without := lesser(c)
		if without == "" {
			return o.try(hook, c, stats)
		}
		key := foldKey{hook, c}
		o.mu.Lock()
		large := o.large[key]
		o.mu.Unlock()
		if !large {
			prog, err := o.try(hook, c, stats)
			if !errors.Is(err, unix.E2BIG) {
				return prog, err
			}
			o.log.Warn(without+" at a port: this kernel's verifier does not take its program with that", "hook", hook, "ifindex", c.Port)
			o.mu.Lock()
			if len(o.large) >= maxFolded {
				clear(o.large)
			}
			o.large[key] = true
			o.mu.Unlock()
		}
		c = less
	}
}

// lesser is a configuration that makes a smaller program, and what is lost by it; "" if there is none. What saves most and costs least goes first, and forwarding last.
func lesser(c bpfobj.Config) (less bpfobj.Config, without string) {
	switch {
	case c.RuleMoves > bpfobj.RuleMovesFew:
		c.RuleMoves = bpfobj.RuleMovesFew
		return c, "the first steps through rules take longer"
	case c.Flows != 0:
		c.Flows = 0
		return c, "flows are not sampled"
	case c.Verdicts != 0:
		c.Verdicts = 0
		return c, "what rules say is not remembered"
	case c.Cache4 != 0 || c.Cache6 != 0:
		c.Cache4, c.Cache6 = 0, 0
		return c, "routes are not remembered"
	case c.Generic == bpfobj.GenericWhole:
		c.Generic = bpfobj.GenericLean
		return c, "for a moment after a change, routes are not remembered and tagged frames stay with Linux"
	case c.Nat != 0:
		c.Nat = 0
		return c, "what is translated stays with Linux"
	case c.Bridge == bpfobj.BridgeHost:
		c.Bridge = bpfobj.BridgeFrames
		return c, "what a bridge hands to its host stays with Linux"
	}
	return c, ""
}

// try makes one program as it is asked for.
func (o *objects) try(hook graph.Hook, c bpfobj.Config, stats *ebpf.Map) (*ebpf.Program, error) {
	bound := maps.Clone(o.maps)
	bound[statsMap] = stats
	spec, err := o.specialised(hook, c, bound)
	if err != nil {
		return nil, err
	}
	if m := bound[rodata]; m != nil {
		defer m.Close() // the program keeps its own reference
	}
	if err := associate(spec, bound); err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the %s program: %w", hook, err)
	}
	return prog, nil
}

// freeze makes a read-only map from which the verifier takes the configuration as constants.
func (o *objects) freeze(contents []byte) (*ebpf.Map, error) {
	spec := o.rodata.Copy()
	spec.Contents = []ebpf.MapKV{{Key: uint32(0), Value: contents}}
	m, err := ebpf.NewMap(spec) // also freezes it, as BPF_F_RDONLY_PROG asks
	if err != nil {
		return nil, fmt.Errorf("creating the frozen configuration: %w", err)
	}
	return m, nil
}
