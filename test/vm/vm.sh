#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vm.sh: shunt's tests on other kernels, in virtual machines. docs/other-kernels.md explains it.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"
source ../../scripts/mirror.sh
for part in common debian root kernel module clang payload boot; do
	# shellcheck source=/dev/null
	source "lib/$part.sh"
done

usage() {
	cat >&2 <<-TEXT
		usage: test/vm/vm.sh COMMAND
		  test KERNEL [PACKAGE [ARGUMENT…]]  run the packages of test/vm/packages, or one, with these arguments
		  lib KERNEL                         build the library's kernel module for it and run test/vm/packages.lib beside it
		  clangs                             fetch the compilers that this machine lacks and print the folder of their names
		  all                                run them on every kernel of test/vm/kernels
		  prepare KERNEL…                    only fetch and build what a run needs
		  shell KERNEL [PACKAGE]             a shell in the machine; ctrl-a x ends it
		  kernels                            the kernels that the archive has complete
		KERNEL is a series such as 6.12, or 7.x for the newest 7.
		SHUNT_VM_CACHE (default .cache/vm), SHUNT_VM_MEM (MiB), SHUNT_VM_CPUS, SHUNT_VM_ACCEL (tcg, kvm)
		status: 0 passed, 1 failed, 2 wrong usage, 3 no such kernel, 99 the kernel died or time ran out
	TEXT
	exit "$STATUS_USAGE"
}

# prepare KERNEL: sets KERNEL_DIR. Everything that is kept between runs is made here, under a lock.
prepare() {
	with_lock prepare install_tools
	with_lock prepare need_root
	KERNEL_DIR=$(with_lock prepare need_kernel "$1")
}

build_report() { (cd "$REPO" && go build -o "$SCRATCH/report" ./test/vm/report); }

# use_go: the Go that `make build` takes, which root's PATH may not have.
use_go() {
	local dir
	dir=$("$REPO/scripts/find-go.sh") || die 1 "no Go: scripts/setup.sh installs one"
	PATH=$dir:$PATH
	export GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
}

# test_kernel KERNEL [PACKAGE [ARGUMENT…]]
test_kernel() {
	local limit
	prepare "$1"
	shift
	build_report
	limit=$(plan "$@" | build_payload "$SCRATCH/payload.cpio")
	run_tests "$KERNEL_DIR" "$(grep -oE '^[0-9]+\.[0-9]+' "$KERNEL_DIR/release")" "$SCRATCH/payload.cpio" "$limit"
}

# test_lib KERNEL: the module lies where the tests look for it; they load it themselves.
test_lib() {
	local limit
	prepare "$1"
	mkdir -p "$SCRATCH/module"
	with_lock prepare build_module "$(<"$KERNEL_DIR/release")" "$SCRATCH/module/shunt/lib/kmod"
	build_report
	limit=$(SHUNT_VM_PACKAGES=$VM_DIR/packages.lib plan | build_payload "$SCRATCH/payload.cpio")
	pack "$SCRATCH/module" "$SCRATCH/module.cpio"
	cat "$SCRATCH/module.cpio" >>"$SCRATCH/payload.cpio"
	run_tests "$KERNEL_DIR" "$(grep -oE '^[0-9]+\.[0-9]+' "$KERNEL_DIR/release")" "$SCRATCH/payload.cpio" "$limit"
}

test_all() {
	local kernel status=0
	rm -rf "$RESULTS"
	build_report
	while read -r kernel; do
		./vm.sh test "$kernel" </dev/null || status=1
	done < <(awk '!/^#/ && NF' kernels)
	"$SCRATCH/report" summary "$RESULTS"/*/record.json
	return "$status"
}

open_shell() {
	prepare "$1"
	plan "${2:-}" | build_payload "$SCRATCH/payload.cpio" >/dev/null
	run_shell "$KERNEL_DIR" "$SCRATCH/payload.cpio"
}

list_kernels() {
	with_lock prepare refresh_lists
	complete_kernels | cut -d' ' -f1
}

command=${1:-}
shift || usage
case $command in
test | lib | shell | prepare) (($#)) || usage ;;
all | clangs | kernels) ;;
*) usage ;;
esac
[[ $command =~ ^(prepare|clangs|kernels)$ ]] || use_go
case $command in
test) test_kernel "$@" ;;
lib) test_lib "$@" ;;
clangs) with_lock prepare need_clangs ;;
all) test_all ;;
prepare) for kernel in "$@"; do prepare "$kernel"; done ;;
shell) open_shell "$@" ;;
kernels) list_kernels ;;
esac
