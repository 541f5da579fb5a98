# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# suites.sh: run things one after the other, each with a name and a time limit, and tell at the end what
# each came to. Sourced by test.sh and .ci/run.

SUITE_NAMES=() SUITE_RESULTS=() SUITE_SECONDS=() SUITE_TESTS=()
SUITE_JOB=

# Where gotest.sh tells how many tests passed, failed and were skipped; suites within suites share it.
if [[ -z ${SUITE_TOLD:-} ]]; then
	SUITE_TOLD=$(mktemp)
	export SUITE_TOLD
	trap 'rm -f "$SUITE_TOLD"' EXIT
fi

# A limit needs a process group of its own, which does not hear ctrl-C: pass it on.
trap '[[ -z $SUITE_JOB ]] || kill -TERM "$SUITE_JOB" 2>/dev/null; suites_end; exit 130' INT TERM

# suite NAME LIMIT COMMAND…: run it; a failure is noted and the rest still runs. With SUITE_TRIES=2 what
# failed is tried once more (an archive that did not answer, an emulated machine that was too slow), and told.
suite() {
	local name=$1 limit=$2 start=$SECONDS status try note= told
	shift 2
	for ((try = 1; try <= ${SUITE_TRIES:-1}; try++)); do
		told=$(wc -l <"$SUITE_TOLD")
		((try == 1)) || note=" (try $try)"
		status=0
		printf '\n=== %s (limit %s)%s: %s\n' "$name" "$limit" "$note" "$*"
		timeout --kill-after=30 "$limit" "$@" </dev/null &
		SUITE_JOB=$!
		wait "$SUITE_JOB" || status=$?
		SUITE_JOB=
		((status)) || break
	done
	SUITE_NAMES+=("$name")
	SUITE_SECONDS+=($((SECONDS - start)))
	SUITE_TESTS+=("$(tail -n +$((told + 1)) "$SUITE_TOLD" | awk '{ran += $1 + $2; skipped += $3} END {if (NR) printf "%d ran, %d skipped", ran, skipped}')")
	case $status in
	0) SUITE_RESULTS+=("ok$note") ;;
	124 | 137) SUITE_RESULTS+=("FAIL (over its limit of $limit)") ;;
	*) SUITE_RESULTS+=("FAIL (status $status)") ;;
	esac
	printf '=== %s: %s after %d s\n' "$name" "${SUITE_RESULTS[-1]}" "${SUITE_SECONDS[-1]}"
}

# suites_end: the table; status 1 if any failed, or none ran.
suites_end() {
	local i failed=0
	((${#SUITE_NAMES[@]})) || return 1
	printf '\n%-20s %8s  %-24s %s\n' suite seconds tests result
	for i in "${!SUITE_NAMES[@]}"; do
		printf '%-20s %8d  %-24s %s\n' "${SUITE_NAMES[i]}" "${SUITE_SECONDS[i]}" "${SUITE_TESTS[i]}" "${SUITE_RESULTS[i]}"
		[[ ${SUITE_RESULTS[i]} == ok* ]] || failed=1
	done
	printf '%-20s %8d  %-24s %s\n' together "$SECONDS" "" "$([[ $failed == 0 ]] && echo PASS || echo FAIL)"
	return $failed
}

# suites_of FILE [NAME…]: the suites of a table, or those named.
suites_of() {
	local file=$1 name limit command
	shift
	while read -r name limit command; do
		if (($# == 0)) || [[ " $* " == *" $name "* ]]; then
			# shellcheck disable=SC2086 # the command is a list of words
			suite "$name" "$limit" $command
		fi
	done < <(sed -e 's/#.*//' -e '/^ *$/d' "$file")
}

# use_go: make the commands of the suites find a Go that is new enough.
use_go() {
	local go
	go=$(scripts/find-go.sh) || {
		echo "no Go from 1.21 on: scripts/setup.sh installs one" >&2
		exit 1
	}
	PATH=$go:$PATH:/usr/sbin:/sbin
	export PATH GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
}
