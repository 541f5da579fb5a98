# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.sh: where things are, how progress and failure are told. Sourced by vm.sh; everything
# below lib/ shares these names and nothing else.

VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPO=$(cd "$VM_DIR/../.." && pwd)
CACHE=${SHUNT_VM_CACHE:-$REPO/.cache/vm}
# shellcheck disable=SC2034
RESULTS=$REPO/.cache/vm-results

# Exit statuses beside 0, 1 and the report's 99 for a machine that did not finish.
# shellcheck disable=SC2034
readonly STATUS_USAGE=2 STATUS_NO_KERNEL=3

# Everything temporary, gone with this process.
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

say() { printf 'vm: %s\n' "$*" >&2; }

# die STATUS MESSAGE…
die() {
	local status=$1
	shift
	say "$@"
	exit "$status"
}

# pack DIR OUT.cpio: what the kernel unpacks as (a part of) its initramfs. Uncompressed, because
# decompressing is what would take the time in an emulated processor; appended to others by cat.
pack() {
	(cd "$1" && find . -mindepth 1 -print0 | sort -z | cpio --null --create --format=newc --owner=0:0 --quiet) >"$2.part"
	mv "$2.part" "$2"
}

# with_lock NAME COMMAND…: one at a time, so that two runs can share a cache.
with_lock() {
	local name=$1
	shift
	mkdir -p "$CACHE"
	(
		flock 9
		"$@"
	) 9>"$CACHE/$name.lock"
}
