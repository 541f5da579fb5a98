// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"os"
	"strings"
)

// loaded says whether a subsystem that may be a module is there, without making the kernel load it: a question to it, even
// opening its netlink socket, would. A kernel without /proc/modules loads nothing, so that asking is safe.
func (r *Reader) loaded(module string) bool {
	if r.builtin[module] {
		return true
	}
	if _, err := r.k.list("/sys/module/" + module); err == nil {
		return true
	}
	modules, err := r.k.file("/proc/modules")
	if errors.Is(err, os.ErrNotExist) {
		r.builtin[module] = true
		return true
	}
	if strings.HasPrefix(modules, module+" ") || strings.Contains(modules, "\n"+module+" ") {
		return true
	}
	if r.builtinList == nil {
		r.builtinList = r.readBuiltin()
	}
	r.builtin[module] = r.builtinList[module]
	return r.builtin[module]
}

// readBuiltin lists what would be modules if it were not built into the kernel. Where the file is missing (a container with
// a foreign root) nothing counts as built in: then the subsystem is asked only once it shows in /sys/module.
func (r *Reader) readBuiltin() map[string]bool {
	out := map[string]bool{}
	release, err := r.k.file("/proc/sys/kernel/osrelease")
	if err != nil {
		return out
	}
	list, err := r.k.file("/lib/modules/" + release + "/modules.builtin")
	if err != nil {
		r.fault(Netfilter, "list of built-in modules", err)
		return out
	}
	for _, line := range strings.Fields(list) {
		name := strings.TrimSuffix(line[strings.LastIndexByte(line, '/')+1:], ".ko")
		out[strings.ReplaceAll(name, "-", "_")] = true
	}
	return out
}
