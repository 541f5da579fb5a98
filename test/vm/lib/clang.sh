# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# clang.sh: the compilers that the library's headers promise to compile with, whichever of them this machine's Debian has.
#
# No Debian has all four. So those of several are unpacked into one more root, and are run from outside by the root's own loader, with the
# names that they would have if they were installed.

readonly CLANGS='16 17 18 19'

# need_clangs: prints the folder with clang-N and llvm-strip-N.
need_clangs() {
	local root=$CACHE/clang-root bin=$CACHE/clang-bin version
	install_tools >&2
	refresh_lists >&2
	bootstrap clang-root clang-17,llvm-17,clang-18,llvm-18,clang-19,llvm-19 >&2
	unpack_clang16 >&2
	rm -rf "$bin"
	mkdir -p "$bin"
	for version in $CLANGS; do
		# Run by the loader a program does not know where it lies, so the compiler is told where its own headers are.
		run_from_root "$root" "$version" clang "-resource-dir=$root/usr/lib/llvm-$version/lib/clang/$version" >"$bin/clang-$version"
		run_from_root "$root" "$version" llvm-strip >"$bin/llvm-strip-$version"
		chmod +x "$bin/clang-$version" "$bin/llvm-strip-$version"
	done
	echo "$bin"
}

# run_from_root ROOT VERSION PROGRAM [ARGUMENT]: a script that runs it.
run_from_root() {
	local root=$1 version=$2 program=$3 argument=${4:-}
	printf '#!/bin/sh\nexec %q --argv0 %q --library-path %q %q %s"$@"\n' "$root/lib64/ld-linux-x86-64.so.2" "$program-$version" \
		"$root/usr/lib/llvm-$version/lib:$root/usr/lib/x86_64-linux-gnu" "$root/usr/lib/llvm-$version/bin/$program" "${argument:+"$argument "}"
}

# unpack_clang16: from the Debian before the root's. Its libraries have names of their own; the rest the root has.
unpack_clang16() {
	local root=$CACHE/clang-root work=$CACHE/clang-root/unpack package
	[[ ! -e $root/clang-16.complete ]] || return 0
	rm -rf "$work"
	mkdir -p "$work"
	say "fetching clang-16"
	(cd "$work" && debian_apt apt-get download clang-16 libclang-common-16-dev libclang-cpp16 libllvm16 llvm-16) ||
		die 1 "could not fetch clang-16 from $(mirror)"
	for package in "$work"/*.deb; do
		dpkg-deb --extract "$package" "$work/tree"
	done
	cp -a "$work/tree/usr/." "$root/usr/"
	rm -rf "$work"
	touch "$root/clang-16.complete"
}
