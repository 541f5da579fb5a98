// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"maps"
	"os"
	"slices"
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
		list, err := r.readBuiltin()
		if err != nil { // which every reading has to say again
			r.fault(Netfilter, "whether "+module+" is built into the kernel", err)
			return false
		}
		r.builtinList = list
	}
	r.builtin[module] = r.builtinList[module]
	return r.builtin[module]
}

// functions are what a kernel has in it that has these modules built in.
var functions = map[string]string{
	"nf_tables": "nft_do_chain",
	"ip_set":    "ip_set_type_register",
	"xfrm_user": "xfrm_add_policy",
	"af_key":    "pfkey_sendmsg",
}

// readBuiltin lists what would be modules if it were not built into the kernel. Where the file is missing (a container with a
// foreign root, a kernel that was booted without its modules) the kernel's functions are looked for.
func (r *Reader) readBuiltin() (map[string]bool, error) {
	release, err := r.k.file("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	list, err := r.k.file("/lib/modules/" + release + "/modules.builtin")
	if err != nil {
		found, err := r.k.builtin(slices.Collect(maps.Values(functions)))
		if err != nil {
			return nil, err
		}
		for module, function := range functions {
			out[module] = found[function]
		}
		return out, nil
	}
	for _, line := range strings.Fields(list) {
		name := strings.TrimSuffix(line[strings.LastIndexByte(line, '/')+1:], ".ko")
		out[strings.ReplaceAll(name, "-", "_")] = true
	}
	return out, nil
}
