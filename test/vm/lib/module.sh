# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# module.sh: the library's kernel module (lib/kmod), built for a kernel out of Debian's packages.
#
# The kernel's build programs are linked for a newer Debian than this machine may be, and need a compiler and pahole besides. So they run in
# a second bootstrapped root, $CACHE/build-root; the headers are unpacked there and never installed.

readonly BUILD_PACKAGES=gcc,make,pahole,libelf1t64

# in_root ROOT COMMAND…: there, with a /proc (objtool of Linux 7 wants one), which goes with the command.
in_root() {
	local root=$1
	shift
	# shellcheck disable=SC2016
	unshare --mount sh -ec 'root=$1; shift; mount -t proc proc "$root/proc"; exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin "$@"' \
		sh "$root" "$@"
}

# need_headers RELEASE: the kernel's headers and build programs in the build root.
need_headers() {
	local release=$1 root=$CACHE/build-root work packages package
	[[ ! -e $root/usr/src/$release.complete ]] || return 0
	packages=$(debian_apt apt-cache show "linux-headers-$release" |
		sed -n 's/^Depends: //p' | tr ',' '\n' | grep -oE '^ *linux-(headers|kbuild)-[^ ]+' | sort -u) || true
	[[ -n $packages ]] || die "$STATUS_NO_KERNEL" "the archive has no headers of $release any more"
	say "fetching the headers of Linux $release"
	work=$root/unpack
	rm -rf "$work"
	mkdir -p "$work/packages"
	# shellcheck disable=SC2086
	(cd "$work/packages" && debian_apt apt-get download "linux-headers-$release" $packages) ||
		die "$STATUS_NO_KERNEL" "could not fetch the headers of $release from $(mirror)"
	for package in "$work"/packages/*.deb; do
		dpkg-deb --extract "$package" "$work/tree"
	done
	# Only these two: whole packages could replace the root's link /lib by a folder.
	cp -a "$work"/tree/usr/src/. "$root/usr/src/"
	cp -a "$work"/tree/usr/lib/linux-kbuild-* "$root/usr/lib/"
	rm -rf "$work"
	touch "$root/usr/src/$release.complete"
}

# build_module RELEASE OUT: shunt_lib.ko, and the same without its type information, which has to be refused.
build_module() {
	local release=$1 out=$2 root=$CACHE/build-root work
	bootstrap build-root "$BUILD_PACKAGES"
	need_headers "$release"
	say "building the module for Linux $release"
	work=$(mktemp -d -p "$root/tmp")
	cp "$REPO"/lib/kmod/{Kbuild,Makefile,dkms.conf,*.c,*.h} "$work/"
	cp -r "$REPO/lib/include" "$work/"
	# Debian names the very compiler that built the kernel; the root's own will do.
	in_root "$root" make -C "${work#"$root"}" "KDIR=/usr/src/linux-headers-$release" \
		CC=gcc HOSTCC=gcc >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		die 1 "the module does not build for $release"
	}
	grep -E 'warning|no BTF|Skipping' "$work/log" >&2 || true
	mkdir -p "$out"
	cp "$work/shunt_lib.ko" "$out/"
	in_root "$root" objcopy --remove-section .BTF --remove-section .BTF.base "${work#"$root"}/shunt_lib.ko" "${work#"$root"}/nobtf.ko"
	cp "$work/nobtf.ko" "$out/shunt_lib-nobtf.ko"
	rm -rf "$work"
}
