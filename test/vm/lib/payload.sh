# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# payload.sh: what a run adds to the machine: init, the test binaries and the files beside them.

readonly DEFAULT_LIMIT=120

# plan [PACKAGE [ARGUMENT…]]: the lines of test/vm/packages to run: all of them, or those of one
# package, whose arguments are replaced if any are given. SHUNT_VM_PACKAGES names another list.
plan() {
	local wanted=${1:-} line
	wanted=${wanted#./}
	if [[ -z $wanted ]]; then
		awk '!/^#/ && NF' "${SHUNT_VM_PACKAGES:-$VM_DIR/packages}"
		return
	fi
	shift
	line=$(awk -v wanted="$wanted" '$1 == wanted' "$VM_DIR/packages")
	if [[ -z $line ]]; then
		echo "$wanted ${DEFAULT_LIMIT}s $*"
	elif (($#)); then
		awk -v arguments="$*" '{files = ""; for (i = 3; i <= NF; i++) if ($i ~ /^\+/) files = files " " $i
			print $1, $2, arguments files}' <<<"$line"
	else
		echo "$line"
	fi
}

# seconds LIMIT: 90 for 90, 90s or 1m30s.
seconds() {
	[[ $1 =~ ^(([0-9]+)m)?(([0-9]+)s?)?$ && $1 == *[1-9]* ]] ||
		die "$STATUS_USAGE" "\"$1\" is not a time limit such as 90s or 5m"
	echo $((10#${BASH_REMATCH[2]:-0} * 60 + 10#${BASH_REMATCH[4]:-0}))
}

# build_payload OUT.cpio <plan: compiles the tests and packs them. Prints the sum of the limits.
build_payload() {
	local out=$1 stage package limit rest word arguments total=0
	stage=$(mktemp -d -p "$SCRATCH")
	mkdir -p "$stage/shunt"
	cp "$VM_DIR/guest/init" "$stage/init"
	cp "$REPO/go.mod" "$stage/shunt/"
	awk '!/^#/ && NF' "$VM_DIR/modules" >"$stage/shunt.modules"
	: >"$stage/shunt.plan"
	while read -r package limit rest; do
		limit=$(seconds "$limit")
		total=$((total + limit + 20)) # and the grace that init gives
		arguments=
		for word in $rest; do
			if [[ $word == +* ]]; then
				(cd "$REPO" && cp -a --parents "${word#+}" "$stage/shunt/") || die 1 "no ${word#+}, which $package lists"
			else
				arguments+=" $word"
			fi
		done
		say "compiling the tests of $package"
		mkdir -p "$stage/shunt/$package"
		(cd "$REPO" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -trimpath \
			-o "$stage/shunt/$package/vm.test" "./$package") >&2 || die 1 "the tests of $package do not compile"
		[[ -e $stage/shunt/$package/vm.test ]] || die 1 "$package has no tests"
		[[ ! -d $REPO/$package/testdata ]] || cp -a "$REPO/$package/testdata" "$stage/shunt/$package/"
		echo "$package $limit$arguments" >>"$stage/shunt.plan"
	done
	[[ -s $stage/shunt.plan ]] || die 1 "test/vm/packages lists no package"
	pack "$stage" "$out"
	echo "$total"
}
