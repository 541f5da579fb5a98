#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh: install what is missing, build, and run bench/demo. `make demo` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ((EUID != 0)); then
	echo "demo: network namespaces and BPF programs need root: sudo make demo" >&2
	exit 2
fi
scripts/setup.sh build demo
make --no-print-directory build
PATH=$(scripts/find-go.sh):$PATH:/usr/sbin:/sbin GOTOOLCHAIN=${GOTOOLCHAIN:-auto} go build -o bin/demo ./bench/demo
exec bin/demo "$@"
