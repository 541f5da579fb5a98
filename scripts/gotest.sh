#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gotest.sh ARGUMENT…: go test with these arguments, its output made readable by tools/testlog.
#
# One package at a time: many tests measure or pace, and two cores are shared by all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$(scripts/find-go.sh):$PATH
go build -o bin/testlog ./tools/testlog
go test -json -count=1 -p 1 "$@" | bin/testlog
