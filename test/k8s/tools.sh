#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools.sh DIR: make Kubernetes' programs, etcd and containerd, from their published Go modules, in DIR; runc comes from the distribution.
# What is there is left alone. About 12 minutes on two CPUs, and 5 GiB of Go's build cache.
set -euo pipefail
dir=$(mkdir -p "${1:?usage: tools.sh DIR}" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
PATH="$(scripts/find-go.sh):$PATH"

kubernetesVersion=v1.36.3
etcdVersion=v3.6.8 # as Kubernetes' own client
containerdVersion=v2.1.9 # kubelet takes no 1.x any more, which is what Debian 12 has

say() { printf 'Kubernetes tools: %s\n' "$*" >&2; }

if ! command -v runc >/dev/null; then
	say "installing runc"
	apt-get -qq update || true
	if ! DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends runc >/dev/null; then
		say "no runc among this system's packages: install it by other means"
		exit 1
	fi
fi

export CGO_ENABLED=0 GOFLAGS="-trimpath -mod=mod"
src=$(mktemp -d)
trap 'rm -rf "$src"' EXIT

# in_module MODULE VERSION [PARTS]: go to a module of its own that requires this one with the replacements that it makes itself. `go install`
# refuses a module that has any. Kubernetes replaces its parts by folders, which are published as PARTS; etcd's require each other by their versions.
in_module() {
	local module=$1 version=$2 parts=${3:-} folder=$src/${1##*/}
	[[ -e $folder/go.mod ]] && cd "$folder" && return
	mkdir -p "$folder"
	cd "$folder"
	go mod init tools 2>/dev/null
	go mod edit -go=1.26 -require="$module@$version"
	go mod edit -json "$(go mod download -json "$module@$version" | jq -r .GoMod)" |
		jq -r --arg parts "$parts" '.Replace[]? | select(.New.Version or $parts != "") | "-replace=\(.Old.Path)=" + if .New.Version then "\(.New.Path)@\(.New.Version)" else "\(.Old.Path)@\($parts)" end' |
		xargs --no-run-if-empty go mod edit
}

# build PROGRAM PACKAGE [ARGUMENT…]
build() {
	local program=$1 package=$2
	shift 2
	go build -o "$dir/$program" "$@" "$package"
}

if [[ ! -x $dir/etcd ]]; then
	say "building etcd $etcdVersion"
	in_module go.etcd.io/etcd/server/v3 "$etcdVersion"
	build etcd go.etcd.io/etcd/server/v3 -ldflags '-s -w'
fi
for program in kube-proxy kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet; do
	[[ -x $dir/$program ]] && continue
	say "building $program $kubernetesVersion"
	in_module k8s.io/kubernetes "$kubernetesVersion" "v0.${kubernetesVersion#v1.}"
	version=k8s.io/component-base/version
	build "$program" "k8s.io/kubernetes/cmd/$program" -ldflags "-s -w -X $version.gitVersion=$kubernetesVersion -X $version.gitMajor=1 -X $version.gitMinor=36"
done
for program in containerd containerd-shim-runc-v2 ctr; do
	[[ -x $dir/$program ]] && continue
	say "building $program $containerdVersion"
	in_module github.com/containerd/containerd/v2 "$containerdVersion"
	build "$program" "github.com/containerd/containerd/v2/cmd/$program" -ldflags '-s -w'
done
