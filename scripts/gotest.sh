#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gotest.sh PACKAGES [ARGUMENT…]: go test of these packages with these arguments, its output made readable by
# tools/testlog.
#
# Two packages at a time: most tests wait more than they work, and none looks at figures, but each has its deadlines, and two cores are shared by all.
#
# What failed is run once more, alone: a test that paces real packets can be late on a machine that was
# taken away for a second. A few such tests that pass alone are told ("passed when run again") and do not
# fail the whole; more than TRIES_AGAIN of them, or a build that fails, do.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$(scripts/find-go.sh):$PATH
TRIES_AGAIN=${TRIES_AGAIN:-5}
NEVER=${NEVER:-} # reasons for which nothing may be skipped: .ci/run has everything
SHOW=${SHOW:-} # tests whose output is shown also when they pass
packages=$1
shift

go build -o bin/testlog ./tools/testlog
failed=$(mktemp)
said=$(mktemp)
# What ran and what was skipped, for the table at the end (suites.sh).
trap 'sed -nE "s/^(PASS|FAIL): ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\\2 \\3 \\4/p" "$said" >>"${SUITE_TOLD:-/dev/null}"; rm -f "$failed" "$said"' EXIT
go test -json -count=1 -p 2 "$packages" "$@" | bin/testlog -show "$SHOW" -never "$NEVER" -failed "$failed" | tee "$said" && exit 0

mapfile -t again <"$failed"
((${#again[@]} > 0 && ${#again[@]} <= TRIES_AGAIN)) || exit 1
for line in "${again[@]}"; do
	IFS=$'\t' read -r package pattern <<<"$line"
	printf 'once more, alone: %s %s\n' "$package" "$pattern"
	go test -json -count=1 "$package" "$@" -run "${pattern:-.}" | bin/testlog -never "$NEVER" || exit 1
done
printf 'passed when run again, %d that failed before:\n' "${#again[@]}"
printf '  %s\n' "${again[@]}"
