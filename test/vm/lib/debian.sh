# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# debian.sh: packages from Debian's archive, whatever this machine itself runs.
#
# apt is used with lists, cache and package state of our own below $CACHE/apt, so that nothing is
# ever installed and the machine's own sources stay as they are. Its other settings (proxies,
# certificates) do apply. Packages are found by searching, never by a version written down here.

readonly DEBIAN_SUITES=(bookworm trixie trixie-backports)
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# install_tools: the programs that building and booting machines takes.
install_tools() {
	local missing=() program package
	while read -r program package; do
		command -v "$program" >/dev/null || missing+=("$package")
	done <<-LIST
		qemu-system-x86_64 qemu-system-x86
		debootstrap debootstrap
		cpio cpio
		xz xz-utils
		zstd zstd
		depmod kmod
		dpkg-deb dpkg
		flock util-linux
	LIST
	[[ -e $KEYRING ]] || missing+=(debian-archive-keyring)
	((${#missing[@]})) || return 0
	((EUID == 0)) || die 1 "missing ${missing[*]}: install them, or run this as root"
	say "installing ${missing[*]}"
	apt-get -qq update || say "apt-get update failed; trying with the lists that are there"
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends \
		"${missing[@]}" >/dev/null || die 1 "apt-get could not install ${missing[*]}"
}

# debian_apt COMMAND…: apt-get or apt-cache with the private state.
debian_apt() {
	local program=$1 dir=$CACHE/apt
	shift
	"$program" -qq -o Dir::State="$dir/state" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
		-o Dir::Cache::pkgcache=pkgcache.bin -o Dir::Cache::srcpkgcache=srcpkgcache.bin \
		-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Sandbox::User=root \
		-o Acquire::Languages=none "$@"
}

# refresh_lists: fetch the package lists once a day; older ones serve when there is no network.
refresh_lists() {
	local dir=$CACHE/apt suite uri
	if [[ -n $(find "$dir/updated" -mtime -1 2>/dev/null) ]]; then
		return
	fi
	mkdir -p "$dir"/{state/lists/partial,cache/archives/partial}
	touch "$dir/status"
	uri=$(mirror)
	for suite in "${DEBIAN_SUITES[@]}"; do
		echo "deb [signed-by=$KEYRING] $uri $suite main"
	done >"$dir/sources.list"
	say "fetching package lists of ${DEBIAN_SUITES[*]}"
	if debian_apt apt-get update; then
		touch "$dir/updated"
	elif [[ -e $dir/updated ]]; then
		say "could not refresh the package lists; using those of $(date -r "$dir/updated" +%F)"
	else
		die 1 "could not fetch the package lists of ${DEBIAN_SUITES[*]} from $uri"
	fi
}
