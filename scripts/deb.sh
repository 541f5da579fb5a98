#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh VERSION: a Debian package of what `make install` installs, as bin/shunt_VERSION_ARCH.deb.
#
# Built with dpkg-deb alone. Installing the package starts nothing: whoever wants shunt enables it.
# Removing it takes the fast path out of the kernel first.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1#v}
[[ $version == [0-9]* ]] || version=0~$version # no tag yet: sorts before every release
arch=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

make --no-print-directory install DESTDIR="$tree" PREFIX=/usr UNITDIR=/lib/systemd/system
install -d "$tree/DEBIAN" "$tree/usr/share/doc/shunt"
cp LICENSE "$tree/usr/share/doc/shunt/copyright"
cp -r LICENSES "$tree/usr/share/doc/shunt/"
cat >"$tree/DEBIAN/control" <<-TEXT
	Package: shunt
	Version: $version
	Architecture: $arch
	Section: net
	Priority: optional
	Maintainer: The authors of shunt
	Installed-Size: $(du -sk "$tree" | cut -f1)
	Description: transparent fast path for Linux networking
	 Reads how Linux is configured, synthesizes the smallest eBPF program that
	 forwards packets exactly so, and attaches it. Packets that the program does
	 not fully understand go through Linux as before.
TEXT
cat >"$tree/DEBIAN/prerm" <<-'TEXT'
	#!/bin/sh
	set -e
	# On removal everything goes; on an upgrade stubs stay and the new daemon adopts them.
	if [ "$1" = remove ]; then
		/usr/sbin/shunt stop --detach || echo "shunt: what it left can be removed by: umount /run/shunt/bpf" >&2
		if [ -d /run/systemd/system ]; then
			systemctl disable --now shunt.service || true
		fi
	fi
TEXT
cat >"$tree/DEBIAN/postinst" <<-'TEXT'
	#!/bin/sh
	set -e
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		systemctl try-restart shunt.service
	fi
TEXT
cat >"$tree/DEBIAN/postrm" <<-'TEXT'
	#!/bin/sh
	set -e
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
TEXT
chmod 755 "$tree/DEBIAN/prerm" "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
dpkg-deb --root-owner-group --build "$tree" "bin/shunt_${version}_$arch.deb"
