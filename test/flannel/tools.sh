#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools.sh DIR: make flanneld, cnitool and the CNI plugins that the tests run, from their published Go modules, in DIR; etcd comes from the distribution.
# What is there, of the right version, is left alone. About three minutes on two CPUs.
set -euo pipefail
dir=$(mkdir -p "${1:?usage: tools.sh DIR}" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
PATH="$(scripts/find-go.sh):$PATH"

plugins=github.com/containernetworking/plugins/plugins
pluginsVersion=v1.9.1
cnitoolVersion=v1.3.0
flannelVersion=v0.28.4

# have PROGRAM MODULE VERSION: it is there and was built from that, which it tells itself: a folder that is kept from run to run may be older than this file.
have() { [[ -x $dir/$1 ]] && go version -m "$dir/$1" | grep -E "^\s+mod\s+$2\s+$3\s" >/dev/null; }

say() { printf 'flannel tools: %s\n' "$*" >&2; }

if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	say "installing etcd"
	apt-get -qq update || true
	if ! DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends etcd-server etcd-client >/dev/null; then
		say "no etcd among this system's packages (etcd-server, etcd-client): install one by other means"
		exit 1
	fi
fi

export GOBIN=$dir CGO_ENABLED=0 GOFLAGS=-trimpath
for plugin in main/bridge main/loopback ipam/host-local meta/portmap; do
	have "${plugin#*/}" "${plugins%/plugins}" "$pluginsVersion" && continue
	say "building the plugin ${plugin#*/} $pluginsVersion"
	go install "$plugins/$plugin@$pluginsVersion"
done
if ! have cnitool github.com/containernetworking/cni "$cnitoolVersion"; then
	say "building cnitool $cnitoolVersion"
	go install "github.com/containernetworking/cni/cnitool@$cnitoolVersion"
fi
if ! have flanneld github.com/flannel-io/flannel "$flannelVersion"; then
	say "building flanneld $flannelVersion"
	src=$(mktemp -d)
	trap 'rm -rf "$src"' EXIT
	cd "$src"
	# A module of its own: flannel's pins a version of one cloud's library that is no longer served.
	go mod init flanneld 2>/dev/null
	go get "github.com/flannel-io/flannel@$flannelVersion" github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common@v1.3.103 2>/dev/null
	# One of its backends, which nobody uses here, is written in C.
	if ! command -v gcc >/dev/null; then
		say "installing gcc"
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends gcc libc6-dev >/dev/null
	fi
	CGO_ENABLED=1 go build -mod=mod -o "$dir/flanneld" github.com/flannel-io/flannel
fi
