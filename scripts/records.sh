#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# records.sh: are the logs of tests that CI has no time for as old as what they are about? It tells, and fails for none of it.
#
# Each log's first line names the commit that it was made with. A log is stale when there have been commits since then to what it says
# something about, and missing where nobody made it.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# log  how it is made  what it is about
list() {
	cat <<-'LIST'
		bench/results/hands.txt  hands  bpf internal cmd test/diff
		bench/results/killed.txt  killed  bpf internal cmd test/diff/killed_test.go test/diff/killed_talk_test.go
		bench/results/docker.txt  test-docker  bpf internal cmd test/docker test/beside
		bench/results/flannel.txt  test-flannel  bpf internal cmd test/flannel test/beside
		bench/results/k8s.txt  test-k8s  bpf internal cmd test/k8s test/beside deploy/kubernetes
		bench/results/lib-kmod.txt  test-vm-lib  lib/kmod lib/capability lib/include/shunt/accel.h lib/include/shunt/hash8.h lib/include/shunt/crc32c.h lib/include/shunt/match.h lib/test/accel_test.go lib/test/kmod_test.go
		bench/results/lib-compilers.txt  lib-compilers  lib/include lib/test/bpf lib/build.sh
	LIST
}

while read -r log target about; do
	again="make $target RECORD=$log"
	if [[ ! -e $log ]]; then
		echo "records: $log is MISSING: $again"
		continue
	fi
	commit=$(sed -n '1s/.*commit \([^ ,]*\).*/\1/p' "$log")
	if ! git rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
		echo "records: $log: made with $commit; this is no checkout of git, so nobody knows whether it is stale"
	elif [[ -z $commit || $commit == *-dirty ]]; then
		echo "records: $log is STALE: it names no commit, or one with changes ($commit): $again"
	elif ! git merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then
		echo "records: $log is STALE: its commit $commit is not in this history: $again"
	else
		# shellcheck disable=SC2086 # a list of words
		since=$(git rev-list --count "$commit..HEAD" -- $about)
		if ((since)); then
			echo "records: $log is STALE: $since commits to what it is about since $commit: $again"
		else
			echo "records: $log is as new as what it is about ($commit)"
		fi
	fi
done < <(list)
