# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# root.sh: the file system of the machines, the same for every kernel.
#
# A Debian root is bootstrapped once into $CACHE/root. Of it only the programs listed in
# test/vm/programs go into the machine, with the libraries that they need: the initramfs stays
# small enough to be unpacked by an emulated processor in a second.

readonly ROOT_SUITE=trixie

# need_root builds $CACHE/root and $CACHE/base.cpio, unless they are there for the same list.
need_root() {
	local stamp
	stamp=$(cat "$VM_DIR/programs" "${BASH_SOURCE[0]}" | sha256sum)
	if [[ $(cat "$CACHE/base.stamp" 2>/dev/null) == "$stamp" ]]; then
		return
	fi
	bootstrap_root
	say "packing the programs of the machines"
	pack_base
	echo "$stamp" >"$CACHE/base.stamp"
}

# programs_column N: that column of the list, "-" left out.
programs_column() { awk -v column="$1" '!/^#/ && NF && $column != "-" {print $column}' "$VM_DIR/programs" | sort -u; }

bootstrap_root() { bootstrap root "$(programs_column 2 | paste -sd,)"; }

# bootstrap NAME PACKAGE,…: a Debian with these packages in $CACHE/NAME, unless it is there for the same list.
bootstrap() {
	local name=$1 packages=$2 uri proxy
	if [[ $(cat "$CACHE/$name.packages" 2>/dev/null) == "$packages" ]]; then
		return
	fi
	((EUID == 0)) || die 1 "bootstrapping a Debian root needs root: run this once as root"
	uri=$(mirror)
	say "bootstrapping Debian $ROOT_SUITE into $CACHE/$name (half a minute or more with a near mirror)"
	proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
	rm -rf "${CACHE:?}/$name" "$CACHE/$name.packages"
	# The script is named, because an older debootstrap does not know newer suites.
	http_proxy=${http_proxy:-$proxy} debootstrap --variant=minbase --arch=amd64 --keyring="$KEYRING" \
		--include="$packages" "$ROOT_SUITE" "$CACHE/$name" "$uri" /usr/share/debootstrap/scripts/sid \
		>"$CACHE/debootstrap.log" 2>&1 || {
		tail -n 5 "$CACHE/debootstrap.log" >&2
		die 1 "debootstrap from $uri failed; the whole log: $CACHE/debootstrap.log"
	}
	echo "$packages" >"$CACHE/$name.packages"
}

# needed_files: the path of every listed program with all symbolic links on the way, and of every
# library that it is linked with. Runs inside the bootstrapped root, names on its input.
# shellcheck disable=SC2317
needed_files() {
	follow() {
		local path=$1
		while path=$(realpath "$(dirname "$path")")/$(basename "$path") && echo "$path" && [[ -L $path ]]; do
			local target
			target=$(readlink "$path")
			[[ $target == /* ]] && path=$target || path=$(dirname "$path")/$target
		done
	}
	while read -r name; do
		program=$(command -v "$name") || {
			echo "no program $name in its package" >&2
			exit 1
		}
		follow "$program"
		for library in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do
			follow "$library"
		done
	done
}

pack_base() {
	local stage applet library=usr/lib/x86_64-linux-gnu
	stage=$(mktemp -d -p "$SCRATCH")
	programs_column 1 | chroot "$CACHE/root" /bin/bash -c \
		"set -euo pipefail; PATH=/usr/sbin:/usr/bin; $(declare -f needed_files); needed_files" >"$stage.files" ||
		die 1 "cannot tell which files the programs need"
	{
		sed 's,^/,,' "$stage.files"
		# What no linker lists: extensions that are opened by name, and the names of numbers.
		printf '%s\n' bin sbin lib lib64 $library/xtables $library/libgcc_s.so.1 usr/share/iproute2 \
			etc/protocols etc/services etc/passwd etc/group etc/ethertypes
	} | sort -u | tar -C "$CACHE/root" -c -T - | tar -C "$stage" -x
	mkdir -p "$stage"/{dev,proc,run,sys,tmp,root,etc,out,shunt,usr/lib/modules}
	for applet in $(chroot "$CACHE/root" busybox --list); do
		[[ -e $stage/usr/bin/$applet || -L $stage/usr/bin/$applet ||
			-e $stage/usr/sbin/$applet || -L $stage/usr/sbin/$applet ]] || ln -s busybox "$stage/usr/bin/$applet"
	done
	pack "$stage" "$CACHE/base.cpio"
}
