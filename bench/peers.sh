#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh DIR: put a small Debian 13 with the programs that the benchmarks compare with into DIR, which can be deleted at any time.
# Debian 12's xdp-tools (1.3.1) has no xdp-forward yet. The mirror is the one that apt uses, or $MIRROR.
set -euo pipefail
source "$(dirname "$0")/../scripts/mirror.sh"
dir=${1:?usage: peers.sh DIR}
packages="xdp-tools netpipe-tcp openvswitch-switch"

if [[ -x $dir/usr/sbin/xdp-forward && -x $dir/usr/bin/NPtcp && -x $dir/usr/bin/ovs-vsctl ]]; then
	echo "peers: $dir is there already" >&2
	exit 0
fi
command -v debootstrap >/dev/null || apt-get -qq install -y debootstrap
mirror=${MIRROR:-$(mirror)}
rm -rf "$dir"
mkdir -p "$dir"
# quiet COMMAND…: what it says is shown only if it fails.
quiet() {
	"$@" >"$dir.log" 2>&1 || {
		tail -5 "$dir.log" >&2
		exit 1
	}
}
quiet debootstrap --variant=minbase trixie "$dir" "$mirror"
printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d" # no package starts a service
chmod +x "$dir/usr/sbin/policy-rc.d"
# shellcheck disable=SC2086
quiet chroot "$dir" apt-get -qq install -y --no-install-recommends $packages
rm -f "$dir"/var/cache/apt/archives/*.deb "$dir.log"
# shellcheck disable=SC2086
chroot "$dir" dpkg-query -W $packages
