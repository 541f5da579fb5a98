# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# mirror.sh: where packages of Debian come from. Sourced.

# mirror: the Debian archive that this machine's apt uses, else, as on Ubuntu, the one that debootstrap takes by itself; nothing without either.
mirror() {
	local uri
	# shellcheck disable=SC2016
	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | grep -m1 -E '^https?://') || true
	[[ -n $uri ]] || uri=$(sed -n 's/^DEF_MIRROR="\(.*\)"$/\1/p' "$(command -v debootstrap || echo /dev/null)")
	echo "$uri"
}
