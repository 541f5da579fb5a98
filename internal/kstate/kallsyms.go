// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// eachFunction calls each for every function in /proc/kallsyms, those of modules and of BPF programs too, with its address, 0 where the kernel hides it. What it passes is
// valid during the call. Reading the list takes the kernel tens of milliseconds.
func eachFunction(each func(addr uint64, name []byte, foreign bool)) error {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err
	}
	defer f.Close()
	none := true
	lines := bufio.NewScanner(f)
	for lines.Scan() { // address, type, name, and a tab and [module]
		number, rest, _ := bytes.Cut(lines.Bytes(), []byte{' '})
		if len(rest) < 3 || rest[0]|0x20 != 't' {
			continue // no function
		}
		at, err := strconv.ParseUint(string(number), 16, 64)
		if err != nil {
			continue
		}
		name, module, _ := bytes.Cut(rest[2:], []byte{'\t'})
		none = false
		each(at, name, len(module) > 0)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading /proc/kallsyms: %w", err)
	}
	if none {
		return errors.New("/proc/kallsyms names no functions")
	}
	return nil
}

// builtinFunctions says which of these functions the kernel itself has, and no module of it. Compilers put a dot and words of their own behind
// names of static ones.
func builtinFunctions(wanted []string) (map[string]bool, error) {
	found := make(map[string]bool, len(wanted))
	for _, name := range wanted {
		found[name] = false
	}
	return found, eachFunction(func(_ uint64, name []byte, foreign bool) {
		name, _, _ = bytes.Cut(name, []byte{'.'})
		if _, ok := found[string(name)]; ok && !foreign {
			found[string(name)] = true
		}
	})
}
