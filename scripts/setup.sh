#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh: install what building, the demo and the tests need on Debian 12, 13 or Ubuntu 22.04, 24.04.
#
#   setup.sh [PART…]    parts: build demo test generate docker (default: build demo test)
#   setup.sh --check    say what is missing and install nothing; status 1 if something is
#
# What is there is left alone: with nothing missing, apt is not run. What is installed comes from the
# distribution, each program with the reason for it below. Running shunt itself needs none of this.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/mirror.sh

# program  package  parts  why
list() {
	cat <<-'LIST'
		make      make        build,demo,test,generate  runs the recipes
		git       git         build,test,generate       tells the version, and whether generated files changed
		ip        iproute2    demo,test                 makes namespaces, links, routes and rules
		tc        iproute2    demo,test                 makes queueing disciplines and filters
		nft       nftables    demo,test                 firewall rules
		iptables-legacy  iptables  demo,test            the older firewall interface
		ipset     ipset       demo,test                 sets that rules look addresses up in
		ethtool   ethtool     demo,test                 offloads, as an administrator sets them
		tcpdump   tcpdump     test                      must see accelerated packets
		ping      iputils-ping  test                    reachability in scenarios
		jq        jq          test                      checks the JSON output
		modprobe  kmod        demo,test                 loads the veth and nf_tables modules
		clang-19  clang-19    generate                  compiles the data path: the objects are byte for byte its work
		llvm-strip-19  llvm-19  generate                strips the compiled objects
		dockerd   docker.io   docker                    the tests run it, and containers in it, beside shunt
		docker    docker.io   docker                    its command line
	LIST
}

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
	say "$@"
	exit 1
}

check=
parts=()
for argument in "$@"; do
	case $argument in
	--check) check=1 ;;
	build | demo | test | generate | docker) parts+=("$argument") ;;
	*) die "unknown part \"$argument\"; parts are build, demo, test, generate and docker" ;;
	esac
done
((${#parts[@]})) || parts=(build demo test)

# wanted PARTS: one of them was asked for.
wanted() {
	local part
	for part in "${parts[@]}"; do
		[[ ,$1, == *,$part,* ]] && return 0
	done
	return 1
}

declare -A missing=() # package → why
find_missing() {
	local program package for why
	missing=()
	while read -r program package for why; do
		if wanted "$for" && ! PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null; then
			missing[$package]="$program: $why"
		fi
	done < <(list)
	# The compiler's own headers do not cover the kernel's user interface.
	if wanted generate && [[ ! -e /usr/include/linux/bpf.h ]]; then
		missing[linux-libc-dev]="linux/bpf.h: the kernel's structures"
	fi
}

apt_updated=
update_lists() {
	[[ $apt_updated ]] && return
	apt-get -qq update || say "apt-get update failed; trying with the package lists that are there"
	apt_updated=1
}

install_packages() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@" >/dev/null </dev/null ||
		die "apt-get could not install: $*. Install them by other means and run this again"
}

# available PACKAGE: apt knows a version that it could install. (No grep -q: it would end apt-cache by SIGPIPE.)
available() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep 'Candidate: [0-9]' >/dev/null; }

# newest_go: the package of the newest Go from 1.21 on that apt has.
newest_go() { apt-cache pkgnames golang-1. | grep -E '^golang-1\.(2[1-9]|[3-9][0-9])-go$' | sort -V | tail -n1 || true; }

# add_backports: Debian 12's own Go is too old; its backports have a newer one.
add_backports() {
	local list=/etc/apt/sources.list.d/backports.list uri
	# shellcheck disable=SC1091
	source /etc/os-release
	[[ ${ID:-} == debian && -n ${VERSION_CODENAME:-} ]] || return 1
	uri=$(mirror)
	[[ -n $uri ]] || return 1
	say "adding $VERSION_CODENAME-backports to apt's sources ($list) for a newer Go"
	echo "deb $uri $VERSION_CODENAME-backports main" >"$list"
	apt_updated=
	update_lists
}

install_go() {
	local package
	update_lists
	package=$(newest_go)
	if [[ -z $package ]] && add_backports; then
		package=$(newest_go)
	fi
	[[ -n $package ]] || die "no Go from 1.21 on in this system's packages; install one from https://go.dev/dl/ into /usr/local/go"
	say "installing $package (go: builds shunt and its tests)"
	install_packages "$package" ca-certificates
}

# need_clang19: Debian 12 and 13 and Ubuntu 24.04 have it; older systems build without regenerating.
need_clang19() {
	available clang-19 ||
		die "this system has no clang-19 package. The compiled objects are committed, so only \`make generate\` needs it: https://apt.llvm.org"
}

find_missing
go=$(scripts/find-go.sh) || go=
if [[ $go ]] && ((${#missing[@]} == 0)); then
	exit 0
fi
for package in "${!missing[@]}"; do
	say "missing ${missing[$package]} (package $package)"
done
[[ $go ]] || say "missing go, 1.21 or newer: builds shunt and its tests"
[[ -z $check ]] || exit 1

((EUID == 0)) || die "run this as root to install them: sudo scripts/setup.sh ${parts[*]}"
command -v apt-get >/dev/null || die "no apt-get here: install the programs named above by this system's means"
if ((${#missing[@]})); then
	update_lists
	[[ -z ${missing[clang-19]:-} ]] || need_clang19
	say "installing ${!missing[*]}"
	install_packages "${!missing[@]}"
fi
[[ $go ]] || install_go
find_missing
((${#missing[@]} == 0)) || die "still missing after installing: ${missing[*]}"
scripts/find-go.sh >/dev/null || die "still no Go after installing"
