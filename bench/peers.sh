#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh DIR: put a small Debian 13 with the programs that the benchmarks compare with into DIR, which can be deleted at any time.
# Debian 12's xdp-tools (1.3.1) has no xdp-forward yet. The mirror is the one that apt uses, or $MIRROR.
set -euo pipefail
dir=${1:?usage: peers.sh DIR}
packages=xdp-tools

if [[ -x $dir/usr/sbin/xdp-forward ]]; then
	echo "peers: $dir is there already" >&2
	exit 0
fi
command -v debootstrap >/dev/null || apt-get -qq install -y debootstrap
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/\?$' || true)}
rm -rf "$dir"
mkdir -p "$dir"
debootstrap --variant=minbase --include="$packages" trixie "$dir" "${mirror:-http://deb.debian.org/debian}" >"$dir.log" 2>&1 || {
	tail -5 "$dir.log" >&2
	exit 1
}
rm -f "$dir"/var/cache/apt/archives/*.deb "$dir.log"
chroot "$dir" dpkg-query -W ${packages//,/ }
