#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-generated.sh: are the committed objects and lists what their sources give?
#
# Builds them in a copy of the working tree, so that neither changes, and compares. Without clang-19 the
# objects cannot be rebuilt; then it says so and checks the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar --exclude=./.git --exclude=./.cache --exclude=./bin -c . | tar -x -C "$copy"

if command -v clang-19 >/dev/null && command -v llvm-strip-19 >/dev/null; then
	make --no-print-directory -C "$copy" generate
else
	echo "generated: no clang-19 here (sudo scripts/setup.sh generate installs it): compiled objects are not compared"
	PATH=$(scripts/find-go.sh):$PATH go -C "$copy" generate ./internal/reason
fi
if diff -rq --exclude=.git --exclude=.cache --exclude=bin . "$copy"; then
	echo "generated: files are current"
else
	echo "generated: run \`make generate\` and commit what it changes" >&2
	exit 1
fi
