#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh: the suites of test/suites, or those named. `make test` calls it.
#
#   test.sh [SUITE…]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/suites.sh

if ((EUID != 0)); then
	echo "test: the tests make network namespaces and load programs: run this as root (make test-unit needs no root)" >&2
	exit 2
fi
scripts/setup.sh build demo test
use_go
suites_of test/suites "$@"
suites_end
