// SPDX-License-Identifier: Apache-2.0

// Package capability tells which functions of lib/include/shunt/accel.h the kernel's module can do, and tells a BPF object so.
//
// Problem: an object that calls a kernel function which is not there does not load, and one that asks for it by itself
// (bpf_ksym_exists) does not load with cilium/ebpf up to 0.22.0 once it is there.
//
// Mechanism: the module shows what it can do with this processor in /sys/module/shunt_lib/parameters/capabilities. Detect believes that only
// of functions that the module's type information has, since registering them fails in silence where the kernel could not read it. The
// result goes into the variable shunt_capabilities, by which the verifier drops the calls that must not be made.
//
// Invariant: a word of 0 is right on every kernel, and results do not depend on the word. Loaders of BPF objects call this; it keeps nothing.
package capability

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Word is a set of functions: the bits SHUNT_CAP_… of accel.h.
type Word uint64

const (
	CRC32c Word = 1 << iota
	Match16x16
	Hash8
)

// functions are the module's, in the order of their bits.
var functions = []struct{ name, function string }{
	{"crc32c", "shunt_kmod_crc32c"},
	{"match16x16", "shunt_kmod_match16x16"},
	{"hash8", "shunt_kmod_hash8"},
}

func (w Word) String() string {
	var names []string
	for i, f := range functions {
		if w&(1<<i) != 0 {
			names = append(names, f.name)
		}
	}
	if rest := w &^ (1<<len(functions) - 1); rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint64(rest)))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}

const (
	module    = "shunt_lib"
	parameter = "/sys/module/" + module + "/parameters/capabilities"
)

// Detect returns what can be used on this machine now, and for each function that cannot, why. It never fails: what cannot be found out is
// not used.
func Detect() (Word, []string) {
	text, err := os.ReadFile(parameter)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, []string{"the module " + module + " is not loaded"}
	}
	if err != nil {
		return 0, []string{fmt.Sprintf("reading the module's capabilities: %v", err)}
	}
	return judge(string(text), func(function string) error {
		types, err := moduleTypes()
		if err != nil {
			return err
		}
		var f *btf.Func
		return types.TypeByName(function, &f)
	})
}

// moduleTypes are the type information of the module, which refers to that of the kernel.
func moduleTypes() (*btf.Spec, error) {
	if _, err := os.Stat("/sys/kernel/btf/" + module); err != nil {
		return nil, errors.New("the kernel has no type information (BTF) of the module: it was built without, or for another kernel")
	}
	return btf.LoadKernelModuleSpec(module)
}

// judge reads what the module says of itself; have tells whether programs can call a function.
func judge(text string, have func(function string) error) (w Word, reasons []string) {
	said, err := strconv.ParseUint(strings.TrimSpace(text), 0, 64)
	if err != nil {
		return 0, []string{fmt.Sprintf("the module's capabilities are no number: %v", err)}
	}
	for i, f := range functions {
		if said&(1<<i) == 0 {
			reasons = append(reasons, f.name+": this processor has no instruction for it, or the module was loaded without it")
		} else if err := have(f.function); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: function %s: %v", f.name, f.function, err))
		} else {
			w |= 1 << i
		}
	}
	return w, reasons
}

// Set tells an object that is about to be loaded what it may use. An object without the variable does not include accel.h, or uses
// nothing of it: that is an error, because it would ignore the word.
func Set(spec *ebpf.CollectionSpec, w Word) error {
	variable := spec.Variables["shunt_capabilities"]
	if variable == nil {
		return errors.New("setting capabilities: the object has no variable shunt_capabilities")
	}
	if err := variable.Set(uint64(w)); err != nil {
		return fmt.Errorf("setting capabilities: %w", err)
	}
	return nil
}
